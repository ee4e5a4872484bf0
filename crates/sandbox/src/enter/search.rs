//! Finds what of a shown folder is hidden or frozen. Nothing is changed here.
//!
//! Whoever works in the workspace chose its names, so none of them may stop the next command: what cannot be looked at, or
//! not name by name, is frozen as a whole. More is protected then, never less.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tribune_contract::{Failed, Pattern, Stage};

use super::failure::At as _;
use super::sockets::answers;
use crate::names::{Entry, MAX_FOLDER_BYTES, MAX_NAMES, entries, is_gits, is_repository};

/// What is covered, by its path from the root of the workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) hidden: BTreeSet<PathBuf>,
    pub(super) frozen: BTreeSet<PathBuf>,
    /// Frozen names that are links, with the file in the workspace that each leads to, if it does.
    pub(super) links: BTreeMap<PathBuf, Option<PathBuf>>,
}

/// What is looked for in a shown folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Where the folder is inside, for links that name it.
    pub(super) target: &'a Path,
    pub(super) hide: &'a [String],
    pub(super) freeze: &'a [String],
    /// Whether a program inside could reach who listens at a socket there. In an overlay nobody can.
    pub(super) sockets: bool,
}

/// Looks through a folder.
pub(super) fn search(folder: &OwnedFd, wanted: Wanted<'_>) -> Result<Found, Failed> {
    let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
    let mut search = Search {
        root: folder,
        target: wanted.target,
        hide: patterns(wanted.hide),
        freeze: patterns(wanted.freeze),
        sockets: wanted.sockets,
        found: Found::default(),
        hidden_inodes: BTreeSet::new(),
        frozen_inodes: BTreeSet::new(),
        seen: 0,
    };
    search.walk(Look::ForNames)?;
    if !search.hidden_inodes.is_empty() || !search.frozen_inodes.is_empty() {
        search.seen = 0;
        search.walk(Look::ForOtherNames)?;
    }
    Ok(search.found)
}

/// What a walk is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    ForNames,
    /// Of files that were found and have several.
    ForOtherNames,
}

#[derive(Debug)]
struct Search<'a> {
    root: &'a OwnedFd,
    target: &'a Path,
    hide: Vec<Pattern>,
    freeze: Vec<Pattern>,
    sockets: bool,
    found: Found,
    /// Files with several names, by device and inode.
    hidden_inodes: BTreeSet<(u64, u64)>,
    frozen_inodes: BTreeSet<(u64, u64)>,
    seen: usize,
}

impl Search<'_> {
    /// Goes through folder after folder, the nearest first. Whether a folder is frozen already goes with it.
    fn walk(&mut self, look: Look) -> Result<(), Failed> {
        let mut folders = VecDeque::from([(PathBuf::new(), false)]);
        while let Some((path, is_frozen)) = folders.pop_front() {
            let is_too_much = self.seen > MAX_NAMES || path.as_os_str().as_bytes().len() > MAX_FOLDER_BYTES;
            if is_too_much && !path.as_os_str().is_empty() {
                self.cover_unseen(path, is_frozen);
                continue;
            }
            let Some(folder) = self.open(&path)? else { continue };
            let entries = entries(&folder).at(
                Stage::Workspace,
                format_args!("searching `{}` in the workspace", path.display()),
                "Check the disk that the workspace is on",
            )?;
            self.seen += entries.len();
            let inner = match look {
                Look::ForNames => self.names(&folder, &path, &entries, is_frozen),
                Look::ForOtherNames => self.other_names(&folder, &path, &entries),
            };
            folders.extend(inner);
        }
        Ok(())
    }

    /// A folder, or nothing if it is gone or the sandbox's user cannot read it: then it cannot inside either.
    fn open(&self, path: &Path) -> Result<Option<OwnedFd>, Failed> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        let name = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match rustix::fs::openat2(self.root, name, flags, Mode::empty(), resolve) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error).at(
                Stage::Workspace,
                format_args!("searching `{}` in the workspace", path.display()),
                "Check the disk that the workspace is on",
            ),
        }
    }

    fn cover_unseen(&mut self, path: PathBuf, is_frozen: bool) {
        if !self.hide.is_empty() {
            self.found.hidden.insert(path);
        } else if !is_frozen && !self.freeze.is_empty() {
            self.found.frozen.insert(path);
        }
    }

    /// Finds the names in a folder. Returns the folders in it that are to be searched.
    fn names(
        &mut self,
        folder: &OwnedFd,
        path: &Path,
        entries: &[Entry],
        in_frozen: bool,
    ) -> Vec<(PathBuf, bool)> {
        let is_repository =
            is_repository(|wanted| entries.iter().any(|entry| entry.name == wanted.as_bytes()));
        let mut inner = Vec::new();
        for entry in entries {
            let own = path.join(OsStr::from_bytes(&entry.name));
            // A name that is no text is compared as what can be read of it.
            let shown = own.to_string_lossy();
            let is_hidden = self.hide.iter().any(|pattern| pattern.matches(&shown));
            let is_frozen = in_frozen
                || self.freeze.iter().any(|pattern| pattern.matches(&shown))
                || (!self.freeze.is_empty() && is_gits(entry, is_repository));
            match entry.kind {
                FileType::Symlink => {
                    let end = (is_hidden || is_frozen).then(|| self.end(folder, entry, path)).flatten();
                    if is_hidden {
                        self.found.hidden.extend(end);
                    } else if is_frozen {
                        self.link(own, end, in_frozen);
                    }
                }
                FileType::Socket if self.sockets && answers(folder, &entry.name) => {
                    self.found.hidden.insert(own);
                }
                FileType::Directory if is_hidden => drop(self.found.hidden.insert(own)),
                FileType::Directory => {
                    if is_frozen && !in_frozen {
                        self.found.frozen.insert(own.clone());
                    }
                    inner.push((own, is_frozen));
                }
                _ if is_hidden => {
                    self.hidden_inodes.extend(linked(folder, &entry.name));
                    self.found.hidden.insert(own);
                }
                _ if is_frozen => {
                    self.frozen_inodes.extend(linked(folder, &entry.name));
                    if !in_frozen {
                        self.found.frozen.insert(own);
                    }
                }
                _ => {}
            }
        }
        inner
    }

    /// A link with a frozen name: it stays as it is, and so does what it leads to. A repository is looked at by itself.
    fn link(&mut self, own: PathBuf, end: Option<PathBuf>, in_frozen: bool) {
        let stat =
            end.as_ref().and_then(|end| rustix::fs::statat(self.root, end, AtFlags::SYMLINK_NOFOLLOW).ok());
        let kind = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
        let is_git = own.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git"));
        let file = end.clone().filter(|_| kind == Some(FileType::RegularFile));
        if let Some(end) = end
            && (kind == Some(FileType::RegularFile) || kind == Some(FileType::Directory) && !is_git)
        {
            self.found.frozen.insert(end);
        }
        if !in_frozen {
            self.found.links.insert(own, file);
        }
    }

    fn other_names(&mut self, folder: &OwnedFd, path: &Path, entries: &[Entry]) -> Vec<(PathBuf, bool)> {
        let mut inner = Vec::new();
        for entry in entries {
            let own = path.join(OsStr::from_bytes(&entry.name));
            match entry.kind {
                FileType::Directory if self.found.hidden.contains(&own) => {}
                FileType::Directory => {
                    let is_frozen = self.found.frozen.contains(&own);
                    inner.push((own, is_frozen));
                }
                FileType::Symlink => {}
                _ => {
                    let Some(inode) = linked(folder, &entry.name) else { continue };
                    if self.hidden_inodes.contains(&inode) {
                        self.found.hidden.insert(own);
                    } else if self.frozen_inodes.contains(&inode) {
                        self.found.frozen.insert(own);
                    }
                }
            }
        }
        inner
    }

    /// Where a link leads, if that is in the workspace.
    fn end(&self, folder: &OwnedFd, link: &Entry, path: &Path) -> Option<PathBuf> {
        let text = rustix::fs::readlinkat(folder, OsStr::from_bytes(&link.name), Vec::new()).ok()?;
        let text = Path::new(OsStr::from_bytes(text.as_bytes()));
        let way = match text.strip_prefix(self.target) {
            Ok(inside) => inside.to_owned(),
            Err(_) => path.join(text),
        };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let end = rustix::fs::openat2(self.root, &way, flags, Mode::empty(), resolve).ok()?;
        let place = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok();
        let end = place(&end)?.strip_prefix(place(self.root)?).ok()?.to_owned();
        (!end.as_os_str().is_empty()).then_some(end)
    }
}

/// The device and inode of a file that has several names.
fn linked(folder: &OwnedFd, name: &[u8]) -> Option<(u64, u64)> {
    let stat = rustix::fs::statat(folder, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (stat.st_nlink > 1).then_some((stat.st_dev, stat.st_ino))
}
