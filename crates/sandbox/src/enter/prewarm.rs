//! What a launcher does before it is needed: process 1 in its namespaces, with the part of its root that every sandbox has.
//!
//! Nothing of that depends on an order. It is true of one moment of this machine, and thrown away if that has changed when
//! somebody comes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};
use tribune_contract::{Failed, LaunchStage, Mode};

use super::SharedSetup;
use super::failure::{AtStage as _, failed};
use super::identity::{self, TemporaryUser};
use super::init_channel::InitChannel;
use super::init_setup::InitSetup;
use super::mount_sources::MountSources;
use super::supervise::InitProcess;
use super::{init, mount_plan};
use crate::isolation::{Isolation, IsolationSet};
use crate::sys::{self, CloneResult};
use crate::wire::LauncherSpec;

/// A process 1 that waits for its order.
#[derive(Debug)]
pub(super) struct PrewarmedInit {
    pub(super) init: InitProcess,
    pub(super) channel: InitChannel,
    /// Whether the launcher takes hold of what is mounted, because it is root.
    pub(super) sends_mounts: bool,
    snapshot: HostSnapshot,
}

impl PrewarmedInit {
    pub(super) fn create(spec: LauncherSpec, setup: SharedSetup<'_>) -> Result<Self, Failed> {
        let (LauncherSpec { mode, becomes: user }, isolation) = (spec, setup.isolation);
        rustix::process::umask(FileMode::from_raw_mode(0o022));
        if isolation.has(Isolation::Keyring) {
            identity::join_new_keyring()?;
        }
        // Before anything is looked at.
        let snapshot =
            HostSnapshot::take().at(LaunchStage::Mounts, "reading what is mounted", "Mount /proc")?;
        let steps = match mode {
            Mode::Full => mount_plan::base_steps(),
            Mode::Landlock => Vec::new(),
        };
        // RootFs that may not mount, as in many containers, goes the way of an ordinary user.
        let root = user.filter(|_| mode == Mode::Full && is_root_with_mount_rights());
        let sources = match root {
            Some(user) => Some(MountSources::open(&steps, Some(user), isolation)?),
            None => None,
        };
        if mode == Mode::Landlock {
            let own = rustix::process::getpid();
            rustix::process::set_child_subreaper(Some(own)).at(
                LaunchStage::Program,
                "becoming the reaper",
                "Use Linux 3.4 or later",
            )?;
        }
        let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (report, reports) =
            pipe.at(LaunchStage::Namespaces, "making a pipe", "Raise the limit of open files")?;
        let (channel, peer) = UnixStream::pair().at(
            LaunchStage::Namespaces,
            "making a socket",
            "Raise the limit of open files",
        )?;
        let (uid, gid) = identity::host_ids(user);
        // Namespaces belong to whoever makes them, and that shall not be root. This process stays root for as long as it has to
        // open what only root may.
        let temporary_user = match mode {
            Mode::Full => TemporaryUser::switch_to(user)?,
            Mode::Landlock => None,
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
                let held = sources.iter().flat_map(MountSources::mounts).map(|mount| mount.as_raw_fd());
                let mut kept: Vec<_> = held.chain([reports.as_raw_fd(), peer.as_raw_fd()]).collect();
                let mut reports = File::from(reports);
                let is_alone = match isolation.has(Isolation::Descriptors) {
                    true => sys::close_fds_except(&mut kept),
                    false => Ok(()),
                };
                let is_alone = is_alone.at(
                    LaunchStage::Namespaces,
                    "closing what is the launcher's",
                    "Use Linux 5.12 or later",
                );
                let process = InitSetup { setup, mode, user, uid, gid, reports: &reports };
                let ran = is_alone.and_then(|()| process.run(&steps, sources, peer.into()));
                if let Err(failure) = ran {
                    init::report_failure(&mut reports, failure);
                }
                sys::exit_now(0);
            }
            CloneResult::Parent { child, pidfd } => {
                let leaves_orphans = mode == Mode::Landlock;
                let init = InitProcess::new(child, pidfd, report.into(), leaves_orphans);
                let ahead = Self { init, channel: channel.into(), sends_mounts: root.is_some(), snapshot };
                temporary_user.map_or(Ok(()), TemporaryUser::restore)?;
                Ok(ahead)
            }
        }
    }

    /// Whether it still waits, and this machine is as it was when it was made.
    pub(super) fn is_still_valid(&self) -> bool {
        self.init.is_silent() && self.snapshot.is_current()
    }

    /// Readable, as what is urgent, when something was mounted or unmounted since.
    pub(super) fn mount_watch_fd(&self) -> BorrowedFd<'_> {
        self.snapshot.mounts.as_fd()
    }
}

fn is_root_with_mount_rights() -> bool {
    let may_mount = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::SYS_ADMIN);
    rustix::process::geteuid().is_root() && rustix::thread::capabilities(None).is_ok_and(may_mount)
}

/// The namespaces of process 1. That of cgroups comes when it is in its own.
fn namespaces(mode: Mode, isolation: &IsolationSet) -> u64 {
    if mode == Mode::Landlock {
        return 0;
    }
    let optional = [
        (Isolation::PidNamespace, libc::CLONE_NEWPID),
        (Isolation::NetworkNamespace, libc::CLONE_NEWNET),
        (Isolation::IpcNamespace, libc::CLONE_NEWIPC),
        (Isolation::UtsNamespace, libc::CLONE_NEWUTS),
    ];
    let always = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    let flags = optional.into_iter().filter(|(layer, _)| isolation.has(*layer));
    flags.fold(always, |flags, (_, flag)| flags | flag) as u64
}

/// Why there are no namespaces.
pub(super) fn namespace_failure(error: &io::Error) -> Failed {
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
    failed(LaunchStage::Namespaces, format!("making new namespaces failed ({error})"), remedy)
}

/// What this machine was like: what was mounted, and which names its root and `/etc` had.
#[derive(Debug)]
struct HostSnapshot {
    /// The kernel marks it when something is mounted or unmounted.
    mounts: OwnedFd,
    ctimes: [(i64, i64); 2],
}

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

/// When names came or went: a file that took another's place there is another file.
fn root_ctimes() -> io::Result<[(i64, i64); 2]> {
    // The time that nobody can set.
    let of = |folder: &str| std::fs::metadata(folder).map(|folder| (folder.ctime(), folder.ctime_nsec()));
    Ok([of("/")?, of("/etc")?])
}
