//! Prewarming: process 1 in its namespaces with the part of the root file system that every sandbox has, created before
//! a launch needs it.
//!
//! Nothing of it depends on a launch request. It is only valid for the state of the host at that time, and discarded if
//! that has changed when a launch comes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};
use tribune_contract::{LaunchFailure, LaunchStage, SandboxMode};

use super::failure::{AtStage as _, namespace_failure};
use super::identity::{self, TemporaryUser};
use super::init_channel::InitChannel;
use super::init_setup::InitSetup;
use super::mount_plan::MountStep;
use super::mount_sources::MountSources;
use super::setup::SharedSetup;
use super::supervise::InitProcess;
use super::{init, mount_plan};
use crate::isolation::{Isolation, IsolationSet};
use crate::sys::{self, CloneResult};
use crate::wire::LauncherSpec;

/// A process 1 that waits for its launch request.
#[derive(Debug)]
pub(super) struct PrewarmedInit {
    pub(super) init: InitProcess,
    pub(super) channel: InitChannel,
    /// Whether the launcher opens the mount sources and sends them, because it is root.
    pub(super) sends_mounts: bool,
    snapshot: HostSnapshot,
}

impl PrewarmedInit {
    pub(super) fn create(spec: LauncherSpec, setup: SharedSetup<'_>) -> Result<Self, LaunchFailure> {
        const FILE_LIMIT: &str = "Raise the limit of open files";
        let (LauncherSpec { mode, switch_to }, isolation) = (spec, setup.isolation);
        rustix::process::umask(FileMode::from_raw_mode(0o022));
        if isolation.has(Isolation::Keyring) {
            identity::join_new_keyring()?;
        }
        // Before anything else is read from the host.
        let snapshot = HostSnapshot::take().at(LaunchStage::Mounts, "reading the mounts", "Mount /proc")?;
        let steps = match mode {
            SandboxMode::Full => mount_plan::base_steps(),
            SandboxMode::Landlock => Vec::new(),
        };
        // Root without mount rights, as in many containers, is treated like an ordinary user.
        let mapped_to = switch_to.filter(|_| mode == SandboxMode::Full && is_root_with_mount_rights());
        let sources = match mapped_to {
            Some(user) => Some(MountSources::open(&steps, Some(user), isolation)?),
            None => None,
        };
        if mode == SandboxMode::Landlock {
            let own = rustix::process::getpid();
            rustix::process::set_child_subreaper(Some(own)).at(
                LaunchStage::Program,
                "becoming the subreaper",
                "Use Linux 3.4 or later",
            )?;
        }
        let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (report, reports) = pipe.at(LaunchStage::Namespaces, "creating a pipe", FILE_LIMIT)?;
        let (channel, peer) =
            UnixStream::pair().at(LaunchStage::Namespaces, "creating a socket", FILE_LIMIT)?;
        let host_ids = identity::host_ids(switch_to);
        // Namespaces belong to the user that creates them, which must not be root. The launcher stays root while it has
        // to open what only root can.
        let temporary_user = match mode {
            SandboxMode::Full => TemporaryUser::switch_to(switch_to)?,
            SandboxMode::Landlock => None,
        };
        let cloned = match sys::clone_process(namespaces(mode, isolation)) {
            Err(error) => {
                temporary_user.map_or(Ok(()), TemporaryUser::restore)?;
                return Err(namespace_failure(&error));
            }
            Ok(cloned) => cloned,
        };
        match cloned {
            CloneResult::Child => {
                let reports = File::from(reports);
                let init = InitSetup { setup, mode, switch_to, host_ids, reports: &reports };
                run_init(&init, &steps, sources, peer)
            }
            CloneResult::Parent { child, pidfd } => {
                let leaves_orphans = mode == SandboxMode::Landlock;
                let init = InitProcess::new(child, pidfd, report.into(), leaves_orphans);
                let sends_mounts = mapped_to.is_some();
                let prewarmed = Self { init, channel: channel.into(), sends_mounts, snapshot };
                temporary_user.map_or(Ok(()), TemporaryUser::restore)?;
                Ok(prewarmed)
            }
        }
    }

    /// Returns whether it is still alive and the host is as it was at its creation.
    pub(super) fn is_still_valid(&self) -> bool {
        self.init.is_silent() && self.snapshot.is_current()
    }

    /// A descriptor that has priority data when something was mounted or unmounted since.
    pub(super) fn mount_watch_fd(&self) -> BorrowedFd<'_> {
        self.snapshot.mounts.as_fd()
    }
}

/// Runs process 1, in the clone. Only its own descriptors stay open.
fn run_init(
    init: &InitSetup<'_>,
    steps: &[MountStep],
    sources: Option<MountSources>,
    channel: UnixStream,
) -> ! {
    let held = sources.iter().flat_map(MountSources::mounts).map(|mount| mount.as_raw_fd());
    let mut kept: Vec<_> = held.chain([init.reports.as_raw_fd(), channel.as_raw_fd()]).collect();
    let closed = match init.setup.isolation.has(Isolation::Descriptors) {
        true => sys::close_fds_except(&mut kept),
        false => Ok(()),
    };
    let closed = closed.at(
        LaunchStage::Namespaces,
        "closing the descriptors of the launcher",
        "Use Linux 5.12 or later",
    );
    if let Err(failure) = closed.and_then(|()| init.run(steps, sources, channel.into())) {
        init::report_failure(init.reports, failure);
    }
    sys::exit_now(0);
}

fn is_root_with_mount_rights() -> bool {
    let may_mount = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::SYS_ADMIN);
    rustix::process::geteuid().is_root() && rustix::thread::capabilities(None).is_ok_and(may_mount)
}

/// The clone flags for the namespaces of process 1. The cgroup namespace is created after it has joined its cgroups.
fn namespaces(mode: SandboxMode, isolation: &IsolationSet) -> u64 {
    if mode == SandboxMode::Landlock {
        return 0;
    }
    let optional = [
        (Isolation::PidNamespace, libc::CLONE_NEWPID),
        (Isolation::NetworkNamespace, libc::CLONE_NEWNET),
        (Isolation::IpcNamespace, libc::CLONE_NEWIPC),
        (Isolation::UtsNamespace, libc::CLONE_NEWUTS),
    ];
    let always = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    let flags = optional.into_iter().filter(|(mechanism, _)| isolation.has(*mechanism));
    flags.fold(always, |flags, (_, flag)| flags | flag) as u64
}

/// The state of the host that a prewarmed process 1 depends on: its mounts, and the entries of its root and `/etc`.
#[derive(Debug)]
struct HostSnapshot {
    /// The kernel marks this file when something is mounted or unmounted.
    mounts: OwnedFd,
    ctimes: [ChangeTime; 2],
}

/// The change time of a folder, in seconds and nanoseconds.
type ChangeTime = (i64, i64);

impl HostSnapshot {
    fn take() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mounts = rustix::fs::open("/proc/self/mounts", flags, FileMode::empty())?;
        Ok(Self { mounts, ctimes: root_ctimes()? })
    }

    fn is_current(&self) -> bool {
        let mut polled = [PollFd::new(&self.mounts, PollFlags::PRI)];
        let is_as_mounted = rustix::event::poll(&mut polled, Some(&Timespec::default())) == Ok(0);
        is_as_mounted && root_ctimes().is_ok_and(|ctimes| ctimes == self.ctimes)
    }
}

/// The change times of `/` and `/etc`, which change with every entry added, removed or replaced. Unlike modification
/// times, no program can set them.
fn root_ctimes() -> io::Result<[ChangeTime; 2]> {
    let of = |folder: &str| std::fs::metadata(folder).map(|folder| (folder.ctime(), folder.ctime_nsec()));
    Ok([of("/")?, of("/etc")?])
}
