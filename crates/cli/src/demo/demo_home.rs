//! The temporary home of the demo.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tribune_storage::home::Home;

use crate::error::CliError;

/// Folder names to try: a name is taken only if an earlier process with the same number left its folder behind.
const MAX_NAMES: u32 = 1_000;

/// A folder that only its owner can read. It is removed on drop unless it is to be kept.
#[derive(Debug)]
pub(super) struct DemoHome {
    home: Home,
    keep: bool,
}

impl DemoHome {
    pub(super) fn create(keep: bool) -> Result<Self, CliError> {
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

    /// The path, if the folder is kept.
    pub(super) fn kept(&self) -> Option<&Path> {
        self.keep.then(|| self.home.root())
    }

    /// Writes a file into the workspace of the agent `main`.
    pub(super) fn write_workspace_file(&self, name: &str, text: &str) -> Result<(), CliError> {
        let folder: PathBuf = self.home.root().join("agents").join("main").join("workspace");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(CliError::file(&folder))?;
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(CliError::file(&path))
    }
}

impl Drop for DemoHome {
    fn drop(&mut self) {
        if !self.keep {
            // A folder that cannot be removed stays in the temporary folder.
            let _ = std::fs::remove_dir_all(self.home.root());
        }
    }
}
