//! Removes what a daemon left behind that was killed.
//!
//! Its sandboxes ended with it. What stays are their cgroups, and the folders in which the kernel prepared changes of
//! workspaces; the changes themselves are kept, they belong to whoever lands them.

use std::path::{Path, PathBuf};

use super::cgroup;
use crate::workspace::Layers;

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanupReport {
    pub cgroups: Vec<PathBuf>,
    pub work_folders: Vec<PathBuf>,
    /// What is still there, because something in it would not go.
    pub left: Vec<PathBuf>,
}

/// Removes cgroups of processes that are gone. Others may run meanwhile.
pub fn sweep_cgroups() -> CleanupReport {
    let mut report = CleanupReport::default();
    for folder in cgroup::stale() {
        if cgroup::remove(&folder) {
            report.cgroups.push(folder);
        } else {
            report.left.push(folder);
        }
    }
    report
}

/// Sweeps a house, and cgroups of any that is gone. `sessions` is the folder with the layers of its sessions, one folder each; no session of this house may
/// run while this does.
#[must_use]
pub fn sweep(sessions: &Path) -> CleanupReport {
    let mut report = sweep_cgroups();
    let folders = std::fs::read_dir(sessions).into_iter().flatten();
    for layers in folders.filter_map(|entry| Some(Layers::new(entry.ok()?.path()))) {
        let work = layers.work();
        match layers.clear_work() {
            Ok(true) => report.work_folders.push(work),
            Ok(false) => {}
            Err(_) => report.left.push(work),
        }
    }
    report
}
