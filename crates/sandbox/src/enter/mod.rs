//! The entering half: what `tribune sandbox-enter` does.
//!
//! It is a process with one thread, an empty environment and no descriptors but a socket to the host. It stands ready as an
//! usher and forks a launcher for each request. A launcher clones process 1 into new namespaces, reads its order, hands on what it
//! says, gives up what it has step by step, and stays with process 1. What needs no order is done before there is one. Whatever cannot
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

use tribune_contract::{CgroupAssignment, Failed, LaunchRequest, LauncherReport, LaunchStage};

use self::failure::{At as _, failed};
use self::fork_server::Needed;
use self::mount_sources::Sources;
use self::prewarm::Ahead;
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
struct Means<'a> {
    isolation: &'a IsolationSet,
    filters: &'a Filters,
}

fn enter_with(isolation: &IsolationSet) -> io::Result<()> {
    // Built once, before there is an order: they are the same for all.
    let filters = Filters::build();
    let Some(slot) = fork_server::serve()? else { return Ok(()) };
    let means = Means { isolation, filters: &filters };
    let spec = slot.spec;
    // If it fails, whoever comes has it made again, and hears why not.
    let mut ahead = Ahead::make(spec, means).ok();
    let told = slot.wait(&mut ahead).and_then(|needed| match needed {
        Some(needed) => serve(needed, spec, ahead, means),
        None => Ok(()),
    });
    // Process 1, if it is there, ends with this one.
    sys::exit_now(i32::from(told.is_err()));
}

/// One launch, to its end.
fn serve(needed: Needed, spec: LauncherSpec, ahead: Option<Ahead>, means: Means<'_>) -> io::Result<()> {
    let Needed { mut control, streams } = needed;
    let Some(bytes) = wire::read_bytes(&mut control)? else { return Ok(()) };
    let order: LaunchRequest = match serde_json::from_slice(&bytes) {
        Ok(order) => order,
        Err(error) => {
            let why_not =
                failed(LaunchStage::Profile, format!("it cannot be read ({error})"), "Run one version of Tribune");
            return wire::write(&mut control, &LauncherReport::Failed(why_not));
        }
    };
    let wall = order.profile.limits.wall_ms.map(Duration::from_millis);
    let launch = Launch { order: &order, spec, means };
    let launched = launch.process_1(ahead).and_then(|mut ahead| {
        // A process 1 that is gone has said why, which is read where its reports are.
        let told = ahead.seam.tell_order(&streams, &bytes);
        drop(streams);
        launch.tell_the_rest(&mut control, &mut ahead, told)?;
        Ok(ahead.first)
    });
    match launched {
        Ok(first) => supervise::supervise(first, &mut control, wall),
        Err(why_not) => wire::write(&mut control, &LauncherReport::Failed(why_not)),
    }
}

/// One launch, as its launcher sees it.
struct Launch<'a> {
    order: &'a LaunchRequest,
    spec: LauncherSpec,
    means: Means<'a>,
}

impl Launch<'_> {
    /// The process 1 that was made ahead, if it is what is spec, or another.
    fn process_1(&self, ahead: Option<Ahead>) -> Result<Ahead, Failed> {
        let LaunchRequest { profile, becomes } = self.order;
        profile.check().map_err(|error| failed(LaunchStage::Profile, error.to_string(), "Correct the profile"))?;
        if self.spec != (LauncherSpec { mode: profile.mode, becomes: *becomes }) {
            let cause = "it is another one than the launcher was made for";
            return Err(failed(LaunchStage::Profile, cause, "Run one version of Tribune"));
        }
        match ahead.filter(Ahead::is_true) {
            Some(ahead) => Ok(ahead),
            None => Ahead::make(self.spec, self.means),
        }
    }

    /// Everything behind the order. Root is given up before process 1 gets the last of it, without which it starts nothing.
    fn tell_the_rest(
        &self,
        control: &mut UnixStream,
        ahead: &mut Ahead,
        told: io::Result<()>,
    ) -> Result<(), Failed> {
        let isolation = self.means.isolation;
        let told = match told {
            Ok(()) if ahead.holds_mounts => {
                let sources =
                    Sources::open(&mount_plan::asked(&self.order.profile), self.spec.becomes, isolation)?;
                ahead.seam.tell_sources(&sources)
            }
            told => told,
        };
        let bounded: CgroupAssignment = match wire::read(control) {
            Ok(Some(bounded)) => bounded,
            Ok(None) => return Err(failed(LaunchStage::Limits, "the host is gone", "Start it again")),
            Err(error) => {
                return Err(error).at(LaunchStage::Limits, "hearing of the limits", "Run one version of Tribune");
            }
        };
        let doors = match isolation.has(Isolation::Cgroup) {
            true => limits::doors(&bounded.cgroups)?,
            false => Vec::new(),
        };
        identity::become_user(self.spec.becomes)?;
        if told.and_then(|()| ahead.seam.tell_bounds(bounded.limited_by, &doors)).is_err() {
            return Ok(());
        }
        limits::join(&doors)
    }
}
