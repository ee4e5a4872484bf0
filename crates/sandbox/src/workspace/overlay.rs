//! The overlay folders of a session, and the state of the workspace when it began.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::WorkspaceError;
use super::remove_tree::remove_tree;

/// How often the clock is read until it advances, which it does every few milliseconds.
const CLOCK_TICK_ATTEMPTS: usize = 1000;

/// The overlay of one session: `upper` has the changes, `work` is used by the kernel, `base.json` by this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayDirs {
    path: PathBuf,
}

/// What distinguishes a change of the session from a later change in the workspace.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct OverlayBase {
    /// The start of the session, in nanoseconds of the kernel's clock for file times. Later changes in the workspace
    /// are conflicts.
    pub(super) began: i128,
    /// What has landed, with the change time that the landing caused; also the folders in which something landed.
    #[serde(with = "super::path_encoding")]
    pub(super) landed: BTreeMap<PathBuf, i128>,
}

impl OverlayDirs {
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { path: folder.into() }
    }

    /// Creates the folders, accessible to their owner only, for a session on `lower` that begins now.
    pub fn create(folder: impl Into<PathBuf>, lower: &Path) -> io::Result<Self> {
        let layers = Self::new(folder);
        for path in [layers.path.clone(), layers.upper(), layers.work()] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        // The root of the upper layer is the root of the workspace inside, so it gets the mode of the lower one.
        let mode = std::fs::metadata(lower)?.permissions().mode() & 0o777;
        std::fs::set_permissions(layers.upper(), PermissionsExt::from_mode(mode | 0o700))?;
        let began = layers.file_time_now()?;
        layers.write_base(&OverlayBase { began, landed: BTreeMap::new() })?;
        // Waits until the clock advances. From then on, later changes have a later time.
        for _ in 0..CLOCK_TICK_ATTEMPTS {
            if layers.file_time_now()? > began {
                return Ok(layers);
            }
            std::thread::sleep(std::time::Duration::from_micros(500));
        }
        Err(io::Error::other("the clock does not advance"))
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn upper(&self) -> PathBuf {
        self.path.join("upper")
    }

    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// Removes the folders with everything in them. The session must have ended.
    pub fn remove(self) -> Result<(), WorkspaceError> {
        let removed = remove_tree(&self.upper())
            .and_then(|()| self.clear_work_dir().map(drop))
            .and_then(|()| std::fs::remove_dir_all(&self.path));
        removed.map_err(|error| super::unwritable(&self.path, error))
    }

    /// Empties the kernel's folder. Returns whether it contained anything.
    pub(crate) fn clear_work_dir(&self) -> io::Result<bool> {
        let inner = self.work().join("work");
        if !inner.is_dir() {
            return Ok(false);
        }
        // The kernel creates it without permissions.
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o700))?;
        std::fs::remove_dir_all(inner)?;
        Ok(true)
    }

    pub(super) fn read_base(&self) -> Result<OverlayBase, WorkspaceError> {
        let path = self.base_path();
        let read = std::fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        read.map_err(|error| WorkspaceError::Record { path, error })
    }

    pub(super) fn write_base(&self, base: &OverlayBase) -> io::Result<()> {
        let new = self.path.join("base.json.new");
        std::fs::write(&new, serde_json::to_vec(base)?)?;
        std::fs::rename(new, self.base_path())
    }

    fn base_path(&self) -> PathBuf {
        self.path.join("base.json")
    }

    /// The time that the kernel assigns to a file that changes now.
    fn file_time_now(&self) -> io::Result<i128> {
        let clock = self.path.join("clock");
        std::fs::write(&clock, "")?;
        let metadata = std::fs::metadata(&clock)?;
        std::fs::remove_file(&clock)?;
        Ok(i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec()))
    }
}
