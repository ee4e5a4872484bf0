//! How much the changes of a session take.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use super::closed::enter;
use super::{Layers, MAX_CHANGES, MAX_DEPTH, WorkspaceError, beneath, unreadable};
use crate::names::entries;

/// What changes take on disk. Files that are open and have no name any more are not in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    /// Files, folders and whatever else has a name. Counting ends when there are more than can be told.
    pub names: usize,
}

impl Layers {
    /// Counts. For a quota, which the host keeps: no file system does it for an ordinary user. What goes away while it is counted
    /// counts as nothing.
    pub fn usage(&self) -> Result<Usage, WorkspaceError> {
        let (upper, mut usage) = (self.upper(), Usage::default());
        let root = beneath::folder(&upper).map_err(|error| unreadable(&upper, error))?;
        count(&root, Path::new(""), 0, &mut usage)?;
        Ok(usage)
    }
}

fn count(folder: &OwnedFd, path: &Path, depth: usize, usage: &mut Usage) -> Result<(), WorkspaceError> {
    if depth > MAX_DEPTH {
        return Err(WorkspaceError::TooMany);
    }
    for entry in entries(folder).map_err(|error| unreadable(path, error))? {
        if usage.names > MAX_CHANGES {
            return Ok(());
        }
        let name = OsStr::from_bytes(&entry.name);
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(unreadable(path.join(name), error)),
        };
        usage.names += 1;
        usage.bytes = usage.bytes.saturating_add(stat.st_blocks.cast_unsigned().saturating_mul(512));
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            match enter(folder, name.as_ref()) {
                Ok(entered) => count(&entered.folder, &path.join(name), depth + 1, usage)?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(unreadable(path.join(name), error)),
            }
        }
    }
    Ok(())
}
