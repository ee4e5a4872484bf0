//! Starts commands without a sandbox, with every right of the daemon's user. For hosts that are sandboxes themselves; the
//! configuration has to enable it.
//!
//! A command is a process group. The whole group is killed when its first process exits, when its time limit passes, or
//! when the caller stops waiting. A process that leaves the group on purpose (`setsid`) is not caught: that takes a sandbox.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::unix::AsyncFd;
use tokio::process::Command;
use tribune_records::ledger_payloads::SandboxRecord;
use tribune_sandbox::unsandboxed;

use super::launch::{
    Captured, Ended, Exited, FileView, Launch, LaunchError, Launcher, OutputPipe, Over, capture, watched,
};

/// How long the kernel may take to reap a killed process.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts commands without a sandbox.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnsandboxedLauncher;

#[async_trait]
impl Launcher for UnsandboxedLauncher {
    fn view(&self) -> FileView {
        FileView::Host
    }

    async fn launch(&self, launch: Launch) -> Result<Exited, LaunchError> {
        let limits = launch.limits;
        let (mut stdout, mut stderr) =
            (Captured::new(limits.output_bytes), Captured::new(limits.output_bytes));
        let mut child = Command::from(unsandboxed::in_own_group("/bin/sh"))
            .kill_on_drop(true)
            .arg("-c")
            .arg(&launch.command)
            .envs(launch.env)
            // Through the descriptor, which the child still has when it changes its folder.
            .current_dir(format!("/proc/self/fd/{}", launch.cwd.folder.as_raw_fd()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(LaunchError::Failed)?;
        // INVARIANT: dropped before `child`, whose id is the group's for as long as `child` is not waited for.
        let group = Group::of(child.id()).map_err(LaunchError::Failed)?;
        let stdout_pipe = OutputPipe { from: child.stdout.take(), captured: &mut stdout };
        let stderr_pipe = OutputPipe { from: child.stderr.take(), captured: &mut stderr };

        if let Some(terminal) = &launch.terminal {
            terminal.mark_started();
        }
        let (wall, terminal) = (limits.wall, launch.terminal.as_ref());
        let over = capture(stdout_pipe, stderr_pipe, group.exited(), wall, terminal, |_| group.end()).await;
        let waited = tokio::time::timeout(REAP_TIMEOUT, child.wait()).await;
        let ended = match (over, waited) {
            (Over::OutOfTime, _) | (_, Err(_)) => Ended::OutOfTime,
            (Over::Unwanted, _) => Ended::Unwanted,
            (Over::TooMuch(why), _) => Ended::OverQuota(why),
            (Over::ByItself, Ok(status)) => ended(status.map_err(LaunchError::Failed)?),
        };
        let wall_ms = u64::try_from(limits.wall.as_millis()).unwrap_or(u64::MAX);
        let sandbox = SandboxRecord {
            mode: "off".to_owned(),
            limited_by: None,
            limits: [("wallMs".to_owned(), wall_ms)].into(),
            masked: 0,
        };
        let (read_only, emptied, quarantined) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Exited { ended, stdout, stderr, sandbox, read_only, emptied, quarantined })
    }
}

/// The process group of one command.
#[derive(Debug)]
struct Group {
    leader: Pid,
    exit: AsyncFd<OwnedFd>,
    is_over: AtomicBool,
}

impl Group {
    fn of(leader: Option<u32>) -> io::Result<Self> {
        let leader = leader.and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let opened = rustix::process::pidfd_open(leader, PidfdFlags::NONBLOCK)
            .map_err(io::Error::from)
            .and_then(watched);
        match opened {
            Ok(exit) => Ok(Self { leader, exit, is_over: AtomicBool::new(false) }),
            Err(error) => {
                let _ = rustix::process::kill_process_group(leader, Signal::KILL);
                Err(error)
            }
        }
    }

    /// Completes when the leader exits. Does not reap it.
    async fn exited(&self) -> Over {
        // An error of the wait is a reason to stop as well.
        let _ = self.exit.readable().await;
        Over::ByItself
    }

    fn end(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            // The id is still the group's, because the leader was not reaped. For a group that is gone this does nothing.
            let _ = rustix::process::kill_process_group(self.leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

fn ended(status: ExitStatus) -> Ended {
    status.code().map_or_else(|| Ended::Signal(status.signal().unwrap_or_default()), Ended::Code)
}
