//! The throw-away home that the demonstration is played in.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tribune_host::Home;

use crate::error::CliError;

/// Names tried before giving up: a name is taken only if an earlier process of the same number left its folder behind.
const MAX_NAMES: u32 = 1_000;

/// A folder for its owner alone. Unless it is kept, it is gone when this is dropped, however that comes about.
#[derive(Debug)]
pub(super) struct Stage {
    home: Home,
    keep: bool,
}

impl Stage {
    pub(super) fn build(keep: bool) -> Result<Self, CliError> {
        let folder = std::env::temp_dir();
        for number in 0..MAX_NAMES {
            let path = folder.join(format!("tribune-demo-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { home: Home::at(path), keep }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(CliError::File { path, error }),
            }
        }
        Err(CliError::File { path: folder, error: io::ErrorKind::AlreadyExists.into() })
    }

    pub(super) const fn home(&self) -> &Home {
        &self.home
    }

    /// Where it stays, if it does.
    pub(super) fn kept(&self) -> Option<&Path> {
        self.keep.then(|| self.home.root())
    }

    /// Puts a file where the agent `main` can read it.
    pub(super) fn furnish(&self, name: &str, text: &str) -> Result<(), CliError> {
        let folder: PathBuf = self.home.root().join("agents").join("main").join("workspace");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(CliError::file(&folder))?;
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(CliError::file(&path))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.keep {
            // What cannot be removed is in the folder for things that may be.
            let _ = std::fs::remove_dir_all(self.home.root());
        }
    }
}
