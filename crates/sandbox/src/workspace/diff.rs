//! What a session changed.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::Dir;
use rustix::io::Errno;
use tribune_contract::{HOST_TRAPS, Pattern};

use super::node::{Found, Node, same_content, stays_inside};
use super::{Layers, MAX_CHANGES, WorkspaceError, beneath, unreadable};

/// Folders in folders.
const MAX_DEPTH: usize = 256;

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
    #[must_use]
    pub fn kind(&self) -> Kind {
        match (&self.before, &self.after) {
            (None, _) => Kind::Added,
            (Some(_), None) => Kind::Removed,
            (Some(Node::Folder { .. }), Some(Node::Folder { .. })) => Kind::Mode,
            (Some(Node::File { mode, bytes }), Some(Node::File { mode: new, bytes: same }))
                if mode != new && bytes == same =>
            {
                Kind::Mode
            }
            (Some(_), Some(_)) => Kind::Changed,
        }
    }
}

/// Compares a workspace with the changes of a session.
pub fn diff(lower: &Path, layers: &Layers) -> Result<Diff, WorkspaceError> {
    let upper = layers.upper();
    let mut comparing = Comparing {
        traps: HOST_TRAPS.iter().map(|trap| Pattern::new(trap)).collect(),
        diff: Diff::default(),
    };
    let lower_folder = beneath::folder(lower).map_err(|error| unreadable(lower, error))?;
    let upper_folder = beneath::folder(&upper).map_err(|error| unreadable(&upper, error))?;
    comparing.folder(Some(&lower_folder), &upper_folder, Path::new(""), 0)?;
    Ok(comparing.diff)
}

struct Comparing {
    traps: Vec<Pattern>,
    diff: Diff,
}

impl Comparing {
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
        let is_opaque = attribute(upper, "user.overlay.opaque").map_err(|error| unreadable(path, error))?;
        for known in ["user.overlay.redirect", "user.overlay.metacopy"] {
            if attribute(upper, known).map_err(|error| unreadable(path, error))? {
                return Err(WorkspaceError::Unknown { path: path.to_owned() });
            }
        }
        let names = names(upper).map_err(|error| unreadable(path, error))?;
        for name in &names {
            self.name(lower, upper, path, name, depth)?;
        }
        if is_opaque && let Some(lower) = lower {
            // Whatever is not in the new folder is gone.
            let gone = self::names(lower).map_err(|error| unreadable(path, error))?;
            for name in gone.difference(&names) {
                let inner = path.join(OsStr::from_bytes(name.as_bytes()));
                let before = found(lower, name, &inner)?.map(|found| found.node);
                self.change(inner, before, None, false)?;
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
            Some(lower) => found(lower, name, &inner)?,
            None => None,
        };
        // It may go while we look; then it is no change.
        let Some(after) = found(upper, name, &inner)? else { return Ok(()) };
        if after.is_whiteout() {
            return match before {
                Some(before) => self.change(inner, Some(before.node), None, false),
                None => Ok(()),
            };
        }
        let before = before.map(|before| before.node);
        let sets_id = after.sets_id();
        match (&before, &after.node) {
            (before, Node::Folder { .. }) => {
                if before.as_ref() != Some(&after.node) {
                    self.change(inner.clone(), before.clone(), Some(after.node.clone()), sets_id)?;
                }
                let open = |folder: &OwnedFd| {
                    beneath::open_folder(folder, file_name.as_ref())
                        .map_err(|error| unreadable(&inner, error))
                };
                let was_folder = matches!(before, Some(Node::Folder { .. }));
                let lower = lower.filter(|_| was_folder).map(open).transpose()?;
                self.folder(lower.as_ref(), &open(upper)?, &inner, depth + 1)
            }
            (Some(Node::File { mode, bytes }), Node::File { mode: new, bytes: size })
                if mode == new && bytes == size =>
            {
                let Some(lower) = lower else { return Ok(()) };
                let is_same = same_content((lower, file_name.as_ref()), (upper, file_name.as_ref()))
                    .map_err(|error| unreadable(&inner, error))?;
                if is_same { Ok(()) } else { self.change(inner, before, Some(after.node), sets_id) }
            }
            (Some(same), new) if same == new && !matches!(new, Node::Other) => Ok(()),
            _ => self.change(inner, before, Some(after.node), sets_id),
        }
    }

    fn change(
        &mut self,
        path: PathBuf,
        before: Option<Node>,
        after: Option<Node>,
        sets_id: bool,
    ) -> Result<(), WorkspaceError> {
        if self.diff.changes.len() >= MAX_CHANGES {
            return Err(WorkspaceError::TooMany);
        }
        // What is in a trap is one too.
        let mut above = path.ancestors().map(|path| path.to_string_lossy()).filter(|path| !path.is_empty());
        // A `.git` that is no folder leads git wherever it says.
        let is_git = path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git"));
        let is_trap = above.any(|path| self.traps.iter().any(|trap| trap.matches(&path)))
            || is_git && !matches!(after, Some(Node::Folder { .. }));
        let leaves = matches!(&after, Some(Node::Symlink { to }) if !stays_inside(&path, to));
        if let Some(Node::File { bytes, .. }) = &after {
            self.diff.bytes = self.diff.bytes.saturating_add(*bytes);
        }
        self.diff.changes.push(Change { path, before, after, is_trap, leaves, sets_id });
        Ok(())
    }
}

fn found(folder: &OwnedFd, name: &CString, path: &Path) -> Result<Option<Found>, WorkspaceError> {
    Found::in_folder(folder, OsStr::from_bytes(name.as_bytes()).as_ref())
        .map_err(|error| unreadable(path, error))
}

fn names(folder: &OwnedFd) -> rustix::io::Result<BTreeSet<CString>> {
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
fn attribute(folder: &OwnedFd, name: &str) -> rustix::io::Result<bool> {
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
