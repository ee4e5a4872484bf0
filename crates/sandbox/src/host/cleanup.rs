//! Removes what a killed daemon left behind.
//!
//! Its sandboxes ended with it. Their cgroups remain, and the `work` folders of overlays. The changes themselves are
//! kept until they are landed or discarded.

use std::path::{Path, PathBuf};

use super::cgroup;
use crate::workspace::Layers;

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanupReport {
    pub cgroups: Vec<PathBuf>,
    pub work_folders: Vec<PathBuf>,
    /// What could not be removed.
    pub left: Vec<PathBuf>,
}

/// Removes cgroups of processes that are gone. Safe while other instances run.
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

/// Removes the leftovers of an instance, and the cgroups of all instances that are gone. `sessions` contains one
/// overlay folder per session. No session of this instance may run meanwhile.
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
