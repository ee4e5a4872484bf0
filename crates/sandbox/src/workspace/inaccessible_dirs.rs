//! Files and folders that a session made inaccessible to its own user. The overlay of an ordinary user's daemon belongs
//! to that user, who must change their modes to read them; root can read them as they are.
//!
//! While the session runs, a folder is opened temporarily ([`enter`]). Afterwards all of them are opened for good, and
//! their original modes are recorded beside the overlay ([`super::OverlayDirs::open_up`]): those modes are shown and landed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::{MAX_DEPTH, OverlayDirs, WorkspaceError, path_encoding, resolve_beneath, unreadable, unwritable};
use crate::dir_entries::read_entries;

/// The permission bits that an owner needs to list a folder.
const OWNER_READ_SEARCH: u32 = 0o500;

/// A folder that was opened temporarily.
pub(super) struct OpenedDir {
    pub(super) folder: OwnedFd,
    /// Its original mode, if that was changed.
    was_closed: Option<u32>,
}

/// Opens a folder of the overlay, even if its mode denies access to its owner.
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
        // Unless the mode was changed meanwhile.
        if now == Ok(mode | OWNER_READ_SEARCH) {
            // On failure the folder stays accessible, which only the session can notice.
            let _ = rustix::fs::fchmod(&self.folder, Mode::from_raw_mode(mode));
        }
    }
}

/// Through /proc, because a path descriptor cannot be changed directly and an inaccessible file cannot be opened.
fn set_mode(held: &OwnedFd, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), Mode::from_raw_mode(mode))
}

impl OverlayDirs {
    /// Makes everything in the overlay accessible and records the original modes. The session must have ended.
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

    /// The original modes of what is accessible now.
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
