//! Finds what of a workspace is hidden or frozen, and covers it.
//!
//! A hidden file has all its names covered: another name of the same file would show it too. The folders above something
//! frozen become mounts of their own, because a folder can be renamed together with what is mounted below it, and a new one
//! put in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use tribune_contract::{Failed, Stage, Workspace, WorkspaceSource};

use super::failure::{At as _, failed};
use super::root::Root;
use crate::pattern::Pattern;

/// Names that are looked at. A larger workspace takes longer to search than anyone waits for a start.
const MAX_NAMES: usize = 2_000_000;

/// Mounts of one workspace.
const MAX_MASKS: usize = 8192;

/// Folders in folders.
const MAX_DEPTH: usize = 256;

const REMEDY: &str = "Use a smaller workspace, or fewer patterns";

/// What is covered, from the root of the workspace.
#[derive(Debug, Default)]
struct Found {
    hidden: BTreeSet<String>,
    frozen: BTreeSet<String>,
    /// Files with several names, by device and inode.
    linked: BTreeMap<(u64, u64), Vec<String>>,
    hidden_inodes: BTreeSet<(u64, u64)>,
    links: Vec<String>,
    seen: usize,
}

/// Covers everything that the patterns name. Returns how many names that were.
pub(super) fn cover(root: &Root, workspace: &Workspace) -> Result<u32, Failed> {
    let hide: Vec<Pattern> = workspace.hide.iter().map(|text| Pattern::new(text)).collect();
    let freeze: Vec<Pattern> = workspace.freeze.iter().map(|text| Pattern::new(text)).collect();
    if hide.is_empty() && freeze.is_empty() {
        return Ok(0);
    }
    let doing = "searching the workspace";
    let folder = root
        .open(&workspace.target)
        .and_then(|held| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::openat(&held, ".", flags, Mode::empty())
        })
        .at(Stage::Workspace, doing, "Make the workspace a folder that the sandbox's user can read")?;
    let mut found = Found::default();
    found.search(&folder, "", 0, &hide, &freeze)?;
    for inode in &found.hidden_inodes {
        found.hidden.extend(found.linked.get(inode).into_iter().flatten().cloned());
    }
    if matches!(workspace.source, WorkspaceSource::Direct { .. })
        && let Some(link) = found.links.first()
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
    for path in &found.frozen {
        pinned.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
    }
    if found.hidden.len() + found.frozen.len() + pinned.len() > MAX_MASKS {
        return Err(failed(Stage::Workspace, format!("more than {MAX_MASKS} names are protected"), REMEDY));
    }
    // Sorted, so that a folder is pinned before what is in it.
    for path in pinned {
        root.pin(&folder, path).at(Stage::Workspace, format_args!("pinning `{path}`"), REMEDY)?;
    }
    for path in &found.frozen {
        root.freeze(&folder, path).at(Stage::Workspace, format_args!("freezing `{path}`"), REMEDY)?;
    }
    for path in &found.hidden {
        root.hide(&folder, path).at(Stage::Workspace, format_args!("hiding `{path}`"), REMEDY)?;
    }
    Ok(u32::try_from(found.hidden.len() + found.frozen.len()).unwrap_or(u32::MAX))
}

impl Found {
    fn search(
        &mut self,
        folder: &OwnedFd,
        path: &str,
        depth: usize,
        hide: &[Pattern],
        freeze: &[Pattern],
    ) -> Result<(), Failed> {
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
            self.entry(folder, path, entry.file_name(), entry.file_type(), depth, hide, freeze)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one entry of a search, and the search's own state")]
    fn entry(
        &mut self,
        folder: &OwnedFd,
        path: &str,
        name: &CStr,
        kind: FileType,
        depth: usize,
        hide: &[Pattern],
        freeze: &[Pattern],
    ) -> Result<(), Failed> {
        // A name that is no text is compared as what can be read of it.
        let shown = name.to_string_lossy();
        let inner = if path.is_empty() { shown.to_string() } else { format!("{path}/{shown}") };
        let doing = || format!("reading `{inner}` in the workspace");
        let is_hidden = hide.iter().any(|pattern| pattern.matches(&inner));
        let is_frozen = freeze.iter().any(|pattern| pattern.matches(&inner));
        if (is_hidden || is_frozen) && name.to_str().is_err() {
            let cause = format!("`{inner}` is to be protected, and its name is no text");
            return Err(failed(Stage::Workspace, cause, "Rename it"));
        }
        match kind {
            FileType::Symlink => {
                if is_hidden || is_frozen {
                    self.links.push(inner);
                }
            }
            FileType::Directory => {
                if is_hidden {
                    self.hidden.insert(inner);
                    return Ok(());
                }
                if is_frozen {
                    self.frozen.insert(inner.clone());
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match rustix::fs::openat(folder, name, flags, Mode::empty()) {
                    Ok(next) => self.search(&next, &inner, depth + 1, hide, freeze)?,
                    // What the sandbox's user cannot read, it cannot read inside either; gone is gone.
                    Err(rustix::io::Errno::ACCESS | rustix::io::Errno::NOENT) => {}
                    Err(error) => return Err(error).at(Stage::Workspace, doing(), REMEDY),
                }
            }
            _ => {
                if !hide.is_empty()
                    && let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                {
                    let inode = (stat.st_dev, stat.st_ino);
                    if stat.st_nlink > 1 {
                        self.linked.entry(inode).or_default().push(inner.clone());
                    }
                    if is_hidden {
                        self.hidden_inodes.insert(inode);
                    }
                }
                if is_hidden {
                    self.hidden.insert(inner);
                } else if is_frozen {
                    self.frozen.insert(inner);
                }
            }
        }
        Ok(())
    }
}
