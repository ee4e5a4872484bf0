//! Operations on single mounts: create, clone, change attributes, attach.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use crate::isolation::{Isolation, IsolationSet};
use crate::sys::{self, MountAttributes};

/// Opens an existing entry. Returns `None` if the sandbox's user cannot reach it: then it cannot be reached inside
/// either.
pub(super) fn open_existing(
    folder: &impl rustix::fd::AsFd,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::ACCESS) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn clone_tree(of: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(of, "", flags)
}

pub(super) fn attach(mount: &OwnedFd, point: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount, "", point, "", flags)
}

/// Clones the mount tree at a name, if it exists. Only for folders whose names no other process can change.
pub(super) fn clone_tree_by_name(folder: &OwnedFd, name: &str) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW
        | OpenTreeFlags::AT_RECURSIVE;
    match rustix::mount::open_tree(folder, name, flags) {
        Ok(tree) => Ok(Some(tree)),
        Err(Errno::NOENT | Errno::ACCESS) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Attaches a mount over a name without opening it first. Only for folders whose names no other process can change.
pub(super) fn attach_by_name(
    mount: &OwnedFd,
    folder: &OwnedFd,
    name: impl rustix::path::Arg,
) -> rustix::io::Result<()> {
    rustix::mount::move_mount(mount, "", folder, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

pub(super) fn set_attributes(
    mount: BorrowedFd<'_>,
    recursive: bool,
    attributes: u64,
) -> rustix::io::Result<()> {
    let attributes = MountAttributes { set: attributes, ..MountAttributes::default() };
    sys::mount_setattr(mount, recursive, attributes)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}

pub(super) fn default_flags(isolation: &IsolationSet) -> MountAttrFlags {
    if isolation.has(Isolation::MountFlags) {
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV
    } else {
        MountAttrFlags::empty()
    }
}

/// The size of a tmpfs.
#[derive(Debug, Clone, Copy)]
pub(super) struct TmpfsLimits {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

pub(super) fn new_tmpfs(
    limits: Option<TmpfsLimits>,
    mode: u32,
    isolation: &IsolationSet,
) -> rustix::io::Result<OwnedFd> {
    let fs = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    if let Some(TmpfsLimits { bytes, inodes }) = limits {
        rustix::mount::fsconfig_set_string(fs.as_fd(), "size", bytes.to_string())?;
        rustix::mount::fsconfig_set_string(fs.as_fd(), "nr_inodes", inodes.to_string())?;
    }
    rustix::mount::fsconfig_set_string(fs.as_fd(), "mode", format!("{mode:o}"))?;
    rustix::mount::fsconfig_create(fs.as_fd())?;
    rustix::mount::fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, default_flags(isolation))
}

pub(super) fn new_proc(isolation: &IsolationSet) -> rustix::io::Result<OwnedFd> {
    let fs = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(fs.as_fd())?;
    let flags = default_flags(isolation) | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// For controls of tests, which keep a part of the host visible.
pub(super) fn clone_host_tree(path: &str) -> rustix::io::Result<OwnedFd> {
    clone_tree(&rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

pub(super) fn new_devpts() -> rustix::io::Result<OwnedFd> {
    let fs = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(fs.as_fd(), "ptmxmode", "666")?;
    rustix::mount::fsconfig_set_string(fs.as_fd(), "mode", "620")?;
    rustix::mount::fsconfig_create(fs.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}
