//! Opens paths beneath a folder without following symlinks (`openat2` with `RESOLVE_BENEATH`).

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How often to retry when the kernel cannot tell whether a path stays inside, because something was moved.
const MOVED_ATTEMPTS: usize = 64;

/// Opens a folder by its path.
pub(super) fn open_root(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a path beneath a folder. An empty path is the folder itself.
pub(super) fn open(folder: impl AsFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    for _ in 0..MOVED_ATTEMPTS {
        match rustix::fs::openat2(&folder, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a subfolder for reading and for changing its entries.
pub(super) fn open_folder(beneath: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    open(beneath, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens a file for reading, without blocking.
pub(super) fn open_file(beneath: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    open(beneath, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
}

/// Returns whether a path leads out of its folder, also through existing symlinks.
pub(super) fn leads_out(folder: impl AsFd, path: &Path) -> bool {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::openat2(folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve);
    matches!(opened, Err(Errno::XDEV))
}
