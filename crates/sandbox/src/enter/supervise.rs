//! The launcher after the launch: forwards reports and signals, and kills the sandbox when the host asks for it, is
//! gone, or the wall-clock limit is reached.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions};
use tribune_contract::{ExitReport, LaunchFailure, LaunchStage, LauncherReport, ProgramExit, SignalRequest};

use super::failure::failed;
use crate::wire;

/// The launcher's handle of process 1.
#[derive(Debug)]
pub(super) struct InitProcess {
    pid: Pid,
    pidfd: OwnedFd,
    /// Its reports.
    report: File,
    /// Whether this process must kill its orphans, because there is no pid namespace to do so.
    leaves_orphans: bool,
    is_reaped: Cell<bool>,
}

/// Runs until everything in the sandbox is gone.
pub(super) fn supervise(
    mut init: InitProcess,
    control: &mut UnixStream,
    wall: Option<Duration>,
) -> io::Result<()> {
    let deadline = wall.map(|wall| Instant::now() + wall);
    let mut forced_exit = None;
    let mut has_started = false;
    let mut last = None;
    loop {
        let ready = wait_for_events(&init, control, deadline.filter(|_| forced_exit.is_none()))?;
        if ready.is_late && forced_exit.is_none() {
            forced_exit = Some(ProgramExit::OutOfTime);
            init.kill();
        }
        if ready.host {
            match wire::read::<SignalRequest>(control) {
                Ok(Some(SignalRequest { signal })) if signal != libc::SIGKILL => {
                    if let Some(signal) = Signal::from_named_raw(signal) {
                        // ESRCH: it has just exited.
                        let _ = rustix::process::pidfd_send_signal(&init.pidfd, signal);
                    }
                }
                // The host asks for the end, is gone, or sent an invalid message.
                Ok(_) | Err(_) if forced_exit.is_none() => {
                    forced_exit = Some(ProgramExit::Killed);
                    init.kill();
                }
                Ok(_) | Err(_) => {}
            }
        }
        // Read to the end before reaping, so that no report is lost.
        let mut is_silent = false;
        if ready.report {
            match wire::read::<LauncherReport>(&mut init.report) {
                Ok(Some(LauncherReport::Started(started))) => {
                    has_started = true;
                    wire::write(control, &LauncherReport::Started(started))?;
                }
                Ok(Some(report)) => last = Some(report),
                Ok(None) | Err(_) => is_silent = true,
            }
        }
        if is_silent {
            let status = init.reap()?;
            let report = match (forced_exit, last) {
                (Some(exit), _) if has_started => LauncherReport::Ended(ExitReport { exit }),
                (None, Some(report)) => report,
                _ => LauncherReport::Failed(init_died(status)),
            };
            return wire::write(control, &report);
        }
    }
}

/// Dropping the handle kills process 1.
impl Drop for InitProcess {
    fn drop(&mut self) {
        if !self.is_reaped.get() {
            self.kill();
            // It was killed, so this returns.
            let _ = self.reap();
        }
    }
}

impl InitProcess {
    pub(super) fn new(pid: Pid, pidfd: OwnedFd, report: File, leaves_orphans: bool) -> Self {
        Self { pid, pidfd, report, leaves_orphans, is_reaped: Cell::new(false) }
    }

    /// Returns whether it is alive and has not reported a failure.
    pub(super) fn is_silent(&self) -> bool {
        let mut polled = [PollFd::new(&self.report, PollFlags::IN), PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec::default())) == Ok(0)
    }

    fn kill(&self) {
        // ESRCH: it has just exited.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits until process 1, and with it everything in its pid namespace, has ended.
    fn reap(&self) -> io::Result<ProgramExit> {
        let buried = rustix::process::waitpid(Some(self.pid), WaitOptions::empty())?;
        self.is_reaped.set(true);
        if self.leaves_orphans {
            kill_orphans();
        }
        Ok(buried.map_or(ProgramExit::Killed, |(_, status)| super::init::exit_of(status)))
    }
}

/// How often the list of children is read again, because a child may have forked meanwhile.
const MAX_ORPHAN_ROUNDS: usize = 10_000;

/// Kills every process that became a child of this one, which is the subreaper.
fn kill_orphans() {
    for _ in 0..MAX_ORPHAN_ROUNDS {
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _ = rustix::process::kill_process(child, Signal::KILL);
        }
        if !matches!(rustix::process::wait(WaitOptions::empty()), Ok(Some(_))) {
            return;
        }
    }
}

struct ReadyEvents {
    host: bool,
    report: bool,
    is_late: bool,
}

fn wait_for_events(
    init: &InitProcess,
    control: &UnixStream,
    deadline: Option<Instant>,
) -> io::Result<ReadyEvents> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let mut polled = [
        PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(init.report.as_fd(), PollFlags::IN),
    ];
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(ReadyEvents {
        host: !polled[0].revents().is_empty(),
        report: !polled[1].revents().is_empty(),
        is_late: left.is_some() && deadline.is_some_and(|deadline| Instant::now() >= deadline),
    })
}

fn init_died(status: ProgramExit) -> LaunchFailure {
    let how = match status {
        ProgramExit::Code { code } => format!("with code {code}"),
        ProgramExit::Signal { signal } => format!("by signal {signal}"),
        ProgramExit::OutOfTime | ProgramExit::Killed => "when it was killed".to_owned(),
    };
    failed(
        LaunchStage::Program,
        format!("process 1 of the sandbox ended {how} before the program ran"),
        "Give it more memory and processes; if it stays, restart the daemon",
    )
}
