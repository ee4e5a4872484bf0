//! Removes what a killed daemon left behind.
//!
//! Its sandboxes ended with it. Their cgroups remain, and the `work` folders of overlays. The changes themselves are
//! kept until they are landed or discarded.

use std::path::{Path, PathBuf};

use super::cgroup;
use crate::workspace::OverlayDirs;

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanupReport {
    pub cgroups: Vec<PathBuf>,
    pub work_dirs: Vec<PathBuf>,
    /// What could not be removed.
    pub not_removed: Vec<PathBuf>,
}

/// Removes cgroups of processes that are gone. Safe while other instances run.
pub fn remove_stale_cgroups() -> CleanupReport {
    let mut report = CleanupReport::default();
    for folder in cgroup::stale() {
        if cgroup::remove(&folder) {
            report.cgroups.push(folder);
        } else {
            report.not_removed.push(folder);
        }
    }
    report
}

/// Removes the leftovers of an instance, and the cgroups of all instances that are gone. `sessions` contains one
/// overlay folder per session. No session of this instance may run meanwhile.
#[must_use]
pub fn clean_up(sessions: &Path) -> CleanupReport {
    let mut report = remove_stale_cgroups();
    let folders = std::fs::read_dir(sessions).into_iter().flatten();
    for layers in folders.filter_map(|entry| Some(OverlayDirs::new(entry.ok()?.path()))) {
        let work = layers.work();
        match layers.clear_work_dir() {
            Ok(true) => report.work_dirs.push(work),
            Ok(false) => {}
            Err(_) => report.not_removed.push(work),
        }
    }
    report
}
