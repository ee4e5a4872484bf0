//! The last steps before the program: what it cannot undo, and then it runs.

use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::Signal;
use seccompiler::BpfProgram;
use tribune_contract::{Failed, LaunchProfile, LaunchStage, LimitedBy};

use super::failure::{AtStage as _, failed};
use super::{landlock, limits, seccomp};
use crate::isolation::{Isolation, IsolationSet};
use crate::sys;

/// What the program is started with.
#[derive(Debug)]
pub(super) struct ExecPlan<'a> {
    pub(super) profile: &'a LaunchProfile,
    pub(super) limited_by: LimitedBy,
    pub(super) landlock: u32,
    pub(super) filter: &'a BpfProgram,
    /// The ports of the relays, in their order.
    pub(super) ports: &'a [u16],
    pub(super) isolation: &'a IsolationSet,
}

impl ExecPlan<'_> {
    /// Becomes the program. Comes back only with the reason why not.
    pub(super) fn exec(&self) -> Failed {
        match self.confine_and_exec() {
            Ok(never) => match never {},
            Err(failed) => failed,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "it becomes the program, in its sandbox")]
    fn confine_and_exec(&self) -> Result<Infallible, Failed> {
        const REMEDY: &str = "Run `tribune doctor --sandbox` to see what this machine lacks";
        let (profile, isolation) = (self.profile, self.isolation);
        // Where no pid namespace ends everything, this ends at least the program together with process 1.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(
            LaunchStage::Program,
            "following process 1",
            REMEDY,
        )?;
        // A session of its own: no terminal of anyone's to speak to.
        rustix::process::setsid().at(LaunchStage::Program, "leaving the terminal", REMEDY)?;
        // Unless one was made for it. The kernel gives away no terminal that is another session's.
        let _ = rustix::process::ioctl_tiocsctty(std::io::stdin());
        sys::unblock_signals().at(LaunchStage::Program, "letting signals through", REMEDY)?;
        // The daemon gives up large pages for itself; a compiler is faster with them.
        let _ = rustix::thread::disable_transparent_huge_pages(false);
        if isolation.has(Isolation::Rlimits) {
            limits::set_rlimits(&profile.limits, self.limited_by)?;
        }
        rustix::process::chdir(&profile.cwd).at(
            LaunchStage::Program,
            format_args!("going to the folder `{}`", profile.cwd.display()),
            "Choose a working folder that exists inside",
        )?;
        if isolation.has(Isolation::Descriptors) {
            sys::set_cloexec_from(3).at(LaunchStage::Program, "closing descriptors", REMEDY)?;
        }
        if isolation.has(Isolation::Landlock) {
            landlock::restrict(profile, self.landlock, self.ports)?;
        }
        if isolation.has(Isolation::Seccomp) {
            seccomp::install(self.filter)?;
        }
        let mut command = Command::new(&profile.program);
        command.args(&profile.args);
        if isolation.has(Isolation::Environment) {
            command.env_clear();
        }
        command.envs(profile.env.iter().map(|(name, value)| (name, self.expand_relay_ports(value))));
        let error = command.exec();
        Err(failed(
            LaunchStage::Program,
            format!("`{}` cannot be run ({error})", profile.program.display()),
            "Check that it exists inside the sandbox and that anyone may run it",
        ))
    }

    /// A value of the environment, with the numbers of ports that nobody could know before.
    fn expand_relay_ports(&self, value: &str) -> String {
        let relays = self.profile.relays.iter().zip(self.ports);
        relays.fold(value.to_owned(), |value, (relay, port)| {
            value.replace(&format!("${{relay:{}}}", relay.name), &port.to_string())
        })
    }
}
