//! The entering half: what `tribune sandbox-enter` does.
//!
//! It is a process with one thread, an empty environment and no descriptors but a socket to the host. It stands ready as an
//! usher and forks a launcher for each request. A launcher reads its order, gives up what it has step by step, clones
//! process 1 into new namespaces, and stays with it. Whatever cannot be done as ordered ends the launch; nothing is left out.

mod agent;
#[cfg(feature = "bare")]
mod bare;
pub(crate) mod confine;
mod failure;
mod filter;
mod identity;
mod init;
mod limits;
mod masks;
mod mount;
mod plan;
mod relay;
mod root;
mod search;
mod sockets;
mod sources;
mod supervise;
mod usher;
mod way;

#[cfg(feature = "bare")]
pub use self::bare::bare;
pub use self::search::hidden_in;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Gid, Mode as FileMode, Uid};
use rustix::process::Signal;
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::BpfProgram;
use tribune_contract::{Bounded, Failed, LimitedBy, Mode, Order, Report, Stage, Started};

use self::agent::Agent;
use self::failure::{At as _, failed};
use self::filter::Filters;
use self::masks::Masked;
use self::plan::{INSIDE_ID, RUN_FOLDER, Step};
use self::relay::{Port, Relays};
use self::root::Root;
use self::sources::Sources;
use self::supervise::First;
use crate::layers::{Layer, Layers};
use crate::sys::{self, Cloned};
use crate::wire;

/// Enters sandboxes, as the host half orders. Returns when the host is gone. What is forked of this process on the way ends by
/// itself.
///
/// Call this first of all in a process started for it, before there is a second thread.
pub fn enter() -> io::Result<()> {
    enter_with(&Layers::default())
}

/// Enters a sandbox that lacks layers, to show what they are there for.
#[cfg(feature = "controls")]
pub fn enter_without(off: &[Layer]) -> io::Result<()> {
    enter_with(&Layers::without(off))
}

fn enter_with(layers: &Layers) -> io::Result<()> {
    // Built once, before there is an order: they are the same for all.
    let filters = Filters::build();
    let Some(mut control) = usher::serve()? else { return Ok(()) };
    let order = match wire::read::<Order>(&mut control) {
        Ok(Some(order)) => order,
        Ok(None) => return Ok(()),
        Err(error) => {
            let why_not =
                failed(Stage::Profile, format!("it cannot be read ({error})"), "Run one version of Tribune");
            return wire::write(&mut control, &Report::Failed(why_not));
        }
    };
    let wall = order.profile.limits.wall_ms.map(Duration::from_millis);
    let bounded = || match wire::read::<Bounded>(&mut control) {
        Ok(Some(bounded)) => Ok(bounded),
        Ok(None) => Err(failed(Stage::Limits, "the host is gone", "Start it again")),
        Err(error) => Err(error).at(Stage::Limits, "hearing of the limits", "Run one version of Tribune"),
    };
    let told = match launch(&order, bounded, layers, &filters) {
        Ok(first) => supervise::supervise(first, &mut control, wall),
        Err(why_not) => wire::write(&mut control, &Report::Failed(why_not)),
    };
    sys::leave(i32::from(told.is_err()));
}

/// Everything up to process 1, which goes on by itself.
fn launch(
    order: &Order,
    bounded: impl FnOnce() -> Result<Bounded, Failed>,
    layers: &Layers,
    filters: &Filters,
) -> Result<First, Failed> {
    let profile = &order.profile;
    profile.check().map_err(|error| failed(Stage::Profile, error.to_string(), "Correct the profile"))?;
    rustix::process::umask(FileMode::from_raw_mode(0o022));
    // What is learned before anything is given up.
    let landlock = confine::check(profile)?;
    let filter = filters.of(profile.mode);
    if layers.has(Layer::Keyring) {
        identity::fresh_keyring()?;
    }
    let is_full = profile.mode == Mode::Full;
    let steps = if is_full { plan::steps(profile) } else { Vec::new() };
    // Root that may not mount, as in many containers, goes the way of an ordinary user.
    let sources = match order.becomes.filter(|_| is_root_that_mounts()) {
        Some(user) => Some(Sources::open(&steps, Some(user), layers)?),
        None => None,
    };
    let bounded = bounded()?;
    if layers.has(Layer::Cgroup) {
        limits::join(&bounded.cgroups)?;
    }
    let (uid, gid) = identity::become_user(order.becomes)?;
    // After the change of user, which forgets it. The host is followed by its socket and not by this signal, which comes
    // when the thread that started this process ends.
    let launcher = rustix::process::getpid();
    let prepared = Prepared { order, layers, landlock, limited_by: bounded.limited_by, filter, uid, gid };
    if !is_full {
        rustix::process::set_child_subreaper(Some(launcher)).at(
            Stage::Program,
            "becoming the reaper",
            "Use Linux 3.4 or later",
        )?;
    }

    let (report, reports) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).at(
        Stage::Namespaces,
        "making a pipe",
        "Raise the limit of open files",
    )?;
    match sys::clone(prepared.namespaces()).map_err(|error| unclonable(&error))? {
        Cloned::Child => {
            drop(report);
            let mut reports = File::from(reports);
            if let Err(why_not) = prepared.first(&steps, sources, &reports) {
                init::give_up(&mut reports, why_not);
            }
            sys::leave(0);
        }
        Cloned::Parent { child, pidfd } => {
            drop(reports);
            // As long as the launcher had them, their other ends would not see them closed.
            init::leave_streams().at(Stage::Program, "letting go of the program's streams", "Try again")?;
            Ok(First { pid: child, pidfd, report: report.into(), leaves_orphans: !is_full })
        }
    }
}

fn is_root_that_mounts() -> bool {
    let may_mount = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::SYS_ADMIN);
    rustix::process::geteuid().is_root() && rustix::thread::capabilities(None).is_ok_and(may_mount)
}

/// Maps the one user and the one group there are, from inside.
fn map(uid: Uid, gid: Gid) -> Result<(), Failed> {
    let write = || {
        std::fs::write("/proc/self/setgroups", "deny")?;
        sources::write_map("/proc/self/uid_map", INSIDE_ID, uid.as_raw())?;
        sources::write_map("/proc/self/gid_map", INSIDE_ID, gid.as_raw())
    };
    write().at(
        Stage::Namespaces,
        format_args!("mapping user {} into the sandbox", uid.as_raw()),
        "In a container, let it write id maps; otherwise check that /proc is mounted",
    )
}

fn unclonable(error: &io::Error) -> Failed {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EUSERS) => {
            "Raise the limits in /proc/sys/user, above all user.max_user_namespaces; in a sandbox, nest no further"
        }
        Some(libc::EPERM) => {
            "Allow user namespaces: `sysctl kernel.unprivileged_userns_clone=1` where that exists; in a container, \
             allow them in its seccomp profile"
        }
        Some(libc::ENOSYS) => {
            "Use Linux 5.12 or later; in a container, allow `clone3` in its seccomp profile"
        }
        Some(libc::EINVAL) => "Use a kernel with all of CONFIG_{USER,PID,NET,IPC,UTS}_NS and CONFIG_CGROUPS",
        _ => "Raise the limits of processes and memory",
    };
    failed(Stage::Namespaces, format!("making new namespaces failed ({error})"), remedy)
}

/// What process 1 knows from its launcher.
struct Prepared<'a> {
    order: &'a Order,
    layers: &'a Layers,
    landlock: u32,
    limited_by: LimitedBy,
    filter: &'a BpfProgram,
    uid: Uid,
    gid: Gid,
}

impl Prepared<'_> {
    fn namespaces(&self) -> u64 {
        if self.order.profile.mode == Mode::Landlock {
            return 0;
        }
        let optional = [
            (Layer::PidNamespace, libc::CLONE_NEWPID),
            (Layer::NetworkNamespace, libc::CLONE_NEWNET),
            (Layer::IpcNamespace, libc::CLONE_NEWIPC),
            (Layer::UtsNamespace, libc::CLONE_NEWUTS),
            (Layer::CgroupNamespace, libc::CLONE_NEWCGROUP),
        ];
        let always = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
        let flags = optional.into_iter().filter(|(layer, _)| self.layers.has(*layer));
        flags.fold(always, |flags, (_, flag)| flags | flag) as u64
    }

    /// Process 1, from its first step to its last.
    fn first(&self, steps: &[Step], sources: Option<Sources>, reports: &File) -> Result<(), Failed> {
        const REMEDY: &str = "Run `tribune doctor --sandbox` to see what this machine lacks";
        let (profile, layers) = (&self.order.profile, self.layers);
        // Whoever kills the launcher kills this, and with it everything.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(
            Stage::Namespaces,
            "following the launcher",
            REMEDY,
        )?;
        init::check_launcher(reports)?;
        let mut masked = Masked::default();
        if profile.mode == Mode::Full {
            map(self.uid, self.gid)?;
            let sources = match sources {
                Some(sources) => sources,
                None => Sources::open(steps, None, layers)?,
            };
            let mut root = Root::attach(layers)?;
            root.build(steps, sources)?;
            if layers.has(Layer::WorkspaceMasks) {
                masked = masks::cover(&root, profile)?;
            }
            if layers.has(Layer::NestedNamespaces) {
                forbid_namespaces()?;
            }
            root.enter()?;
            if layers.has(Layer::UtsNamespace) {
                rustix::system::sethostname(b"sandbox").at(Stage::Namespaces, "naming the host", REMEDY)?;
            }
            if layers.has(Layer::NetworkNamespace) {
                sys::loopback_up().at(Stage::Namespaces, "turning the loopback on", REMEDY)?;
            }
        }
        let (relays, ports) = self.relays()?;
        if layers.has(Layer::Capabilities) {
            give_up_capabilities(profile.mode).at(Stage::Namespaces, "giving up capabilities", REMEDY)?;
        }
        if layers.has(Layer::NoNewPrivileges) {
            rustix::thread::set_no_new_privs(true).at(Stage::Seccomp, "forgoing new privileges", REMEDY)?;
        }
        let started = Started {
            uid: self.uid.as_raw(),
            gid: self.gid.as_raw(),
            limited_by: self.limited_by,
            landlock_abi: self.landlock,
            masked: masked.names,
            read_only: masked.read_only,
            emptied: masked.emptied,
        };
        let agent = Agent {
            profile,
            limited_by: self.limited_by,
            landlock: self.landlock,
            filter: self.filter,
            ports: &ports,
            layers,
        };
        let reports = reports.try_clone().at(Stage::Program, "reporting", REMEDY)?;
        init::run(&agent, relays, started, reports)
    }

    /// The relays, listening, and their ports.
    fn relays(&self) -> Result<(Relays, Vec<u16>), Failed> {
        let profile = &self.order.profile;
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
                Stage::Relays,
                format_args!("listening on port {number} for `{}`", relay.name),
                "Choose another port",
            )?;
            ports.push(port);
        }
        let numbers: io::Result<Vec<u16>> = ports.iter().map(Port::number).collect();
        let numbers = numbers.at(Stage::Relays, "reading the port of a relay", "Try again")?;
        Ok((Relays::new(ports), numbers))
    }
}

/// Lets nobody inside make a user namespace, in which it would have rights again.
fn forbid_namespaces() -> Result<(), Failed> {
    // The host's /proc, through which this namespace's own limits are seen.
    std::fs::write("/proc/sys/user/max_user_namespaces", "0").at(
        Stage::Namespaces,
        "forbidding further namespaces",
        "Mount /proc with a writable /proc/sys/user for Tribune",
    )
}

fn give_up_capabilities(mode: Mode) -> rustix::io::Result<()> {
    // Whoever has none cannot shrink the set of those it could get, and gets none without new privileges.
    let within_reach = match mode {
        Mode::Full => CapabilitySet::all(),
        Mode::Landlock => CapabilitySet::empty(),
    };
    for capability in within_reach.iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // One that this kernel does not know.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)
}
