//! Process 1 of a sandbox: starts the program, reaps processes, forwards signals and serves the relays.
//!
//! It has no rights that the program lacks, it is not dumpable, and Landlock scopes keep the program from signalling
//! it. When the program exits, process 1 exits too, and the kernel kills the rest of the pid namespace.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus};
use tribune_contract::{ExitReport, LaunchFailure, LaunchStage, LauncherReport, ProgramExit, StartReport};

use super::exec_program::ExecPlan;
use super::failure::{AtStage as _, failed};
use super::relay::Relays;
use crate::isolation::Isolation;
use crate::sys;
use crate::wire;

/// Signals that are forwarded to the program.
const FORWARDED_SIGNALS: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCONT,
    libc::SIGWINCH,
];

const REMEDY: &str = "Try again; if it stays, restart the daemon";

/// Starts the program and supervises it until it exits.
pub(super) fn run(
    plan: &ExecPlan<'_>,
    relays: Relays,
    started: StartReport,
    mut report: File,
) -> Result<(), LaunchFailure> {
    if plan.isolation.has(Isolation::NonDumpable) {
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).at(
            LaunchStage::Program,
            "making process 1 non-dumpable",
            REMEDY,
        )?;
    }
    let mut signals = FORWARDED_SIGNALS.to_vec();
    signals.push(libc::SIGCHLD);
    let signals = sys::create_signalfd(&signals).at(LaunchStage::Program, "creating a signalfd", REMEDY)?;
    let program = start(plan)?;
    detach_streams().at(LaunchStage::Program, "detaching from the program's streams", REMEDY)?;
    wire::write(&mut report, &LauncherReport::Started(started)).at(
        LaunchStage::Program,
        "reporting",
        REMEDY,
    )?;
    let exit = supervise_program(program, relays, &signals).at(LaunchStage::Program, "waiting", REMEDY)?;
    wire::write(&mut report, &LauncherReport::Ended(ExitReport { exit })).at(
        LaunchStage::Program,
        "reporting",
        REMEDY,
    )
}

/// Starts the program. `Ok` means that exec has succeeded.
fn start(plan: &ExecPlan<'_>) -> Result<Pid, LaunchFailure> {
    let mut failure = None;
    let child = sys::clone_vfork(|| failure = Some(plan.exec())).at(
        LaunchStage::Program,
        "starting a process",
        "Raise the limit of processes",
    )?;
    failure.map_or(Ok(child), Err)
}

/// Replaces this process's standard streams with `/dev/null`, so that readers of the program's streams see their end
/// when the program closes them.
pub(super) fn detach_streams() -> rustix::io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)
}

fn supervise_program(program: Pid, mut relays: Relays, signals: &OwnedFd) -> std::io::Result<ProgramExit> {
    loop {
        // Also before the first wait: the program may have exited already.
        while let Some((pid, status)) = reap_one()? {
            if pid == program {
                return Ok(exit_of(status));
            }
        }
        relays.wait(&[signals.as_fd()])?;
        while let Some(signal) = sys::next_signal(signals.as_fd()) {
            if signal != libc::SIGCHLD
                && let Some(signal) = Signal::from_named_raw(signal)
            {
                // The program leads a session and so a process group with its own id. ESRCH: it has just exited.
                let _ = rustix::process::kill_process_group(program, signal);
            }
        }
    }
}

fn reap_one() -> std::io::Result<Option<(Pid, WaitStatus)>> {
    match rustix::process::wait(WaitOptions::NOHANG) {
        Ok(reaped) => Ok(reaped),
        Err(rustix::io::Errno::CHILD) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Converts a wait status.
pub(super) fn exit_of(status: WaitStatus) -> ProgramExit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ProgramExit::Code { code },
        (None, Some(signal)) => ProgramExit::Signal { signal },
        (None, None) => ProgramExit::Killed,
    }
}

/// Reports that process 1 could not start the program.
pub(super) fn report_failure(mut report: &File, failure: LaunchFailure) {
    // Without a launcher there is no reader.
    let _ = wire::write(&mut report, &LauncherReport::Failed(failure));
}

/// Checks that the launcher was still alive when the parent death signal was set. Nothing else reads the reports.
pub(super) fn check_launcher(reports: &File) -> Result<(), LaunchFailure> {
    let mut polled = [PollFd::new(reports, PollFlags::empty())];
    let is_gone = rustix::event::poll(&mut polled, Some(&Timespec::default()))
        .is_ok_and(|_| polled[0].revents().contains(PollFlags::ERR));
    if is_gone {
        return Err(failed(LaunchStage::Namespaces, "the launcher has exited", "Try again"));
    }
    Ok(())
}
