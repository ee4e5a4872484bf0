//! Process 1 of a sandbox, from its first step to where [`init`](super::init) goes on.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use rustix::thread::CapabilitySet;
use tribune_contract::{Failed, LaunchProfile, LaunchStage, LimitedBy, Mode, Started};

use super::exec_program::ExecPlan;
use super::failure::AtStage as _;
use super::init_channel::InitChannel;
use super::masks::{self, MaskReport};
use super::mount_plan::{self, INSIDE_ID, MountStep, RUN_FOLDER};
use super::mount_sources::{self, MountSources};
use super::relay::{Port, Relays};
use super::rootfs::RootFs;
use super::{SharedSetup, identity, init, landlock, limits, prewarm};
use crate::isolation::Isolation;
use crate::sys;

const REMEDY: &str = "Run `tribune doctor --sandbox` to see what this machine lacks";

/// What it has from its launcher before there is an request.
#[derive(Debug)]
pub(super) struct InitSetup<'a> {
    pub(super) setup: SharedSetup<'a>,
    pub(super) mode: Mode,
    /// Whom it becomes, if it has no namespaces and is root.
    pub(super) user: Option<(u32, u32)>,
    /// Who it is on the host.
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) reports: &'a File,
}

impl InitSetup<'_> {
    /// Everything. Comes back when its program has ended, or with the reason why none was started.
    pub(super) fn run(
        &self,
        system: &[MountStep],
        sources: Option<MountSources>,
        mut channel: InitChannel,
    ) -> Result<(), Failed> {
        match self.mode {
            Mode::Full => {
                write_id_maps(self.uid, self.gid)?;
                identity::set_ids(INSIDE_ID)?;
            }
            Mode::Landlock => identity::become_user(self.user)?,
        }
        // Whoever kills the launcher kills this, and with it everything. After the change of user, which forgets it.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(
            LaunchStage::Namespaces,
            "following the launcher",
            REMEDY,
        )?;
        init::check_launcher(self.reports)?;
        let launcher_mounts = sources.is_some();
        let root = match self.mode {
            Mode::Full => Some(self.build_base_root(system, sources)?),
            Mode::Landlock => None,
        };

        let (streams, request) =
            channel.receive_request().at(LaunchStage::Profile, "hearing the request", REMEDY)?;
        install_streams(streams).at(LaunchStage::Program, "taking the program's streams", REMEDY)?;
        let profile = &request.profile;
        let landlock = landlock::check_abi(profile)?;
        let mut masked = MaskReport::default();
        let root = match root {
            Some(mut root) => {
                let channel_with_sources = launcher_mounts.then_some(&mut channel);
                masked = self.mount_profile(&mut root, profile, channel_with_sources)?;
                Some(root)
            }
            None => None,
        };
        let (limited_by, cgroup_fds) =
            channel.receive_cgroups().at(LaunchStage::Limits, "hearing of the limits", REMEDY)?;
        self.enter_root(root, &cgroup_fds)?;
        drop((cgroup_fds, channel));

        let started = Started {
            uid: self.uid,
            gid: self.gid,
            limited_by,
            landlock_abi: landlock,
            masked: masked.names,
            read_only: masked.read_only,
            emptied: masked.emptied,
        };
        self.start_program(profile, started, limited_by)
    }

    /// The part of the root that every sandbox has, and what else needs no request.
    fn build_base_root(&self, system: &[MountStep], sources: Option<MountSources>) -> Result<RootFs, Failed> {
        let isolation = self.setup.isolation;
        let sources = match sources {
            Some(sources) => sources,
            None => MountSources::open(system, None, isolation)?,
        };
        let mut root = RootFs::attach(isolation)?;
        root.build(system, sources)?;
        if isolation.has(Isolation::NestedNamespaces) {
            forbid_user_namespaces()?;
        }
        if isolation.has(Isolation::UtsNamespace) {
            rustix::system::sethostname(b"sandbox").at(LaunchStage::Namespaces, "naming the host", REMEDY)?;
        }
        if isolation.has(Isolation::NetworkNamespace) {
            sys::enable_loopback().at(LaunchStage::Namespaces, "turning the loopback on", REMEDY)?;
        }
        Ok(root)
    }

    /// What the profile asks for. The launcher has taken hold of it and tells so, or nobody has.
    fn mount_profile(
        &self,
        root: &mut RootFs,
        profile: &LaunchProfile,
        launcher: Option<&mut InitChannel>,
    ) -> Result<MaskReport, Failed> {
        let isolation = self.setup.isolation;
        let steps = mount_plan::profile_steps(profile);
        let sources = match launcher {
            Some(channel) => {
                channel.receive_sources().at(LaunchStage::Mounts, "hearing what to mount", REMEDY)?
            }
            None => MountSources::open(&steps, None, isolation)?,
        };
        root.build(&steps, sources)?;
        match isolation.has(Isolation::WorkspaceMasks) {
            true => masks::apply_masks(root, profile),
            false => Ok(MaskReport::default()),
        }
    }

    /// Moves into its cgroups and into its root.
    fn enter_root(&self, root: Option<RootFs>, cgroup_fds: &[File]) -> Result<(), Failed> {
        let isolation = self.setup.isolation;
        limits::join(cgroup_fds)?;
        let Some(root) = root else { return Ok(()) };
        if isolation.has(Isolation::CgroupNamespace) {
            sys::unshare_cgroup_namespace().map_err(|error| prewarm::namespace_failure(&error))?;
        }
        root.enter()
    }

    /// The last steps that need rights, and the program.
    fn start_program(
        &self,
        profile: &LaunchProfile,
        started: Started,
        limited_by: LimitedBy,
    ) -> Result<(), Failed> {
        let isolation = self.setup.isolation;
        let (relays, ports) = listen_relays(profile)?;
        if isolation.has(Isolation::Capabilities) {
            drop_capabilities(self.mode).at(LaunchStage::Namespaces, "giving up capabilities", REMEDY)?;
        }
        if isolation.has(Isolation::NoNewPrivileges) {
            rustix::thread::set_no_new_privs(true).at(
                LaunchStage::Seccomp,
                "forgoing new privileges",
                REMEDY,
            )?;
        }
        let plan = ExecPlan {
            profile,
            limited_by,
            landlock: started.landlock_abi,
            filter: self.setup.filters.of(self.mode),
            ports: &ports,
            isolation,
        };
        let reports = self.reports.try_clone().at(LaunchStage::Program, "reporting", REMEDY)?;
        init::run(&plan, relays, started, reports)
    }
}

/// Has these as its own, for the program.
fn install_streams([stdin, stdout, stderr]: [OwnedFd; 3]) -> rustix::io::Result<()> {
    rustix::stdio::dup2_stdin(&stdin)?;
    rustix::stdio::dup2_stdout(&stdout)?;
    rustix::stdio::dup2_stderr(&stderr)
}

/// Maps the one user and the one group there are, from inside.
fn write_id_maps(uid: u32, gid: u32) -> Result<(), Failed> {
    let write = || {
        std::fs::write("/proc/self/setgroups", "deny")?;
        mount_sources::write_map("/proc/self/uid_map", INSIDE_ID, uid)?;
        mount_sources::write_map("/proc/self/gid_map", INSIDE_ID, gid)
    };
    write().at(
        LaunchStage::Namespaces,
        format_args!("mapping user {uid} into the sandbox"),
        "In a container, let it write id maps; otherwise check that /proc is mounted",
    )
}

/// Lets nobody inside make a user namespace, in which it would have rights again.
fn forbid_user_namespaces() -> Result<(), Failed> {
    // The host's /proc, through which this namespace's own limits are seen.
    std::fs::write("/proc/sys/user/max_user_namespaces", "0").at(
        LaunchStage::Namespaces,
        "forbidding further namespaces",
        "Mount /proc with a writable /proc/sys/user for Tribune",
    )
}

/// The relays, listening, and their ports.
fn listen_relays(profile: &LaunchProfile) -> Result<(Relays, Vec<u16>), Failed> {
    let mut ports = Vec::new();
    for relay in &profile.relays {
        let (number, socket, token): (u16, PathBuf, _) = match profile.mode {
            Mode::Full => {
                let inside = Path::new(RUN_FOLDER).join(format!("{}.sock", relay.name));
                (relay.port, inside, None)
            }
            Mode::Landlock => {
                (0, relay.socket.clone(), relay.token.as_ref().map(|token| token.clone().into_bytes()))
            }
        };
        let port = Port::listen(number, socket, token).at(
            LaunchStage::Relays,
            format_args!("listening on port {number} for `{}`", relay.name),
            "Choose another port",
        )?;
        ports.push(port);
    }
    let numbers: io::Result<Vec<u16>> = ports.iter().map(Port::number).collect();
    let numbers = numbers.at(LaunchStage::Relays, "reading the port of a relay", "Try again")?;
    Ok((Relays::new(ports), numbers))
}

fn drop_capabilities(mode: Mode) -> rustix::io::Result<()> {
    // Whoever has none cannot shrink the set of those it could get, and gets none without new privileges.
    let reachable = match mode {
        Mode::Full => CapabilitySet::all(),
        Mode::Landlock => CapabilitySet::empty(),
    };
    for capability in reachable.iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // One that this kernel does not know.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    identity::clear_capabilities()
}
