//! The entering half: what `tribune sandbox-enter` does.
//!
//! It is a process with one thread, an empty environment and no descriptors but a socket to the host. It runs as the
//! fork server and forks a launcher for each request. A launcher clones process 1 into new namespaces, reads the launch
//! request, forwards it, drops its rights step by step, and supervises process 1. Everything that does not depend on
//! the request is prewarmed. Whatever cannot be done as requested fails the launch; nothing is skipped.

#[cfg(feature = "bare")]
mod baseline;
mod exec_program;
mod failure;
mod fork_server;
mod identity;
mod init;
mod init_channel;
mod init_setup;
pub(crate) mod landlock;
mod limits;
mod mask_scan;
mod masks;
mod mount;
mod mount_plan;
mod mount_sources;
mod prewarm;
mod relay;
mod rootfs;
mod seccomp;
mod setup;
mod socket_probe;
mod supervise;
mod symlink_trace;

#[cfg(feature = "bare")]
pub use self::baseline::run_baseline;
pub use self::mask_scan::hidden_in;

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tribune_contract::{CgroupAssignment, LaunchFailure, LaunchRequest, LaunchStage, LauncherReport};

use self::failure::{AtStage as _, failed};
use self::fork_server::LaunchAssignment;
use self::mount_sources::MountSources;
use self::prewarm::PrewarmedInit;
use self::seccomp::Filters;
use self::setup::SharedSetup;
use crate::isolation::{Isolation, IsolationSet};
use crate::wire::LauncherSpec;
use crate::{sys, wire};

/// Runs the entering half: the fork server, and in its children the launchers. Returns when the host is gone. The
/// forked processes end by themselves.
///
/// Call this first in a process started for it, before there is a second thread.
pub fn enter() -> io::Result<()> {
    enter_with(&IsolationSet::default())
}

/// Like [`enter`], without some isolation mechanisms, to show what they stop.
#[cfg(feature = "controls")]
pub fn enter_without(off: &[Isolation]) -> io::Result<()> {
    enter_with(&IsolationSet::without(off))
}

fn enter_with(isolation: &IsolationSet) -> io::Result<()> {
    // Compiled once, before the first fork: they are the same for all launches.
    let filters = Filters::build();
    let Some(slot) = fork_server::serve()? else { return Ok(()) };
    let setup = SharedSetup { isolation, filters: &filters };
    let spec = slot.spec;
    // A failure here repeats when a launch needs it, and is reported then.
    let mut prewarmed = PrewarmedInit::create(spec, setup).ok();
    let finished = slot.wait_for_assignment(&mut prewarmed).and_then(|assignment| match assignment {
        Some(assignment) => run_launch(assignment, spec, prewarmed, setup),
        None => Ok(()),
    });
    // Process 1, if it exists, ends with this process.
    sys::exit_now(i32::from(finished.is_err()));
}

/// Performs one launch and supervises it to its end.
fn run_launch(
    assignment: LaunchAssignment,
    spec: LauncherSpec,
    prewarmed: Option<PrewarmedInit>,
    setup: SharedSetup<'_>,
) -> io::Result<()> {
    let LaunchAssignment { mut control, streams } = assignment;
    let Some(bytes) = wire::read_bytes(&mut control)? else { return Ok(()) };
    let request: LaunchRequest = match serde_json::from_slice(&bytes) {
        Ok(request) => request,
        Err(error) => {
            let cause = format!("it cannot be read ({error})");
            let failure = failed(LaunchStage::Profile, cause, "Run one version of Tribune");
            return wire::write(&mut control, &LauncherReport::Failed(failure));
        }
    };
    let wall = request.profile.limits.wall_ms.map(Duration::from_millis);
    let launch = LaunchContext { request: &request, spec, setup };
    let launched = launch.init_process(prewarmed).and_then(|mut prewarmed| {
        // A process 1 that has failed reported why, and its reports are read by `supervise`.
        let sent = prewarmed.channel.send_request(&streams, &bytes);
        drop(streams);
        launch.send_remaining(&mut control, &mut prewarmed, sent)?;
        Ok(prewarmed.init)
    });
    match launched {
        Ok(init) => supervise::supervise(init, &mut control, wall),
        Err(failure) => wire::write(&mut control, &LauncherReport::Failed(failure)),
    }
}

/// One launch, in its launcher.
struct LaunchContext<'a> {
    request: &'a LaunchRequest,
    spec: LauncherSpec,
    setup: SharedSetup<'a>,
}

impl LaunchContext<'_> {
    /// Returns the prewarmed process 1 if it is still valid, otherwise a new one.
    fn init_process(&self, prewarmed: Option<PrewarmedInit>) -> Result<PrewarmedInit, LaunchFailure> {
        let LaunchRequest { profile, switch_to } = self.request;
        profile
            .check()
            .map_err(|error| failed(LaunchStage::Profile, error.to_string(), "Correct the profile"))?;
        if self.spec != (LauncherSpec { mode: profile.mode, switch_to: *switch_to }) {
            let cause = "it does not fit the launcher, which was forked for another mode or user";
            return Err(failed(LaunchStage::Profile, cause, "Run one version of Tribune"));
        }
        match prewarmed.filter(PrewarmedInit::is_still_valid) {
            Some(prewarmed) => Ok(prewarmed),
            None => PrewarmedInit::create(self.spec, self.setup),
        }
    }

    /// Sends process 1 what follows the request: mount sources and cgroups. Root is dropped before the last message,
    /// without which process 1 starts nothing.
    fn send_remaining(
        &self,
        control: &mut UnixStream,
        prewarmed: &mut PrewarmedInit,
        sent: io::Result<()>,
    ) -> Result<(), LaunchFailure> {
        let isolation = self.setup.isolation;
        let sent = match sent {
            Ok(()) if prewarmed.sends_mounts => {
                let steps = mount_plan::profile_steps(&self.request.profile);
                let sources = MountSources::open(&steps, self.spec.switch_to, isolation)?;
                prewarmed.channel.send_sources(&sources)
            }
            sent => sent,
        };
        let assignment: CgroupAssignment = match wire::read(control) {
            Ok(Some(assignment)) => assignment,
            Ok(None) => return Err(failed(LaunchStage::Limits, "the host has exited", "Try again")),
            Err(error) => {
                return Err(error).at(
                    LaunchStage::Limits,
                    "reading the cgroups",
                    "Run one version of Tribune",
                );
            }
        };
        let cgroup_fds = match isolation.has(Isolation::Cgroup) {
            true => limits::open_cgroup_files(&assignment.cgroups)?,
            false => Vec::new(),
        };
        identity::become_user(self.spec.switch_to)?;
        let sent = sent.and_then(|()| prewarmed.channel.send_cgroups(assignment.limited_by, &cgroup_fds));
        if sent.is_err() {
            return Ok(());
        }
        limits::join(&cgroup_fds)
    }
}
