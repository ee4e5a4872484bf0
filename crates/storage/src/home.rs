//! The state folder: where everything Tribune remembers lives.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, FlockOperation};

/// A folder that was named as home. Nothing about it is checked until it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

/// Why a folder cannot be a home. Each sentence ends with what to do.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("`{0}` is a file, not a folder: name another home with --home or TRIBUNE_HOME")]
    IsAFile(PathBuf),
    #[error(
        "`{0}` cannot be written by this user: change its owner or mode, or name another home with --home"
    )]
    NotWritable(PathBuf),
    #[error(
        "`{0}` is on a read-only disk: remount it for writing, or name another home with --home (reading and `tribune ledger verify` still work)"
    )]
    ReadOnlyDisk(PathBuf),
    #[error("`{path}` is held by another process{}: stop that one first, or name another home with --home", holder(.pid))]
    Held { path: PathBuf, pid: Option<u32> },
    #[error("`{path}` cannot be used as home ({error}): check the path, or name another with --home")]
    Io { path: PathBuf, error: io::Error },
}

/// How often to try to take a home that is held: someone who only reads may be posting what a killed daemon left.
const PATIENCE: u32 = 20;

/// The same if the one who held it is dead: a program that it was just starting holds it until it runs.
const PATIENCE_WITH_THE_DEAD: u32 = 300;

const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Whether no process of this number runs.
fn is_gone(pid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The state follows the name, which may hold anything.
    status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

fn holder(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

impl Home {
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn database(&self) -> PathBuf {
        self.root.join("tribune.db")
    }

    pub fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    /// Where somebody writes profiles of CLI agents.
    pub fn profiles(&self) -> PathBuf {
        self.root.join("profiles")
    }

    /// Where programs of CLI agents are installed, each in a folder that is called like its profile.
    pub fn programs(&self) -> PathBuf {
        self.root.join("programs")
    }

    /// Creates the folders that are missing, for their owner alone, and makes sure that they can be written.
    pub fn prepare(&self) -> Result<(), HomeError> {
        match fs::metadata(&self.root) {
            Ok(found) if !found.is_dir() => return Err(HomeError::IsAFile(self.root.clone())),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(self.refused(error)),
        }
        for folder in [self.root.clone(), self.keys(), self.run()] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)
                .map_err(|error| self.refused(error))?;
        }
        rustix::fs::access(&self.root, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| self.refused(error.into()))
    }

    /// Closes the folder to everyone but its owner. Returns the mode that let others in, if it did.
    pub fn close_to_others(&self) -> Result<Option<u32>, HomeError> {
        let found = fs::metadata(&self.root).map_err(|error| self.refused(error))?;
        let mode = found.permissions().mode() & 0o7777;
        if mode & 0o077 == 0 {
            return Ok(None);
        }
        let closed = fs::Permissions::from_mode(mode & !0o077);
        fs::set_permissions(&self.root, closed).map_err(|error| self.refused(error))?;
        Ok(Some(mode))
    }

    /// Takes the home for this process alone, until the guard is dropped or the process ends in whatever way.
    pub fn lock(&self) -> Result<HomeLock, HomeError> {
        let path = self.run().join("lock");
        let open =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = open.map_err(|error| self.refused(error))?;
        // Others may have widened its mode since. One that cannot be changed is locked all the same.
        let _ = file.set_permissions(fs::Permissions::from_mode(0o600));
        let mut tries = 0;
        while let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(self.refused(error.into()));
            }
            let mut pid = String::new();
            // Without the number the sentence is still true.
            let _ = file.rewind().and_then(|()| file.read_to_string(&mut pid));
            let pid = pid.trim().parse().ok();
            let patience = if pid.is_some_and(is_gone) { PATIENCE_WITH_THE_DEAD } else { PATIENCE };
            if tries >= patience {
                return Err(HomeError::Held { path: self.root.clone(), pid });
            }
            tries += 1;
            std::thread::sleep(BETWEEN_TRIES);
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(|error| self.refused(error))?;
        writeln!(file, "{}", std::process::id()).map_err(|error| self.refused(error))?;
        Ok(HomeLock { _file: file })
    }

    /// The process that has taken the home now, if one has. Writes nothing.
    pub fn holder(&self) -> Option<u32> {
        let mut file = File::open(self.run().join("lock")).ok()?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).ok()?;
                pid.trim().parse().ok().filter(|pid| !is_gone(*pid))
            }
            // Closing the file gives back what was taken.
            _ => None,
        }
    }

    fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    fn refused(&self, error: io::Error) -> HomeError {
        let path = self.root.clone();
        match error.kind() {
            ErrorKind::PermissionDenied => HomeError::NotWritable(path),
            ErrorKind::ReadOnlyFilesystem => HomeError::ReadOnlyDisk(path),
            ErrorKind::NotADirectory => HomeError::IsAFile(path),
            _ => HomeError::Io { path, error },
        }
    }
}

/// The home is ours while this lives.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}
