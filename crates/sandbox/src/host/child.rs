//! The host's handle of a running sandbox.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use tribune_contract::{LauncherReport, ProgramExit, SignalRequest, StartReport};

use super::cgroup::Cgroups;
use super::streams::CallerPipes;
use crate::wire;

/// How long the launcher may take to kill a sandbox before it is killed itself.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A running sandbox. Dropping it kills everything inside.
#[derive(Debug)]
pub struct Child {
    process: LauncherProcess,
    control: UnixStream,
    pipes: CallerPipes,
    started: StartReport,
}

/// A launcher process, possibly before its launch. Dropping it kills and reaps it and removes its cgroups.
#[derive(Debug)]
pub(super) struct LauncherProcess {
    id: u32,
    pidfd: OwnedFd,
    is_reaped: bool,
    /// Last, so that they are removed when they are empty.
    _cgroups: Cgroups,
}

impl Child {
    /// The start report: user, limits and masks.
    #[must_use]
    pub const fn started(&self) -> &StartReport {
        &self.started
    }

    /// The process id of the launcher.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.process.id
    }

    pub const fn stdin(&mut self) -> Option<ChildStdin> {
        self.pipes.stdin.take()
    }

    pub const fn stdout(&mut self) -> Option<ChildStdout> {
        self.pipes.stdout.take()
    }

    pub const fn stderr(&mut self) -> Option<ChildStderr> {
        self.pipes.stderr.take()
    }

    /// Sends a signal to the program's process group. Fails if the sandbox has ended.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        wire::write(&mut self.control, &SignalRequest { signal: signal.as_raw() })
    }

    /// Kills everything inside. [`Self::wait`] returns when it is gone.
    pub fn kill(&mut self) {
        if self.signal(Signal::KILL).is_err() || !self.process.exits_within(KILL_TIMEOUT) {
            self.process.kill();
        }
    }

    /// Waits until everything inside has ended.
    pub fn wait(mut self) -> io::Result<ProgramExit> {
        let exit = match wire::read::<LauncherReport>(&mut self.control) {
            Ok(Some(LauncherReport::Ended(ended))) => ended.exit,
            // The launcher died without a report, and everything inside died with it.
            Ok(_) | Err(_) => ProgramExit::Killed,
        };
        self.process.reap()?;
        Ok(exit)
    }
}

/// Readable when the launcher has exited, which is when everything inside is gone.
impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.pidfd.as_fd()
    }
}

impl LauncherProcess {
    /// Receives the identity of the launcher that the fork server forked. It sends its id and pidfd first on `control`.
    pub(super) fn accept(control: &UnixStream, cgroups: Cgroups) -> io::Result<Self> {
        let mut id = [0; size_of::<u32>()];
        let (length, descriptors) = wire::receive_with(control, &mut id)?;
        match descriptors.into_iter().next() {
            Some(pidfd) if length == id.len() => {
                Ok(Self { id: u32::from_le_bytes(id), pidfd, is_reaped: false, _cgroups: cgroups })
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub(super) const fn into_child(
        self,
        control: UnixStream,
        pipes: CallerPipes,
        started: StartReport,
    ) -> Child {
        Child { process: self, control, pipes, started }
    }

    fn exits_within(&self, time: Duration) -> bool {
        let timeout = Timespec::try_from(time).ok();
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::event::poll(&mut polled, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    fn kill(&self) {
        // ESRCH: it has just exited.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    fn reap(&mut self) -> io::Result<()> {
        // It is a child of the fork server, whose children the kernel reaps.
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        loop {
            match rustix::event::poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => {}
                ended => break ended.map(drop)?,
            }
        }
        // If this process is the subreaper, it has inherited the children of the fork server.
        let _ = rustix::process::waitid(
            WaitId::PidFd(self.pidfd.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
        self.is_reaped = true;
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.process.is_reaped {
            self.kill();
        }
    }
}

impl Drop for LauncherProcess {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.kill();
            // It was killed, so this returns.
            let _ = self.reap();
        }
    }
}
