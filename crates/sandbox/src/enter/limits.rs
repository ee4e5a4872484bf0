//! Joins the cgroups made for this launch, and sets the bounds of single processes.

use std::io::Write as _;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit};
use tribune_contract::{Failed, LimitedBy, Limits, Stage};

use super::failure::At as _;

/// Takes this process, and so all that it starts, into the cgroups.
pub(super) fn join(cgroups: &[PathBuf]) -> Result<(), Failed> {
    for file in cgroups {
        std::fs::File::options().write(true).open(file).and_then(|mut file| file.write_all(b"0")).at(
            Stage::Limits,
            format_args!("joining `{}`", file.display()),
            "Delegate a cgroup to Tribune, or start it outside of one that forbids children",
        )?;
    }
    Ok(())
}

/// Bounds this process and all that it starts, each by itself. Where no cgroup bounds them together, memory and processes
/// are bounded this way too.
pub(super) fn bound(limits: &Limits, by: LimitedBy) -> Result<(), Failed> {
    let mut bounds = vec![
        (Resource::Core, 0),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Nofile, limits.open_files),
        (Resource::Nproc, limits.processes.into()),
    ];
    if by == LimitedBy::Rlimits {
        bounds.push((Resource::Data, limits.memory_bytes));
    }
    for (resource, most) in bounds {
        // More than the daemon itself may have cannot be given, and is no reason not to start.
        let most = rustix::process::getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        rustix::process::setrlimit(resource, limit).at(
            Stage::Limits,
            format_args!("setting the limit {resource:?}"),
            "Raise the limits of the daemon",
        )?;
    }
    Ok(())
}
