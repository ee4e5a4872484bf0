//! Sets up process 1 of a sandbox, up to the point where [`super::init`] starts the program.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::Signal;
use rustix::thread::CapabilitySet;
use tribune_contract::{
    LaunchFailure, LaunchProfile, LaunchStage, LimitedBy, PortRelay, SandboxMode, StartReport, UserIds,
};

use super::exec_program::ExecPlan;
use super::failure::{AtStage as _, namespace_failure};
use super::init_channel::InitChannel;
use super::masks::{self, MaskReport};
use super::mount_plan::{self, INSIDE_ID, MountStep, RUN_FOLDER};
use super::mount_sources::{self, MountSources};
use super::relay::{Port, Relays};
use super::rootfs::RootFs;
use super::setup::SharedSetup;
use super::{identity, init, landlock, limits};
use crate::isolation::Isolation;
use crate::sys;

const REMEDY: &str = "Run `tribune doctor --sandbox` to see what this machine lacks";

/// What process 1 gets from its launcher before there is a launch request.
#[derive(Debug)]
pub(super) struct InitSetup<'a> {
    pub(super) setup: SharedSetup<'a>,
    pub(super) mode: SandboxMode,
    /// The user to switch to in Landlock mode, if the launcher is root.
    pub(super) switch_to: Option<UserIds>,
    /// Its ids on the host.
    pub(super) host_ids: UserIds,
    pub(super) reports: &'a File,
}

impl InitSetup<'_> {
    /// Performs all steps and runs the program. Returns when it has exited, or with the reason why it was not started.
    pub(super) fn run(
        &self,
        system: &[MountStep],
        sources: Option<MountSources>,
        mut channel: InitChannel,
    ) -> Result<(), LaunchFailure> {
        match self.mode {
            SandboxMode::Full => {
                write_id_maps(self.host_ids)?;
                identity::set_ids(INSIDE_ID)?;
            }
            SandboxMode::Landlock => identity::become_user(self.switch_to)?,
        }
        // The death of the launcher kills process 1, and with it everything. Set after the change of user, which resets
        // it.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(
            LaunchStage::Namespaces,
            "setting the parent death signal",
            REMEDY,
        )?;
        init::check_launcher(self.reports)?;
        let launcher_mounts = sources.is_some();
        let root = match self.mode {
            SandboxMode::Full => Some(self.build_base_root(system, sources)?),
            SandboxMode::Landlock => None,
        };

        let (streams, request) =
            channel.receive_request().at(LaunchStage::Profile, "receiving the launch request", REMEDY)?;
        install_streams(streams).at(LaunchStage::Program, "installing the program's streams", REMEDY)?;
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
            channel.receive_cgroups().at(LaunchStage::Limits, "receiving the cgroups", REMEDY)?;
        if let Some(root) = root.as_ref().filter(|_| self.has_rlimits_only(limited_by)) {
            root.cover_zero_device().at(LaunchStage::Mounts, "replacing /dev/zero", REMEDY)?;
        }
        self.enter_root(root, &cgroup_fds)?;
        drop((cgroup_fds, channel));

        let started = StartReport {
            uid: self.host_ids.uid,
            gid: self.host_ids.gid,
            limited_by,
            landlock_abi: landlock,
            masked: masked.names,
            read_only: masked.read_only,
            emptied: masked.emptied,
        };
        self.start_program(profile, started, limited_by)
    }

    /// Builds the part of the root that every sandbox has, and sets up what else does not depend on a request.
    fn build_base_root(
        &self,
        system: &[MountStep],
        sources: Option<MountSources>,
    ) -> Result<RootFs, LaunchFailure> {
        let isolation = self.setup.isolation;
        let sources = match sources {
            Some(sources) => sources,
            None => MountSources::open(system, None, isolation)?,
        };
        let mut root = RootFs::attach(isolation)?;
        root.mount_all(system, sources)?;
        if isolation.has(Isolation::NestedNamespaces) {
            forbid_user_namespaces()?;
        }
        if isolation.has(Isolation::UtsNamespace) {
            rustix::system::sethostname(b"sandbox").at(
                LaunchStage::Namespaces,
                "setting the host name",
                REMEDY,
            )?;
        }
        if isolation.has(Isolation::NetworkNamespace) {
            sys::enable_loopback().at(LaunchStage::Namespaces, "enabling the loopback interface", REMEDY)?;
        }
        Ok(root)
    }

    /// Mounts what the profile requests and applies its masks. The sources come from the launcher, or are opened here.
    fn mount_profile(
        &self,
        root: &mut RootFs,
        profile: &LaunchProfile,
        channel: Option<&mut InitChannel>,
    ) -> Result<MaskReport, LaunchFailure> {
        let isolation = self.setup.isolation;
        let steps = mount_plan::profile_steps(profile);
        let sources = match channel {
            Some(channel) => {
                channel.receive_sources().at(LaunchStage::Mounts, "receiving the mount sources", REMEDY)?
            }
            None => MountSources::open(&steps, None, isolation)?,
        };
        root.mount_all(&steps, sources)?;
        match isolation.has(Isolation::WorkspaceMasks) {
            true => masks::apply_masks(root, profile),
            false => Ok(MaskReport::default()),
        }
    }

    /// Whether nothing counts the memory that processes share.
    fn has_rlimits_only(&self, limited_by: LimitedBy) -> bool {
        limited_by == LimitedBy::Rlimits && self.setup.isolation.has(Isolation::Rlimits)
    }

    /// Joins the cgroups and pivots into the root.
    fn enter_root(&self, root: Option<RootFs>, cgroup_fds: &[File]) -> Result<(), LaunchFailure> {
        let isolation = self.setup.isolation;
        limits::join(cgroup_fds)?;
        let Some(root) = root else { return Ok(()) };
        if isolation.has(Isolation::CgroupNamespace) {
            sys::unshare_cgroup_namespace().map_err(|error| namespace_failure(&error))?;
        }
        root.enter()
    }

    /// Performs the last steps that need rights, then runs the program.
    fn start_program(
        &self,
        profile: &LaunchProfile,
        started: StartReport,
        limited_by: LimitedBy,
    ) -> Result<(), LaunchFailure> {
        let isolation = self.setup.isolation;
        let relays = listen_relays(profile)?;
        if isolation.has(Isolation::Capabilities) {
            drop_capabilities(self.mode).at(LaunchStage::Namespaces, "dropping capabilities", REMEDY)?;
        }
        if isolation.has(Isolation::NoNewPrivileges) {
            rustix::thread::set_no_new_privs(true).at(
                LaunchStage::Seccomp,
                "setting no_new_privs",
                REMEDY,
            )?;
        }
        let plan = ExecPlan {
            profile,
            limited_by,
            landlock: started.landlock_abi,
            filter: self.setup.filters.of(self.mode, limited_by),
            isolation,
        };
        let reports = self.reports.try_clone().at(LaunchStage::Program, "reporting", REMEDY)?;
        init::run(&plan, relays, started, reports)
    }
}

/// Installs the standard streams, for the program to inherit.
fn install_streams([stdin, stdout, stderr]: [OwnedFd; 3]) -> rustix::io::Result<()> {
    rustix::stdio::dup2_stdin(&stdin)?;
    rustix::stdio::dup2_stdout(&stdout)?;
    rustix::stdio::dup2_stderr(&stderr)
}

/// Maps the one user and the one group of the sandbox, from inside.
fn write_id_maps(UserIds { uid, gid }: UserIds) -> Result<(), LaunchFailure> {
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

/// Forbids user namespaces inside, in which a program would have capabilities again.
fn forbid_user_namespaces() -> Result<(), LaunchFailure> {
    // The host's /proc still shows the limits of this process's user namespace.
    std::fs::write("/proc/sys/user/max_user_namespaces", "0").at(
        LaunchStage::Namespaces,
        "forbidding nested user namespaces",
        "Mount /proc with a writable /proc/sys/user for Tribune",
    )
}

/// Starts listening on the relay ports, which only full mode has.
fn listen_relays(profile: &LaunchProfile) -> Result<Relays, LaunchFailure> {
    let listen = |relay: &PortRelay| {
        let inside = Path::new(RUN_FOLDER).join(format!("{}.sock", relay.name));
        Port::listen(relay.port, inside).at(
            LaunchStage::Relays,
            format_args!("listening on port {} for `{}`", relay.port, relay.name),
            "Choose another port",
        )
    };
    let ports: Result<Vec<Port>, LaunchFailure> = profile.relays.iter().map(listen).collect();
    Ok(Relays::new(ports?))
}

fn drop_capabilities(mode: SandboxMode) -> rustix::io::Result<()> {
    // Without capabilities a process cannot shrink its bounding set, and gains none because of no_new_privs.
    let reachable = match mode {
        SandboxMode::Full => CapabilitySet::all(),
        SandboxMode::Landlock => CapabilitySet::empty(),
    };
    for capability in reachable.iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // Unknown to this kernel.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    identity::clear_capabilities()
}
