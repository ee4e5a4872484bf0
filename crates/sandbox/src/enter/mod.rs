//! The entering half: what `tribune sandbox-enter` does.
//!
//! It is a process with one thread, an empty environment and no descriptors but a socket to the host. It stands ready as an
//! usher and forks a launcher for each request. A launcher clones process 1 into new namespaces, reads its request, hands on what it
//! says, gives up what it has step by step, and stays with process 1. What needs no request is done before there is one. Whatever cannot
//! be done as ordered ends the launch; nothing is left out.

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
mod socket_probe;
mod supervise;
mod symlink_trace;

#[cfg(feature = "bare")]
pub use self::baseline::bare;
pub use self::mask_scan::hidden_in;

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tribune_contract::{CgroupAssignment, Failed, LaunchRequest, LaunchStage, LauncherReport};

use self::failure::{AtStage as _, failed};
use self::fork_server::LaunchAssignment;
use self::mount_sources::MountSources;
use self::prewarm::PrewarmedInit;
use self::seccomp::Filters;
use crate::isolation::{Isolation, IsolationSet};
use crate::wire::LauncherSpec;
use crate::{sys, wire};

/// Enters sandboxes, as the host half orders. Returns when the host is gone. What is forked of this process on the way ends by
/// itself.
///
/// Call this first of all in a process started for it, before there is a second thread.
pub fn enter() -> io::Result<()> {
    enter_with(&IsolationSet::default())
}

/// Enters a sandbox that lacks isolation, to show what they are there for.
#[cfg(feature = "controls")]
pub fn enter_without(off: &[Isolation]) -> io::Result<()> {
    enter_with(&IsolationSet::without(off))
}

/// What is the same for all sandboxes.
#[derive(Debug, Clone, Copy)]
struct SharedSetup<'a> {
    isolation: &'a IsolationSet,
    filters: &'a Filters,
}

fn enter_with(isolation: &IsolationSet) -> io::Result<()> {
    // Built once, before there is an request: they are the same for all.
    let filters = Filters::build();
    let Some(slot) = fork_server::serve()? else { return Ok(()) };
    let setup = SharedSetup { isolation, filters: &filters };
    let spec = slot.spec;
    // If it fails, whoever comes has it made again, and hears why not.
    let mut prewarmed = PrewarmedInit::create(spec, setup).ok();
    let sent = slot.wait_for_assignment(&mut prewarmed).and_then(|assignment| match assignment {
        Some(assignment) => run_launch(assignment, spec, prewarmed, setup),
        None => Ok(()),
    });
    // Process 1, if it is there, ends with this one.
    sys::exit_now(i32::from(sent.is_err()));
}

/// One launch, to its end.
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
            let failure = failed(
                LaunchStage::Profile,
                format!("it cannot be read ({error})"),
                "Run one version of Tribune",
            );
            return wire::write(&mut control, &LauncherReport::Failed(failure));
        }
    };
    let wall = request.profile.limits.wall_ms.map(Duration::from_millis);
    let launch = LaunchContext { request: &request, spec, setup };
    let launched = launch.init_process(prewarmed).and_then(|mut prewarmed| {
        // A process 1 that is gone has said why, which is read where its reports are.
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

/// One launch, as its launcher sees it.
struct LaunchContext<'a> {
    request: &'a LaunchRequest,
    spec: LauncherSpec,
    setup: SharedSetup<'a>,
}

impl LaunchContext<'_> {
    /// The process 1 that was made prewarmed, if it is what is spec, or another.
    fn init_process(&self, prewarmed: Option<PrewarmedInit>) -> Result<PrewarmedInit, Failed> {
        let LaunchRequest { profile, becomes } = self.request;
        profile
            .check()
            .map_err(|error| failed(LaunchStage::Profile, error.to_string(), "Correct the profile"))?;
        if self.spec != (LauncherSpec { mode: profile.mode, becomes: *becomes }) {
            let cause = "it is another one than the launcher was made for";
            return Err(failed(LaunchStage::Profile, cause, "Run one version of Tribune"));
        }
        match prewarmed.filter(PrewarmedInit::is_still_valid) {
            Some(prewarmed) => Ok(prewarmed),
            None => PrewarmedInit::create(self.spec, self.setup),
        }
    }

    /// Everything behind the request. RootFs is given up before process 1 gets the last of it, without which it starts nothing.
    fn send_remaining(
        &self,
        control: &mut UnixStream,
        prewarmed: &mut PrewarmedInit,
        sent: io::Result<()>,
    ) -> Result<(), Failed> {
        let isolation = self.setup.isolation;
        let sent = match sent {
            Ok(()) if prewarmed.sends_mounts => {
                let sources = MountSources::open(
                    &mount_plan::profile_steps(&self.request.profile),
                    self.spec.becomes,
                    isolation,
                )?;
                prewarmed.channel.send_sources(&sources)
            }
            sent => sent,
        };
        let assignment: CgroupAssignment = match wire::read(control) {
            Ok(Some(assignment)) => assignment,
            Ok(None) => return Err(failed(LaunchStage::Limits, "the host is gone", "Start it again")),
            Err(error) => {
                return Err(error).at(
                    LaunchStage::Limits,
                    "hearing of the limits",
                    "Run one version of Tribune",
                );
            }
        };
        let cgroup_fds = match isolation.has(Isolation::Cgroup) {
            true => limits::open_cgroup_files(&assignment.cgroups)?,
            false => Vec::new(),
        };
        identity::become_user(self.spec.becomes)?;
        if sent.and_then(|()| prewarmed.channel.send_cgroups(assignment.limited_by, &cgroup_fds)).is_err() {
            return Ok(());
        }
        limits::join(&cgroup_fds)
    }
}
