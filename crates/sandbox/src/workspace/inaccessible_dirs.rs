//! What a session closed to its own user. An ordinary user's daemon owns the layer and cannot look into such a folder until it
//! opens it; root can.
//!
//! While the session runs, a folder is opened for a moment and closed again ([`enter`]). Afterwards all of them are opened for
//! good, and the rights that they had are kept beside the layer ([`Layers::open_up`]): those are what is told and landed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::{Layers, MAX_DEPTH, WorkspaceError, path_encoding, resolve_beneath, unreadable, unwritable};
use crate::dir_entries::read_entries;

/// What its owner needs to look into a folder.
const OWNER_READ_SEARCH: u32 = 0o500;

/// A folder that was opened for a moment.
pub(super) struct OpenedDir {
    pub(super) folder: OwnedFd,
    /// With the rights it had.
    was_closed: Option<u32>,
}

/// Opens a folder of a layer, also one that its owner closed.
pub(super) fn enter(beneath: &OwnedFd, name: &Path) -> rustix::io::Result<OpenedDir> {
    let held = resolve_beneath::open(beneath, name, OFlags::PATH | OFlags::DIRECTORY)?;
    let mode = rustix::fs::fstat(&held)?.st_mode & 0o7777;
    let is_closed = mode & OWNER_READ_SEARCH != OWNER_READ_SEARCH && !rustix::process::geteuid().is_root();
    if is_closed {
        set_mode(&held, mode | OWNER_READ_SEARCH)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(&held, ".", flags, Mode::empty());
    if folder.is_err() && is_closed {
        set_mode(&held, mode)?;
    }
    Ok(OpenedDir { folder: folder?, was_closed: is_closed.then_some(mode) })
}

impl Drop for OpenedDir {
    fn drop(&mut self) {
        let Some(mode) = self.was_closed else { return };
        let now = rustix::fs::fstat(&self.folder).map(|stat| stat.st_mode & 0o7777);
        // Unless somebody gave it other rights meanwhile.
        if now == Ok(mode | OWNER_READ_SEARCH) {
            // It stays open then, which the session sees and nobody else.
            let _ = rustix::fs::fchmod(&self.folder, Mode::from_raw_mode(mode));
        }
    }
}

/// By its descriptor's name, because nothing that is closed can be opened to be changed.
fn set_mode(held: &OwnedFd, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), Mode::from_raw_mode(mode))
}

impl Layers {
    /// Opens everything that the session closed to its own user, and keeps the rights it had. The session must have ended.
    pub fn open_up(&self) -> Result<(), WorkspaceError> {
        if rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let upper = self.upper();
        let list = File::options().create(true).append(true).open(self.modes_path());
        let mut list = list.map_err(|error| unwritable(self.folder(), error))?;
        let root = resolve_beneath::open_root(&upper).map_err(|error| unreadable(&upper, error))?;
        open_up(&root, Path::new(""), &mut list, 0)
    }

    /// The rights that things had which are open now.
    pub(super) fn original_modes(&self) -> BTreeMap<PathBuf, u32> {
        let text = std::fs::read_to_string(self.modes_path()).unwrap_or_default();
        let entry = |line: &str| {
            let (mode, word) = line.split_once(' ')?;
            Some((path_encoding::decode(word)?, u32::from_str_radix(mode, 8).ok()?))
        };
        text.lines().filter_map(entry).collect()
    }

    fn modes_path(&self) -> PathBuf {
        self.folder().join("closed")
    }
}

fn open_up(folder: &OwnedFd, path: &Path, list: &mut File, depth: usize) -> Result<(), WorkspaceError> {
    if depth > MAX_DEPTH {
        return Err(WorkspaceError::TooMany);
    }
    for entry in read_entries(folder).map_err(|error| unreadable(path, error))? {
        let needed = match entry.kind {
            FileType::Directory => 0o700,
            FileType::RegularFile => 0o400,
            _ => continue,
        };
        let name = OsStr::from_bytes(&entry.name);
        let inner = path.join(name);
        let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| unreadable(&inner, error))?;
        let mode = stat.st_mode & 0o7777;
        if mode & needed != needed {
            let held = resolve_beneath::open(folder, name.as_ref(), OFlags::PATH)
                .map_err(|error| unreadable(&inner, error))?;
            writeln!(list, "{:o} {}", mode & 0o777, path_encoding::encode(&inner))
                .map_err(|error| unwritable(&inner, error))?;
            set_mode(&held, mode | needed).map_err(|error| unwritable(&inner, error))?;
        }
        if entry.kind == FileType::Directory {
            let next = resolve_beneath::open_folder(folder, name.as_ref())
                .map_err(|error| unreadable(&inner, error))?;
            open_up(&next, &inner, list, depth + 1)?;
        }
    }
    Ok(())
}
