//! What a session changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, Dir};
use rustix::io::Errno;

use super::node::{Node, NodeStat, link_stays_inside, same_content};
use super::{Layers, MAX_CHANGES, MAX_DEPTH, WorkspaceError, autorun_scan, resolve_beneath, unreadable};
use crate::dir_entries::is_repository;

/// What a session changed, folders before what is in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    pub changes: Vec<Change>,
    /// Bytes of all that was added or changed.
    pub bytes: u64,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// From the root of the workspace.
    pub path: PathBuf,
    /// What the workspace has now.
    pub before: Option<Node>,
    /// What it would have.
    pub after: Option<Node>,
    /// Programs of the host would obey it.
    pub is_trap: bool,
    /// It is a link to somewhere else.
    pub leaves: bool,
    /// It would run with its owner's or its group's rights; those bits do not land.
    pub sets_id: bool,
    /// Both are files, and hold the same bytes.
    pub same_content: bool,
    /// It began as a copy of something that the workspace had.
    pub is_copy: bool,
    /// It is a folder that its owner closed, and nobody knows what is in it.
    pub is_closed: bool,
}

/// In a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Added,
    Changed,
    /// The same, but for who may read, write or run it.
    Mode,
    Removed,
}

impl Change {
    const fn removed(path: PathBuf, before: Node) -> Self {
        Self {
            path,
            before: Some(before),
            after: None,
            is_trap: false,
            leaves: false,
            sets_id: false,
            same_content: false,
            is_copy: false,
            is_closed: false,
        }
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        match (&self.before, &self.after) {
            (None, _) => Kind::Added,
            (Some(_), None) => Kind::Removed,
            (Some(Node::Folder { .. }), Some(Node::Folder { .. })) => Kind::Mode,
            (Some(_), Some(_)) if self.same_content => Kind::Mode,
            (Some(_), Some(_)) => Kind::Changed,
        }
    }
}

/// Compares a workspace with the changes of a session.
pub fn diff(lower: &Path, layers: &Layers) -> Result<Diff, WorkspaceError> {
    let upper = layers.upper();
    let lower_folder = resolve_beneath::open_root(lower).map_err(|error| unreadable(lower, error))?;
    let upper_folder = resolve_beneath::open_root(&upper).map_err(|error| unreadable(&upper, error))?;
    let mut walker = DiffWalker {
        root: &lower_folder,
        diff: Diff::default(),
        repositories: BTreeSet::new(),
        original_modes: layers.original_modes(),
    };
    walker.folder(Some(&lower_folder), &upper_folder, Path::new(""), 0)?;
    let DiffWalker { mut diff, repositories, .. } = walker;
    autorun_scan::mark_autorun((lower, &lower_folder), &upper_folder, repositories, &mut diff.changes)?;
    Ok(diff)
}

struct DiffWalker<'a> {
    root: &'a OwnedFd,
    diff: Diff,
    /// Folders that would be repositories of git.
    repositories: BTreeSet<PathBuf>,
    /// The rights of what was closed.
    original_modes: BTreeMap<PathBuf, u32>,
}

impl DiffWalker<'_> {
    fn folder(
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
        // A removed name counts as well: it may come back without the others.
        let has = |name: &str| is_there(upper, name) || lower.is_some_and(|lower| is_there(lower, name));
        if is_repository(has) {
            self.repositories.insert(path.to_owned());
        }
        for name in &names {
            self.name(lower, upper, path, name, depth)?;
        }
        if is_opaque && let Some(lower) = lower {
            // Whatever is not in the new folder is gone.
            let gone = self::entry_names(lower).map_err(|error| unreadable(path, error))?;
            for name in gone.difference(&names) {
                let inner = path.join(OsStr::from_bytes(name.as_bytes()));
                if let Some(before) = stat_entry(lower, name, &inner)? {
                    self.change(Change::removed(inner, before.node))?;
                }
            }
        }
        Ok(())
    }

    fn name(
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
        // It may go while we look; then it is no change.
        let Some(mut after) = stat_entry(upper, name, &inner)? else { return Ok(()) };
        if after.is_whiteout() {
            return match before {
                Some(before) => self.change(Change::removed(inner, before.node)),
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
            is_copy,
            is_closed: false,
            before: before.map(|before| before.node),
            leaves: false,
            is_trap: false,
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
                change.is_closed = new.is_none();
                if change.is_closed || before.as_ref() != Some(&after.node) {
                    self.change(change)?;
                }
                let old = lower.filter(|_| was_folder).map(open).transpose()?.flatten();
                new.map_or(Ok(()), |new| self.folder(old.as_ref(), &new, &inner, depth + 1))
            }
            (Some(Node::File { mode, bytes }), Node::File { mode: new, bytes: size }) if bytes == size => {
                let same_mode = mode == new;
                // What cannot be compared is not the same.
                change.same_content = lower.is_some_and(|lower| {
                    same_content((lower, file_name.as_ref()), (upper, file_name.as_ref())).unwrap_or(false)
                });
                if change.same_content && same_mode { Ok(()) } else { self.change(change) }
            }
            (Some(same), new) if same == new && !matches!(new, Node::Other) => Ok(()),
            (_, Node::Symlink { to }) => {
                change.leaves = !link_stays_inside(&change.path, to)
                    || resolve_beneath::leads_out(self.root, &path.join(to));
                self.change(change)
            }
            _ => self.change(change),
        }
    }

    fn change(&mut self, change: Change) -> Result<(), WorkspaceError> {
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

/// Opens a folder in which names can be looked up.
fn open_searchable(folder: &OwnedFd, name: &Path) -> rustix::io::Result<OwnedFd> {
    let opened = resolve_beneath::open_folder(folder, name)?;
    rustix::fs::accessat(&opened, ".", Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(opened)
}

/// Whether the overlay made it of something that was in the workspace.
fn is_copy(folder: &OwnedFd, name: &CString) -> bool {
    let name = format!("/proc/self/fd/{}/", folder.as_raw_fd())
        .into_bytes()
        .into_iter()
        .chain(name.to_bytes().iter().copied());
    let name: Vec<u8> = name.collect();
    let mut value = [0; 8];
    // Longer than any mark that is understood.
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

/// Whether the overlay left this mark on a folder.
fn has_xattr(folder: &OwnedFd, name: &str) -> rustix::io::Result<bool> {
    let mut value = [0; 8];
    // By its descriptor's name, because a folder that is only readable can still be asked.
    match rustix::fs::getxattr(format!("/proc/self/fd/{}", folder.as_raw_fd()), name, &mut value) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        // Longer than any mark that is understood.
        Err(Errno::RANGE) => Ok(true),
        Err(error) => Err(error),
    }
}
