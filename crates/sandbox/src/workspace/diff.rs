//! The difference between a workspace and its overlay.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, Dir};
use rustix::io::Errno;

use super::change::Change;
use super::node::{Node, NodeStat, link_stays_inside, same_content};
use super::{MAX_CHANGES, MAX_DEPTH, OverlayDirs, WorkspaceError, autorun_scan, resolve_beneath, unreadable};
use crate::dir_entries::is_repository;

/// All changes of a session, folders before their content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    pub changes: Vec<Change>,
    /// Total size of added and changed files in bytes.
    pub bytes: u64,
}

/// Compares a workspace with the overlay of a session.
pub fn diff(lower: &Path, layers: &OverlayDirs) -> Result<Diff, WorkspaceError> {
    let upper = layers.upper();
    let lower_folder = resolve_beneath::open_root(lower).map_err(|error| unreadable(lower, error))?;
    let upper_folder = resolve_beneath::open_root(&upper).map_err(|error| unreadable(&upper, error))?;
    let mut walker = DiffWalker {
        root: &lower_folder,
        diff: Diff::default(),
        repositories: BTreeSet::new(),
        original_modes: layers.original_modes(),
    };
    walker.compare_folder(Some(&lower_folder), &upper_folder, Path::new(""), 0)?;
    let DiffWalker { mut diff, repositories, .. } = walker;
    autorun_scan::mark_autorun(lower, &lower_folder, &upper_folder, repositories, &mut diff.changes)?;
    Ok(diff)
}

struct DiffWalker<'a> {
    root: &'a OwnedFd,
    diff: Diff,
    /// Folders that are git repositories after the changes.
    repositories: BTreeSet<PathBuf>,
    /// Modes before they were opened for the landing user.
    original_modes: BTreeMap<PathBuf, u32>,
}

impl DiffWalker<'_> {
    fn compare_folder(
        &mut self,
        lower: Option<&OwnedFd>,
        upper: &OwnedFd,
        path: &Path,
        depth: usize,
    ) -> Result<(), WorkspaceError> {
        if depth > MAX_DEPTH {
            return Err(WorkspaceError::TooMany);
        }
        let is_opaque = has_xattr(upper, "user.overlay.opaque").map_err(|error| unreadable(path, error))?;
        for known in ["user.overlay.redirect", "user.overlay.metacopy"] {
            if has_xattr(upper, known).map_err(|error| unreadable(path, error))? {
                return Err(WorkspaceError::Unknown { path: path.to_owned() });
            }
        }
        let names = entry_names(upper).map_err(|error| unreadable(path, error))?;
        let is_there = |folder: &OwnedFd, name: &str| {
            rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
        };
        // A removed entry counts too: it could be restored without the others.
        let has = |name: &str| is_there(upper, name) || lower.is_some_and(|lower| is_there(lower, name));
        if is_repository(has) {
            self.repositories.insert(path.to_owned());
        }
        for name in &names {
            self.compare_entry(lower, upper, path, name, depth)?;
        }
        if is_opaque && let Some(lower) = lower {
            // An opaque folder hides all lower entries.
            let gone = self::entry_names(lower).map_err(|error| unreadable(path, error))?;
            for name in gone.difference(&names) {
                let inner = path.join(OsStr::from_bytes(name.as_bytes()));
                if let Some(before) = stat_entry(lower, name, &inner)? {
                    self.push_change(Change::removed(inner, before.node))?;
                }
            }
        }
        Ok(())
    }

    fn compare_entry(
        &mut self,
        lower: Option<&OwnedFd>,
        upper: &OwnedFd,
        path: &Path,
        name: &CString,
        depth: usize,
    ) -> Result<(), WorkspaceError> {
        let file_name = OsStr::from_bytes(name.as_bytes());
        let inner = path.join(file_name);
        let before = match lower {
            Some(lower) => stat_entry(lower, name, &inner)?,
            None => None,
        };
        // Removed meanwhile, so no change.
        let Some(mut after) = stat_entry(upper, name, &inner)? else { return Ok(()) };
        if after.is_whiteout() {
            return match before {
                Some(before) => self.push_change(Change::removed(inner, before.node)),
                None => Ok(()),
            };
        }
        let sets_id = after.sets_id();
        if let (Some(was), Node::File { mode, .. } | Node::Folder { mode }) =
            (self.original_modes.get(&inner), &mut after.node)
        {
            *mode = *was;
        }
        let is_copy = before.is_none() && is_copy(upper, name);
        let mut change = Change {
            path: inner,
            is_copied_up: is_copy,
            is_inaccessible: false,
            before: before.map(|before| before.node),
            is_escaping_symlink: false,
            is_autorun: false,
            same_content: false,
            sets_id,
            after: Some(after.node.clone()),
        };
        match (&change.before, &after.node) {
            (before, Node::Folder { .. }) => {
                let (inner, was_folder) = (change.path.clone(), matches!(before, Some(Node::Folder { .. })));
                let open = |folder: &OwnedFd| match open_searchable(folder, file_name.as_ref()) {
                    Ok(folder) => Ok(Some(folder)),
                    Err(Errno::ACCESS) => Ok(None),
                    Err(error) => Err(unreadable(&inner, error)),
                };
                let new = open(upper)?;
                change.is_inaccessible = new.is_none();
                if change.is_inaccessible || before.as_ref() != Some(&after.node) {
                    self.push_change(change)?;
                }
                let old = lower.filter(|_| was_folder).map(open).transpose()?.flatten();
                new.map_or(Ok(()), |new| self.compare_folder(old.as_ref(), &new, &inner, depth + 1))
            }
            (Some(Node::File { mode, bytes }), Node::File { mode: new, bytes: size }) if bytes == size => {
                let same_mode = mode == new;
                // If the files cannot be compared, they count as different.
                change.same_content = lower
                    .is_some_and(|lower| same_content(lower, upper, file_name.as_ref()).unwrap_or(false));
                if change.same_content && same_mode { Ok(()) } else { self.push_change(change) }
            }
            (Some(same), new) if same == new && !matches!(new, Node::Other) => Ok(()),
            (_, Node::Symlink { to }) => {
                change.is_escaping_symlink = !link_stays_inside(&change.path, to)
                    || resolve_beneath::leads_out(self.root, &path.join(to));
                self.push_change(change)
            }
            _ => self.push_change(change),
        }
    }

    fn push_change(&mut self, change: Change) -> Result<(), WorkspaceError> {
        if self.diff.changes.len() >= MAX_CHANGES {
            return Err(WorkspaceError::TooMany);
        }
        if let Some(Node::File { bytes, .. }) = &change.after {
            self.diff.bytes = self.diff.bytes.saturating_add(*bytes);
        }
        self.diff.changes.push(change);
        Ok(())
    }
}

/// Opens a folder that can be read and searched.
fn open_searchable(folder: &OwnedFd, name: &Path) -> rustix::io::Result<OwnedFd> {
    let opened = resolve_beneath::open_folder(folder, name)?;
    rustix::fs::accessat(&opened, ".", Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(opened)
}

/// Returns whether overlayfs created the entry by copying up.
fn is_copy(folder: &OwnedFd, name: &CString) -> bool {
    let name = format!("/proc/self/fd/{}/", folder.as_raw_fd())
        .into_bytes()
        .into_iter()
        .chain(name.to_bytes().iter().copied());
    let name: Vec<u8> = name.collect();
    let mut value = [0; 8];
    // Longer than any value that this program knows.
    let found = rustix::fs::lgetxattr(OsStr::from_bytes(&name), "user.overlay.origin", &mut value);
    matches!(found, Ok(_) | Err(Errno::RANGE))
}

fn stat_entry(folder: &OwnedFd, name: &CString, path: &Path) -> Result<Option<NodeStat>, WorkspaceError> {
    NodeStat::in_folder(folder, OsStr::from_bytes(name.as_bytes()).as_ref())
        .map_err(|error| unreadable(path, error))
}

fn entry_names(folder: &OwnedFd) -> rustix::io::Result<BTreeSet<CString>> {
    let mut names = BTreeSet::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            names.insert(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// Returns whether overlayfs set this attribute on a folder.
fn has_xattr(folder: &OwnedFd, name: &str) -> rustix::io::Result<bool> {
    let mut value = [0; 8];
    // Through /proc, because the kernel does not allow this on a descriptor that is only readable.
    match rustix::fs::getxattr(format!("/proc/self/fd/{}", folder.as_raw_fd()), name, &mut value) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        // Longer than any value that this program knows.
        Err(Errno::RANGE) => Ok(true),
        Err(error) => Err(error),
    }
}
