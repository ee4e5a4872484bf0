//! Finds what of a workspace is hidden or frozen, and covers it.
//!
//! A hidden file has all its names covered: another name of the same file would show it too. The folders above something
//! frozen become mounts of their own, because a folder can be renamed together with what is mounted below it, and a new one
//! put in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tribune_contract::{Failed, Stage, Workspace, WorkspaceSource};

use super::failure::{At as _, failed};
use super::root::{Covered, Root};
use crate::pattern::Pattern;

/// Names that are looked at. A larger workspace takes longer to search than anyone waits for a start.
const MAX_NAMES: usize = 2_000_000;

/// Mounts of one workspace.
const MAX_MASKS: usize = 8192;

/// Folders in folders.
const MAX_DEPTH: usize = 256;

const REMEDY: &str = "Use a smaller workspace, or fewer patterns";

/// Covers everything that the patterns name. Returns how many names that were.
pub(super) fn cover(root: &Root, workspace: &Workspace) -> Result<u32, Failed> {
    if workspace.hide.is_empty() && workspace.freeze.is_empty() {
        return Ok(0);
    }
    let folder = root
        .open(&workspace.target)
        .and_then(|held| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::openat(&held, ".", flags, Mode::empty())
        })
        .at(
            Stage::Workspace,
            "searching the workspace",
            "Make the workspace a folder that the sandbox's user can read",
        )?;
    let mut search = Search::new(&folder, workspace);
    search.folder(&folder, "", 0)?;
    for inode in &search.hidden_inodes {
        search.hidden.extend(search.linked.get(inode).into_iter().flatten().cloned());
    }
    if matches!(workspace.source, WorkspaceSource::Direct { .. })
        && let Some(link) = search.loose.first()
    {
        return Err(failed(
            Stage::Workspace,
            format!(
                "`{link}` is a link, and a link cannot be protected where changes go to the folder at once"
            ),
            "Make it a file or a folder, or choose the workspace mode `overlay`",
        ));
    }

    let mut pinned = BTreeSet::new();
    for path in &search.frozen {
        pinned.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
    }
    if search.hidden.len() + search.frozen.len() + pinned.len() > MAX_MASKS {
        return Err(failed(Stage::Workspace, format!("more than {MAX_MASKS} names are protected"), REMEDY));
    }
    // Sorted, so that a folder is pinned before what is in it.
    for path in pinned {
        covered(root.pin(&folder, path), path)?;
    }
    for path in &search.frozen {
        covered(root.freeze(&folder, path), path)?;
    }
    for path in &search.hidden {
        covered(root.hide(&folder, path), path)?;
    }
    Ok(u32::try_from(search.hidden.len() + search.frozen.len()).unwrap_or(u32::MAX))
}

/// What was found a moment ago is covered now, or nothing is started: a name that cannot be found again may be reached in
/// another way.
fn covered(done: rustix::io::Result<Covered>, path: &str) -> Result<(), Failed> {
    match done.at(Stage::Workspace, format_args!("protecting `{path}`"), REMEDY)? {
        Covered::Yes => Ok(()),
        Covered::NotThere => {
            let cause = format!("`{path}` is to be protected, and was gone when it came to that");
            Err(failed(
                Stage::Workspace,
                cause,
                "Try again; if it stays, rename what has a name that is no text",
            ))
        }
    }
}

/// What is covered, from the root of the workspace.
#[derive(Debug)]
struct Search<'a> {
    root: &'a OwnedFd,
    /// Where the workspace is inside, for links that name it.
    target: &'a Path,
    hide: Vec<Pattern>,
    freeze: Vec<Pattern>,
    hidden: BTreeSet<String>,
    frozen: BTreeSet<String>,
    /// Files with several names, by device and inode.
    linked: BTreeMap<(u64, u64), Vec<String>>,
    hidden_inodes: BTreeSet<(u64, u64)>,
    /// Links that cannot be frozen, because a mount does not lie over a link.
    loose: Vec<String>,
    seen: usize,
}

impl<'a> Search<'a> {
    fn new(root: &'a OwnedFd, workspace: &'a Workspace) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        Self {
            root,
            target: &workspace.target,
            hide: patterns(&workspace.hide),
            freeze: patterns(&workspace.freeze),
            hidden: BTreeSet::new(),
            frozen: BTreeSet::new(),
            linked: BTreeMap::new(),
            hidden_inodes: BTreeSet::new(),
            loose: Vec::new(),
            seen: 0,
        }
    }

    fn folder(&mut self, folder: &OwnedFd, path: &str, depth: usize) -> Result<(), Failed> {
        let doing = || format!("searching `{path}` in the workspace");
        let too_much = |what: &str| failed(Stage::Workspace, format!("the workspace has {what}"), REMEDY);
        if depth > MAX_DEPTH {
            return Err(too_much("more than 256 folders in each other"));
        }
        let entries = Dir::read_from(folder).at(Stage::Workspace, doing(), REMEDY)?;
        for entry in entries {
            let entry = entry.at(Stage::Workspace, doing(), REMEDY)?;
            if [c".", c".."].contains(&entry.file_name()) {
                continue;
            }
            self.seen += 1;
            if self.seen > MAX_NAMES {
                return Err(too_much("more than 2,000,000 names"));
            }
            // A name that is no text is compared as what can be read of it.
            let shown = entry.file_name().to_string_lossy();
            let inner = if path.is_empty() { shown.to_string() } else { format!("{path}/{shown}") };
            let is_hidden = self.hide.iter().any(|pattern| pattern.matches(&inner));
            let is_frozen = self.freeze.iter().any(|pattern| pattern.matches(&inner));
            let is_text = entry.file_name().to_str().is_ok() && !path.contains(char::REPLACEMENT_CHARACTER);
            if (is_hidden || is_frozen) && !is_text {
                let cause = format!("`{inner}` is to be protected, and its path is no text");
                return Err(failed(
                    Stage::Workspace,
                    cause,
                    "Rename the folder or file whose name is no text",
                ));
            }
            match entry.file_type() {
                FileType::Symlink => {
                    if is_hidden {
                        self.hidden.extend(self.end(folder, entry.file_name(), path));
                    }
                    if is_frozen {
                        self.loose.push(inner);
                    }
                }
                FileType::Directory if is_hidden => drop(self.hidden.insert(inner)),
                FileType::Directory => {
                    if is_frozen {
                        self.frozen.insert(inner.clone());
                    }
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    match rustix::fs::openat(folder, entry.file_name(), flags, Mode::empty()) {
                        Ok(next) => self.folder(&next, &inner, depth + 1)?,
                        // What the sandbox's user cannot read, it cannot read inside either; gone is gone.
                        Err(Errno::ACCESS | Errno::NOENT) => {}
                        Err(error) => return Err(error).at(Stage::Workspace, doing(), REMEDY),
                    }
                }
                _ => self.file(folder, entry.file_name(), inner, is_hidden, is_frozen),
            }
        }
        Ok(())
    }

    fn file(&mut self, folder: &OwnedFd, name: &CStr, path: String, is_hidden: bool, is_frozen: bool) {
        if !self.hide.is_empty()
            && let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        {
            let inode = (stat.st_dev, stat.st_ino);
            if stat.st_nlink > 1 {
                self.linked.entry(inode).or_default().push(path.clone());
            }
            if is_hidden {
                self.hidden_inodes.insert(inode);
            }
        }
        if is_hidden {
            self.hidden.insert(path);
        } else if is_frozen {
            self.frozen.insert(path);
        }
    }

    /// Where a hidden link leads, if that is in the workspace. It is hidden there, because a mount does not lie over a link.
    fn end(&self, folder: &OwnedFd, name: &CStr, path: &str) -> Option<String> {
        let text = rustix::fs::readlinkat(folder, name, Vec::new()).ok()?;
        let text = Path::new(OsStr::from_bytes(text.as_bytes()));
        let way = match text.strip_prefix(self.target) {
            Ok(inside) => inside.to_owned(),
            Err(_) => Path::new(path).join(text),
        };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let end = rustix::fs::openat2(self.root, &way, flags, Mode::empty(), resolve).ok()?;
        let place = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok();
        let end = place(&end)?.strip_prefix(place(self.root)?).ok()?.to_str()?.to_owned();
        (!end.is_empty()).then_some(end)
    }
}
