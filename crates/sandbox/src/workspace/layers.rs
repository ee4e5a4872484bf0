//! The folders that hold the changes of a workspace.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Where the changes of one session are: `upper` has the changes, `work` is the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layers {
    folder: PathBuf,
}

impl Layers {
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Makes the folders, which only their owner can enter.
    pub fn create(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let layers = Self::new(folder);
        for path in [layers.folder.clone(), layers.upper(), layers.work()] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        Ok(layers)
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
}
