//! The last steps before the program: restrictions that it cannot undo, then exec.

use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::Signal;
use seccompiler::BpfProgram;
use tribune_contract::{LaunchFailure, LaunchProfile, LaunchStage, LimitedBy};

use super::failure::{AtStage as _, failed};
use super::{landlock, limits, seccomp};
use crate::isolation::{Isolation, IsolationSet};
use crate::sys;

/// What the program is executed with.
#[derive(Debug)]
pub(super) struct ExecPlan<'a> {
    pub(super) profile: &'a LaunchProfile,
    pub(super) limited_by: LimitedBy,
    pub(super) landlock: u32,
    pub(super) filter: &'a BpfProgram,
    pub(super) isolation: &'a IsolationSet,
}

impl ExecPlan<'_> {
    /// Executes the program. Returns only with the reason of a failure.
    pub(super) fn exec(&self) -> LaunchFailure {
        match self.confine_and_exec() {
            Ok(never) => match never {},
            Err(failed) => failed,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "executes the program inside the sandbox")]
    fn confine_and_exec(&self) -> Result<Infallible, LaunchFailure> {
        const REMEDY: &str = "Run `tribune doctor --sandbox` to see what this machine lacks";
        let (profile, isolation) = (self.profile, self.isolation);
        // Without a pid namespace this ends at least the program together with process 1.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(
            LaunchStage::Program,
            "setting the parent death signal",
            REMEDY,
        )?;
        // A new session, so there is no controlling terminal to write to.
        rustix::process::setsid().at(LaunchStage::Program, "creating a session", REMEDY)?;
        // Unless stdin is a terminal made for it. The kernel does not take a terminal from another session.
        let _ = rustix::process::ioctl_tiocsctty(std::io::stdin());
        sys::unblock_signals().at(LaunchStage::Program, "unblocking signals", REMEDY)?;
        // The daemon disables transparent huge pages for itself; compilers are faster with them.
        let _ = rustix::thread::disable_transparent_huge_pages(false);
        if isolation.has(Isolation::Rlimits) {
            limits::set_rlimits(&profile.limits, self.limited_by)?;
        }
        rustix::process::chdir(&profile.cwd).at(
            LaunchStage::Program,
            format_args!("changing to the folder `{}`", profile.cwd.display()),
            "Choose a working folder that exists inside",
        )?;
        if isolation.has(Isolation::Descriptors) {
            sys::set_cloexec_from(3).at(LaunchStage::Program, "closing descriptors", REMEDY)?;
        }
        if isolation.has(Isolation::Landlock) {
            landlock::restrict(profile, self.limited_by, self.landlock)?;
        }
        if isolation.has(Isolation::Seccomp) {
            seccomp::install(self.filter)?;
        }
        let mut command = Command::new(&profile.program);
        command.args(&profile.args);
        if isolation.has(Isolation::Environment) {
            command.env_clear();
        }
        command.envs(&profile.env);
        let error = command.exec();
        Err(failed(
            LaunchStage::Program,
            format!("`{}` cannot be executed ({error})", profile.program.display()),
            "Check that it exists inside the sandbox and that every user may execute it",
        ))
    }
}
