//! The folders that hold the changes of a workspace, and what was true when they were made.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{WorkspaceError, discard};

/// How often the clock is read until it has moved on; it does every few milliseconds.
const CLOCK_TICK_ATTEMPTS: usize = 1000;

/// Where the changes of one session are: `upper` has the changes, `work` is the kernel's, `base.json` is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layers {
    folder: PathBuf,
}

/// What tells a change of the session from one that somebody else made since.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct OverlayBase {
    /// When the session began, in nanoseconds of the kernel's clock for files. What was changed later was changed since.
    pub(super) began: i128,
    /// What was landed already, and when the file was changed by that; folders in which something was.
    #[serde(with = "super::path_encoding")]
    pub(super) landed: BTreeMap<PathBuf, i128>,
}

impl Layers {
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Makes the folders, which only their owner can enter, for a session on `lower` that begins now.
    pub fn create(folder: impl Into<PathBuf>, lower: &Path) -> io::Result<Self> {
        let layers = Self::new(folder);
        for path in [layers.folder.clone(), layers.upper(), layers.work()] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        // The root of the upper layer is the root of the workspace inside, and looks like the lower one.
        let mode = std::fs::metadata(lower)?.permissions().mode() & 0o777;
        std::fs::set_permissions(layers.upper(), PermissionsExt::from_mode(mode | 0o700))?;
        let began = layers.file_time_now()?;
        layers.write_base(&OverlayBase { began, landed: BTreeMap::new() })?;
        // Once the clock has moved on, nothing that is changed from now on looks as if it were older.
        for _ in 0..CLOCK_TICK_ATTEMPTS {
            if layers.file_time_now()? > began {
                return Ok(layers);
            }
            std::thread::sleep(std::time::Duration::from_micros(500));
        }
        Err(io::Error::other("the clock stands still"))
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    #[must_use]
    pub fn upper(&self) -> PathBuf {
        self.folder.join("upper")
    }

    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// Removes the folders with everything in them. The session must have ended.
    pub fn remove(self) -> Result<(), WorkspaceError> {
        let removed = discard::remove_tree(&self.upper())
            .and_then(|()| self.clear_work().map(drop))
            .and_then(|()| std::fs::remove_dir_all(&self.folder));
        removed.map_err(|error| super::unwritable(&self.folder, error))
    }

    /// Empties the kernel's folder. Whether there was anything in it.
    pub(crate) fn clear_work(&self) -> io::Result<bool> {
        let inner = self.work().join("work");
        if !inner.is_dir() {
            return Ok(false);
        }
        // The kernel makes it without any rights.
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
        let new = self.folder.join("base.json.new");
        std::fs::write(&new, serde_json::to_vec(base)?)?;
        std::fs::rename(new, self.base_path())
    }

    fn base_path(&self) -> PathBuf {
        self.folder.join("base.json")
    }

    /// What time the kernel writes on a file that is changed now.
    fn file_time_now(&self) -> io::Result<i128> {
        let clock = self.folder.join("clock");
        std::fs::write(&clock, "")?;
        let metadata = std::fs::metadata(&clock)?;
        std::fs::remove_file(&clock)?;
        Ok(i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec()))
    }
}
