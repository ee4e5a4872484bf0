//! Joins the cgroups of the launch and sets per-process limits.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit};
use tribune_contract::{LaunchFailure, LaunchStage, LimitedBy, ResourceLimits};

use super::failure::AtStage as _;

const REMEDY: &str = "Delegate a cgroup to Tribune, or start it outside of one that forbids children";

/// Opens the files through which a process joins. The kernel checks the credentials of the opener, not of the writer.
pub(super) fn open_cgroup_files(cgroups: &[PathBuf]) -> Result<Vec<File>, LaunchFailure> {
    let open = |path: &PathBuf| {
        let file = File::options().write(true).open(path);
        file.at(LaunchStage::Limits, format_args!("opening `{}`", path.display()), REMEDY)
    };
    cgroups.iter().map(open).collect()
}

/// Moves this process, and so its future descendants, into the cgroups.
pub(super) fn join<'a>(cgroup_fds: impl IntoIterator<Item = &'a File>) -> Result<(), LaunchFailure> {
    for mut file in cgroup_fds {
        file.write_all(b"0").at(LaunchStage::Limits, "joining a cgroup", REMEDY)?;
    }
    Ok(())
}

/// Sets the rlimits of this process, which its descendants inherit. Without a cgroup this includes memory and
/// processes.
pub(super) fn set_rlimits(limits: &ResourceLimits, by: LimitedBy) -> Result<(), LaunchFailure> {
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
        // More than the daemon's own hard limit cannot be granted, and that is no reason to fail.
        let most = rustix::process::getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        rustix::process::setrlimit(resource, limit).at(
            LaunchStage::Limits,
            format_args!("setting the limit {resource:?}"),
            "Raise the limits of the daemon",
        )?;
    }
    Ok(())
}
