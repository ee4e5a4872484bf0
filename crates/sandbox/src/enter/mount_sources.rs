//! Opens the sources of mounts: a detached clone of each, so that exactly the file that was checked is mounted,
//! whatever happens to its name.
//!
//! The launcher does this if it is root, before it drops root; otherwise process 1 does. Root also maps the owners of
//! writable folders (idmapped mounts): inside, the owner's files belong to the sandbox's user, and new files belong to
//! the owner on disk. No file changes its owner.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use rustix::process::Signal;
use tribune_contract::{LaunchFailure, LaunchStage, UserIds, is_system_path};

use super::failure::{AtStage as _, failed};
use super::mount_plan::{ATTACH_POINT, BindAccess, BindSource, MountKind, MountStep};
use crate::isolation::{Isolation, IsolationSet};
use crate::sys::{self, CloneResult, MountAttributes};

/// A detached mount.
#[derive(Debug)]
pub(super) struct DetachedMount {
    pub(super) mount: OwnedFd,
    pub(super) is_folder: bool,
}

/// The mounts that each step of a plan needs, in order.
#[derive(Debug, Default)]
pub(super) struct MountSources(Vec<Vec<DetachedMount>>);

impl MountSources {
    /// Opens the sources of all steps. `mapped_to` is the user to which owners are mapped; only root can map.
    pub(super) fn open(
        steps: &[MountStep],
        mapped_to: Option<UserIds>,
        isolation: &IsolationSet,
    ) -> Result<Self, LaunchFailure> {
        let mut opener = SourceOpener { mapped_to, isolation, maps: BTreeMap::new() };
        let sources = steps.iter().map(|step| match &step.kind {
            MountKind::Bind(bind) => Ok(opener.open(bind)?.into_iter().collect()),
            MountKind::Overlay { lower, layers } => {
                Ok(opener.open(lower)?.into_iter().chain(opener.open(layers)?).collect())
            }
            MountKind::Tmpfs { .. }
            | MountKind::Text(_)
            | MountKind::Symlink(_)
            | MountKind::Proc
            | MountKind::Pts => Ok(Vec::new()),
        });
        sources.collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn into_steps(self) -> impl Iterator<Item = Vec<DetachedMount>> {
        self.0.into_iter()
    }

    /// For each mount of each step, whether it is a folder. Sent along with the descriptors.
    pub(super) fn layout(&self) -> Vec<Vec<bool>> {
        self.0.iter().map(|trees| trees.iter().map(|tree| tree.is_folder).collect()).collect()
    }

    pub(super) fn mounts(&self) -> impl Iterator<Item = &OwnedFd> {
        self.0.iter().flatten().map(|tree| &tree.mount)
    }

    /// Rebuilds the value from its layout and the mounts in the order of [`Self::mounts`]. Returns `None` if mounts are
    /// missing.
    pub(super) fn from_layout(
        layout: Vec<Vec<bool>>,
        mounts: impl IntoIterator<Item = OwnedFd>,
    ) -> Option<Self> {
        let mut mounts = mounts.into_iter();
        let mut trees = |step: Vec<bool>| -> Option<Vec<DetachedMount>> {
            step.into_iter()
                .map(|is_folder| Some(DetachedMount { mount: mounts.next()?, is_folder }))
                .collect()
        };
        layout.into_iter().map(&mut trees).collect::<Option<_>>().map(Self)
    }
}

struct SourceOpener<'a> {
    mapped_to: Option<UserIds>,
    isolation: &'a IsolationSet,
    /// User namespaces that map an owner to the sandbox's user.
    maps: BTreeMap<UserIds, OwnedFd>,
}

impl SourceOpener<'_> {
    fn open(&mut self, bind: &BindSource) -> Result<Option<DetachedMount>, LaunchFailure> {
        const REMEDY: &str = "Check that it exists and that the sandbox's user can reach it";
        // Root of a user namespace, as `unshare -r` makes one, may mount only what its own mount namespace owns.
        const NO_ROOT: &str = "This root user may not mount here: start Tribune as an ordinary user, or with rights over \
                               the mounts it sees, as by `unshare --map-root-user --mount`";
        let source = bind.source.as_path();
        let doing = || format!("mounting `{}`", source.display());
        let held = match rustix::fs::open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) if !bind.required => return Ok(None),
            held => held.at(LaunchStage::Mounts, doing(), REMEDY)?,
        };
        // The profile cannot name such a folder, but a symlink can lead there.
        let is_system_target = || {
            let found = std::fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd()));
            found.is_ok_and(|found| match bind.access {
                BindAccess::Read => is_system_path(&found),
                // Sockets may be in `/run`. The attach point is where the sandbox itself is being built.
                BindAccess::Write | BindAccess::ReadAsOwner => found.starts_with(ATTACH_POINT),
                BindAccess::Device => false,
            })
        };
        if bind.required && is_system_target() {
            let cause = format!("`{}` leads to the running system", source.display());
            return Err(failed(
                LaunchStage::Mounts,
                cause,
                "Name a folder outside /proc, /sys, /dev and /run",
            ));
        }
        let stat = rustix::fs::fstat(&held).at(LaunchStage::Mounts, doing(), REMEDY)?;
        let owner = UserIds { uid: stat.st_uid, gid: stat.st_gid };
        let is_owned = matches!(bind.access, BindAccess::Write | BindAccess::ReadAsOwner);
        let map = self.mapped_to.filter(|user| is_owned && *user != owner);
        let mut flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        // Mounts below a mapped folder may not support idmapping, and are not part of a workspace.
        flags.set(OpenTreeFlags::AT_RECURSIVE, map.is_none());
        let mount = rustix::mount::open_tree(&held, "", flags);
        let remedy = if matches!(mount, Err(Errno::PERM)) { NO_ROOT } else { REMEDY };
        let mount = mount.at(LaunchStage::Mounts, doing(), remedy)?;

        let attributes = self.attributes(bind.access);
        if attributes.set != 0 {
            sys::mount_setattr(mount.as_fd(), map.is_none(), attributes).at(
                LaunchStage::Mounts,
                doing(),
                "Use Linux 5.12 or later",
            )?;
        }
        if let Some(user) = map {
            let namespace = self.idmap_namespace(owner, user)?;
            let idmap = MountAttributes {
                set: libc::MOUNT_ATTR_IDMAP,
                userns: u64::from(namespace.as_raw_fd().cast_unsigned()),
                ..MountAttributes::default()
            };
            sys::mount_setattr(mount.as_fd(), false, idmap)
                .map_err(|error| idmap_failure(source, owner, user, &error))?;
        }
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        Ok(Some(DetachedMount { mount, is_folder }))
    }

    fn attributes(&self, access: BindAccess) -> MountAttributes {
        let mut attributes = MountAttributes::default();
        if self.isolation.has(Isolation::MountFlags) {
            attributes.set |= libc::MOUNT_ATTR_NOSUID;
            if access != BindAccess::Device {
                attributes.set |= libc::MOUNT_ATTR_NODEV;
            }
        }
        let is_read = matches!(access, BindAccess::Read | BindAccess::ReadAsOwner);
        if is_read && self.isolation.has(Isolation::ReadOnlyMounts) {
            attributes.set |= libc::MOUNT_ATTR_RDONLY;
        }
        attributes
    }

    /// Returns a user namespace in which the owner is the sandbox's user.
    fn idmap_namespace(&mut self, owner: UserIds, user: UserIds) -> Result<&OwnedFd, LaunchFailure> {
        match self.maps.entry(owner) {
            Entry::Occupied(made) => Ok(made.into_mut()),
            Entry::Vacant(place) => {
                let namespace = create_idmap_namespace(owner, user).at(
                    LaunchStage::Mounts,
                    "mapping the owner of a folder to the user of the sandbox",
                    "Start Tribune as the owner of the workspace",
                )?;
                Ok(place.insert(namespace))
            }
        }
    }
}

fn idmap_failure(source: &Path, owner: UserIds, user: UserIds, error: &std::io::Error) -> LaunchFailure {
    failed(
        LaunchStage::Mounts,
        format!(
            "`{}` belongs to user {}, and its file system cannot map it to user {} ({error})",
            source.display(),
            owner.uid,
            user.uid
        ),
        format!("Start Tribune as user {}, or give the folder to user {}", owner.uid, user.uid),
    )
}

/// Creates a user namespace that maps one user and one group. It lives as long as its descriptor or a mount that uses
/// it.
fn create_idmap_namespace(inside: UserIds, outside: UserIds) -> std::io::Result<OwnedFd> {
    let new_user = libc::CLONE_NEWUSER as u64;
    match sys::clone_process(new_user)? {
        // Waits to be killed. It only gives the namespace a path in /proc.
        CloneResult::Child => loop {
            std::thread::park();
        },
        CloneResult::Parent { child, pidfd } => {
            let made = (|| {
                let folder = format!("/proc/{}", child.as_raw_nonzero());
                write_map(&format!("{folder}/uid_map"), inside.uid, outside.uid)?;
                write_map(&format!("{folder}/gid_map"), inside.gid, outside.gid)?;
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                Ok(rustix::fs::openat(CWD, format!("{folder}/ns/user"), flags, Mode::empty())?)
            })();
            rustix::process::pidfd_send_signal(&pidfd, Signal::KILL)?;
            rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())?;
            made
        }
    }
}

/// Writes an id map with one entry. The kernel accepts a map in a single write, once.
pub(super) fn write_map(file: &str, inside: u32, outside: u32) -> std::io::Result<()> {
    let mut map = std::fs::File::options().write(true).open(file)?;
    map.write_all(format!("{inside} {outside} 1\n").as_bytes())
}
