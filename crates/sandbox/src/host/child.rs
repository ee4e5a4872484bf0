//! A sandbox that runs, as the host holds it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Signal, WaitId, WaitIdOptions};
use tribune_contract::{Exit, LauncherReport, SignalRequest, Started};

use super::cgroup::Cgroups;
use super::streams::CallerPipes;
use crate::wire;

/// How long the launcher may take to end a sandbox before it is ended itself.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A running sandbox. Dropping it ends everything in it.
#[derive(Debug)]
pub struct Child {
    process: LauncherProcess,
    control: UnixStream,
    pipes: CallerPipes,
    started: Started,
}

/// A launcher, perhaps before it has launched. It is killed and buried when this is dropped, and its cgroups removed.
#[derive(Debug)]
pub(super) struct LauncherProcess {
    id: u32,
    pidfd: OwnedFd,
    is_reaped: bool,
    /// Last, so that they are removed when nothing is in them.
    _cgroups: Cgroups,
}

impl Child {
    /// Who runs it, and what holds its limits.
    #[must_use]
    pub const fn started(&self) -> &Started {
        &self.started
    }

    /// The process id of its launcher.
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

    /// Sends a signal to the program's process group. One that ended takes none.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        wire::write(&mut self.control, &SignalRequest { signal: signal.as_raw() })
    }

    /// CallerPipes everything in it, now. [`Self::wait`] returns when it is gone.
    pub fn kill(&mut self) {
        if self.signal(Signal::KILL).is_err() || !self.process.exits_within(KILL_TIMEOUT) {
            self.process.kill();
        }
    }

    /// Waits for the end of everything in it.
    pub fn wait(mut self) -> io::Result<Exit> {
        let exit = match wire::read::<LauncherReport>(&mut self.control) {
            Ok(Some(LauncherReport::Ended(ended))) => ended.exit,
            // The launcher is gone without a word, and so is all that it launched.
            Ok(_) | Err(_) => Exit::Killed,
        };
        self.process.reap()?;
        Ok(exit)
    }
}

/// Readable when everything in it is gone, or its launcher is.
impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.pidfd.as_fd()
    }
}

impl LauncherProcess {
    /// The launcher that the fork_server forked, which presents itself over `control`.
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

    pub(super) const fn into_child(self, control: UnixStream, pipes: CallerPipes, started: Started) -> Child {
        Child { process: self, control, pipes, started }
    }

    fn exits_within(&self, time: Duration) -> bool {
        let timeout = Timespec::try_from(time).ok();
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::event::poll(&mut polled, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    fn kill(&self) {
        // One that just ended needs no signal.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    fn reap(&mut self) -> io::Result<()> {
        // It is the fork_server's child, whose children the kernel buries.
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        loop {
            match rustix::event::poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => {}
                ended => break ended.map(drop)?,
            }
        }
        // Where this process is the one that orphans are given to, it is the fork_server's heir.
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
            // Killed, so this ends.
            let _ = self.reap();
        }
    }
}
