//! The home: the state folder that holds everything that Tribune stores, and the lock that gives it to one process.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, FlockOperation};

/// A folder that is named as home. Nothing about it is checked until it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

/// Why a folder cannot be used as home. Each sentence ends with what to do.
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

/// How often to retry a lock that is held: a reader may be applying the records that a killed daemon left.
const RETRIES: u32 = 20;

/// How often to retry if the process that took the lock is dead: a program that it was just starting holds the lock until it
/// has called `exec`.
const RETRIES_AFTER_DEATH: u32 = 300;

const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Whether no process with this id runs. A zombie does not count.
fn is_gone(pid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The state follows the name, which may contain any character.
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

    /// The folder of the operator's own profiles of CLI agents.
    pub fn profiles(&self) -> PathBuf {
        self.root.join("profiles")
    }

    /// The folder in which programs of CLI agents are installed, each in a folder named after its profile.
    pub fn programs(&self) -> PathBuf {
        self.root.join("programs")
    }

    /// Creates missing folders with access for their owner only, and checks that they are writable.
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

    /// Removes other users' access to the folder. Returns the earlier mode if it gave them access.
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

    /// Locks the home for this process, until the guard is dropped or the process ends in any way.
    pub fn lock(&self) -> Result<HomeLock, HomeError> {
        let path = self.run().join("lock");
        let open =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = open.map_err(|error| self.refused(error))?;
        // The mode may have been widened since. A file whose mode cannot be changed is locked all the same.
        let _ = file.set_permissions(fs::Permissions::from_mode(0o600));
        let mut tries = 0;
        while let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(self.refused(error.into()));
            }
            let mut pid = String::new();
            // Without the process id the error sentence is still true.
            let _ = file.rewind().and_then(|()| file.read_to_string(&mut pid));
            let pid = pid.trim().parse().ok();
            let retries = if pid.is_some_and(is_gone) { RETRIES_AFTER_DEATH } else { RETRIES };
            if tries >= retries {
                return Err(HomeError::Held { path: self.root.clone(), pid });
            }
            tries += 1;
            std::thread::sleep(RETRY_INTERVAL);
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(|error| self.refused(error))?;
        writeln!(file, "{}", std::process::id()).map_err(|error| self.refused(error))?;
        Ok(HomeLock { _file: file })
    }

    /// The id of the process that holds the home now, if one does. Writes nothing.
    pub fn holder(&self) -> Option<u32> {
        let mut file = File::open(self.run().join("lock")).ok()?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).ok()?;
                pid.trim().parse().ok().filter(|pid| !is_gone(*pid))
            }
            // Closing the file releases the shared lock.
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

/// The lock on the home. Dropping it releases the home.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}
