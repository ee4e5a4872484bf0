//! The launcher after the launch: it tells the host what happens, and ends everything when the host is gone, asks for it, or
//! the time is over.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, WaitOptions};
use tribune_contract::{ExitReport, Exit, Failed, LauncherReport, SignalRequest, LaunchStage};

use super::failure::failed;
use crate::wire;

/// Process 1, as its launcher sees it.
#[derive(Debug)]
pub(super) struct First {
    pid: Pid,
    pidfd: OwnedFd,
    /// What it says.
    report: File,
    /// Whether what it leaves behind is this process's to end, because no pid namespace ends it.
    leaves_orphans: bool,
    is_buried: Cell<bool>,
}

/// Stays until everything in the sandbox is gone.
pub(super) fn supervise(
    mut first: First,
    control: &mut UnixStream,
    wall: Option<Duration>,
) -> io::Result<()> {
    let deadline = wall.map(|wall| Instant::now() + wall);
    let mut ended_by = None;
    let mut has_started = false;
    let mut last = None;
    loop {
        let ready = wait(&first, control, deadline.filter(|_| ended_by.is_none()))?;
        if ready.is_late && ended_by.is_none() {
            ended_by = Some(Exit::OutOfTime);
            first.kill();
        }
        if ready.host {
            match wire::read::<SignalRequest>(control) {
                Ok(Some(SignalRequest { signal })) if signal != libc::SIGKILL => {
                    if let Some(signal) = Signal::from_named_raw(signal) {
                        // One that just ended needs no signal.
                        let _ = rustix::process::pidfd_send_signal(&first.pidfd, signal);
                    }
                }
                // It asks for the end, is gone, or makes no sense.
                Ok(_) | Err(_) if ended_by.is_none() => {
                    ended_by = Some(Exit::Killed);
                    first.kill();
                }
                Ok(_) | Err(_) => {}
            }
        }
        // Read to its end before the burial, so that nothing said is lost.
        let mut is_silent = false;
        if ready.report {
            match wire::read::<LauncherReport>(&mut first.report) {
                Ok(Some(LauncherReport::Started(started))) => {
                    has_started = true;
                    wire::write(control, &LauncherReport::Started(started))?;
                }
                Ok(Some(report)) => last = Some(report),
                Ok(None) | Err(_) => is_silent = true,
            }
        }
        if is_silent {
            let status = first.bury()?;
            let report = match (ended_by, last) {
                (Some(exit), _) if has_started => LauncherReport::Ended(ExitReport { exit }),
                (None, Some(report)) => report,
                _ => LauncherReport::Failed(died(status)),
            };
            return wire::write(control, &report);
        }
    }
}

/// One that nobody needs ends together with whoever holds it.
impl Drop for First {
    fn drop(&mut self) {
        if !self.is_buried.get() {
            self.kill();
            // Killed, so this ends.
            let _ = self.bury();
        }
    }
}

impl First {
    pub(super) fn new(pid: Pid, pidfd: OwnedFd, report: File, leaves_orphans: bool) -> Self {
        Self { pid, pidfd, report, leaves_orphans, is_buried: Cell::new(false) }
    }

    /// Whether it is there and has said nothing, not even why it gave up.
    pub(super) fn is_silent(&self) -> bool {
        let mut polled = [PollFd::new(&self.report, PollFlags::IN), PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&Timespec::default())) == Ok(0)
    }

    fn kill(&self) {
        // One that just ended needs no signal.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits for the end of process 1, and with it of everything in its pid namespace.
    fn bury(&self) -> io::Result<Exit> {
        let buried = rustix::process::waitpid(Some(self.pid), WaitOptions::empty())?;
        self.is_buried.set(true);
        if self.leaves_orphans {
            end_orphans();
        }
        Ok(buried.map_or(Exit::Killed, |(_, status)| super::init::exit(status)))
    }
}

/// How often the list of children is read again, in case one of them had a child in the meantime.
const ORPHAN_ROUNDS: usize = 10_000;

/// Ends every process that has become a child of this one, which is the reaper of all that it started.
fn end_orphans() {
    for _ in 0..ORPHAN_ROUNDS {
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        for child in children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _ = rustix::process::kill_process(child, Signal::KILL);
        }
        if !matches!(rustix::process::wait(WaitOptions::empty()), Ok(Some(_))) {
            return;
        }
    }
}

struct Ready {
    host: bool,
    report: bool,
    is_late: bool,
}

fn wait(first: &First, control: &UnixStream, deadline: Option<Instant>) -> io::Result<Ready> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let mut polled = [
        PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(first.report.as_fd(), PollFlags::IN),
    ];
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Ready {
        host: !polled[0].revents().is_empty(),
        report: !polled[1].revents().is_empty(),
        is_late: left.is_some() && deadline.is_some_and(|deadline| Instant::now() >= deadline),
    })
}

fn died(status: Exit) -> Failed {
    let how = match status {
        Exit::Code { code } => format!("with code {code}"),
        Exit::Signal { signal } => format!("by signal {signal}"),
        Exit::OutOfTime | Exit::Killed => "when it was killed".to_owned(),
    };
    failed(
        LaunchStage::Program,
        format!("process 1 of the sandbox ended {how} before the program ran"),
        "Give it more memory and processes; if it stays, restart the daemon",
    )
}
