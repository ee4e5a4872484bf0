//! Finds what of a shown folder is hidden or read_only. Nothing is changed here.
//!
//! Whoever works in the workspace chose its names, so none of them may stop the next command: what cannot be looked at, or
//! not name by name, is read_only as a whole. More is protected then, never less.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tribune_contract::{Failed, LaunchStage, PatternProgress, PatternSet};

use super::failure::AtStage as _;
use super::socket_probe::has_listener;
use super::symlink_trace::{self, HostView, LinkTrace, TracedDir};
use crate::dir_entries::{
    DirEntry, MAX_DIR_PATH_BYTES, MAX_ENTRIES, is_git_control_file, is_repository, read_entries,
};

/// How often a folder is looked through while others move what is in it. What is removed all the time stops nobody.
const MAX_ATTEMPTS: usize = 4;

/// What is covered, by its path from the root of the workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MaskSet {
    pub(super) hidden: BTreeSet<PathBuf>,
    pub(super) read_only: BTreeSet<PathBuf>,
    /// Frozen names that are links, with the file in the workspace that each leads to, if it does.
    pub(super) links: BTreeMap<PathBuf, Option<PathBuf>>,
    /// Links that lead to any of that, and folders that they lead through. They stay where and as they are.
    pub(super) pinned: BTreeSet<PathBuf>,
}

/// What is looked for in a shown folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanRequest<'a> {
    /// Where the folder is inside and where on this host, for links that name it.
    pub(super) names: &'a [&'a Path],
    pub(super) host: &'a HostView,
    pub(super) hide: &'a [String],
    pub(super) freeze: &'a [String],
    /// Whether a program inside could reach who listens at a socket there. In an overlay nobody can.
    pub(super) sockets: bool,
}

/// A folder that is looked through, open.
pub(super) type Shown<'a> = (&'a OwnedFd, ScanRequest<'a>);

/// Looks through folders of one box. What is hidden or read_only in one of them by a link or by another name is hidden or read_only in each
/// that it leads to.
pub(super) fn scan(folders: &[Shown<'_>]) -> Result<Vec<MaskSet>, Failed> {
    let mut all: Vec<DirScan<'_>> = folders.iter().map(|folder| DirScan::new(*folder)).collect();
    for _ in 0..MAX_ATTEMPTS {
        for search in &mut all {
            (search.seen, search.missed_moved_dir) = (0, false);
            search.scan_plain_paths()?;
            search.scan_linked_paths()?;
        }
        trace_between_dirs(&mut all)?;
        let hidden: Inodes = all.iter().flat_map(|search| &search.hidden_inodes).copied().collect();
        let read_only: Inodes = all.iter().flat_map(|search| &search.read_only_inodes).copied().collect();
        for search in all.iter_mut().filter(|_| !hidden.is_empty() || !read_only.is_empty()) {
            (search.hidden_inodes, search.read_only_inodes) = (hidden.clone(), read_only.clone());
            search.seen = 0;
            search.find_hard_links()?;
        }
        if !all.iter().any(|search| search.missed_moved_dir) {
            break;
        }
    }
    Ok(all.into_iter().map(|search| search.found).collect())
}

/// Follows what leads out of a folder into another one of the box. What is at its end there is covered whole: by how much of a pattern
/// it leads there is not looked at.
fn trace_between_dirs(all: &mut [DirScan<'_>]) -> Result<(), Failed> {
    let mut been: BTreeSet<(PathBuf, MaskKind)> = BTreeSet::new();
    while let Some((path, cover)) =
        all.iter_mut().find_map(|search| search.out.pop_first()).filter(|_| been.len() < MAX_ENTRIES)
    {
        if !been.insert((path.clone(), cover)) {
            continue;
        }
        for search in all.iter_mut() {
            if let Some(trace) = symlink_trace::trace_path(search.ground(), &path) {
                search.mask_trace_ends(trace, cover);
                search.scan_linked_paths()?;
            }
        }
    }
    Ok(())
}

/// What is hidden in folders of one session, for whoever opens files there from outside of a box. Each folder is known by all of its
/// names. It is what the same patterns hide in a box: by their own names, by where hidden links lead, and through links to folders.
pub fn hidden_in(
    folders: &[(&OwnedFd, &[&Path])],
    hide: &[String],
) -> Result<Vec<BTreeSet<PathBuf>>, Failed> {
    let host = &HostView::default();
    let wanted = |names| ScanRequest { names, host, hide, freeze: &[], sockets: false };
    let shown: Vec<Shown<'_>> = folders.iter().map(|(folder, names)| (*folder, wanted(*names))).collect();
    Ok(scan(&shown)?.into_iter().map(|found| found.hidden).collect())
}

/// Files with several names, by device and inode.
type Inodes = BTreeSet<(u64, u64)>;

/// How something is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MaskKind {
    Hide,
    ReadOnly,
    /// Not at all, but what it leads through stays.
    Pin,
}

/// A folder that is to be looked at.
#[derive(Debug, Clone, Default)]
struct PendingDir {
    /// Its path without links.
    path: PathBuf,
    /// How far the way to it has come in the patterns.
    hide: PatternProgress,
    freeze: PatternProgress,
    /// Whether all of it is hidden or read_only already.
    is_hidden: bool,
    is_read_only: bool,
    /// If the way goes through links: what must stay for it to lead here.
    through: Option<Rc<Vec<PathBuf>>>,
}

impl PendingDir {
    fn hidden(path: PathBuf) -> Self {
        Self { path, is_hidden: true, ..Self::default() }
    }

    const fn matches_nothing(&self) -> bool {
        self.hide.is_empty() && self.freeze.is_empty() && !self.is_hidden && !self.is_read_only
    }
}

#[derive(Debug)]
struct DirScan<'a> {
    root: &'a OwnedFd,
    names: Vec<PathBuf>,
    host: &'a HostView,
    hide: PatternSet,
    freeze: PatternSet,
    sockets: bool,
    found: MaskSet,
    hidden_inodes: Inodes,
    read_only_inodes: Inodes,
    /// Where links lead out of the folder that are hidden or read_only, or whose names are the beginning of a pattern.
    out: BTreeSet<(PathBuf, MaskKind)>,
    /// Folders that links lead to whose names are the beginning of a pattern.
    linked_dirs: VecDeque<PendingDir>,
    seen: usize,
    /// Whether a folder was no longer where it was listed.
    missed_moved_dir: bool,
}

impl<'a> DirScan<'a> {
    fn new((root, wanted): Shown<'a>) -> Self {
        Self {
            root,
            names: symlink_trace::with_real_paths(wanted.names, wanted.host),
            host: wanted.host,
            hide: PatternSet::new(wanted.hide),
            freeze: PatternSet::new(wanted.freeze),
            sockets: wanted.sockets,
            found: MaskSet::default(),
            hidden_inodes: Inodes::new(),
            read_only_inodes: Inodes::new(),
            out: BTreeSet::new(),
            linked_dirs: VecDeque::new(),
            seen: 0,
            missed_moved_dir: false,
        }
    }

    fn ground(&self) -> TracedDir<'_> {
        (self.root, &self.names, self.host)
    }

    /// Covers what a way from another folder, or around this one, leads to.
    fn mask_trace_ends(&mut self, trace: LinkTrace, cover: MaskKind) {
        self.seen += trace.steps;
        self.found.pinned.extend(trace.passed);
        self.out.extend(trace.out.into_iter().map(|path| (path, cover)));
        self.out.extend(trace.around.into_iter().map(|path| (path, MaskKind::Pin)));
        // The folder as a whole is looked at by itself, and so is everything in it.
        for (end, kind) in trace.ends.into_iter().filter(|(end, _)| !is_root(end)) {
            let inode = inode_if_hard_linked(self.root, end.as_os_str().as_bytes());
            let (covered, inodes, visit) = match cover {
                MaskKind::Hide => {
                    (&mut self.found.hidden, &mut self.hidden_inodes, PendingDir::hidden(end.clone()))
                }
                MaskKind::ReadOnly => {
                    let visit = PendingDir { path: end.clone(), is_read_only: true, ..PendingDir::default() };
                    (&mut self.found.read_only, &mut self.read_only_inodes, visit)
                }
                MaskKind::Pin => continue,
            };
            inodes.extend(inode);
            covered.insert(end);
            self.linked_dirs.extend((kind == FileType::Directory).then_some(visit));
        }
    }

    /// Goes through folder after folder, the nearest first.
    fn scan_plain_paths(&mut self) -> Result<(), Failed> {
        let start =
            PendingDir { hide: self.hide.start(), freeze: self.freeze.start(), ..PendingDir::default() };
        let mut folders = VecDeque::from([start]);
        while let Some(visit) = folders.pop_front() {
            folders.extend(self.visit(&visit)?);
        }
        Ok(())
    }

    /// Goes through what links lead to, as far as more is hidden or read_only by such a way than by the plain one. No folder is
    /// looked at twice for the same, so that links in a circle come to an end.
    fn scan_linked_paths(&mut self) -> Result<(), Failed> {
        let mut been: BTreeMap<PathBuf, PendingDir> = BTreeMap::new();
        while let Some(mut visit) = self.linked_dirs.pop_front() {
            let before = been.entry(visit.path.clone()).or_insert_with(|| {
                let (hide, freeze) = self.progress_at(&visit.path);
                PendingDir { hide, freeze, ..PendingDir::default() }
            });
            visit.hide = visit.hide.beyond(&before.hide);
            visit.freeze = visit.freeze.beyond(&before.freeze);
            let is_more = visit.is_hidden && !before.is_hidden || visit.is_read_only && !before.is_read_only;
            if visit.hide.is_empty() && visit.freeze.is_empty() && !is_more {
                continue;
            }
            before.hide = before.hide.and(&visit.hide);
            before.freeze = before.freeze.and(&visit.freeze);
            before.is_hidden |= visit.is_hidden;
            before.is_read_only |= visit.is_read_only;
            let inner = self.visit(&visit)?;
            self.linked_dirs.extend(inner.into_iter().filter(|inner| !inner.matches_nothing()));
        }
        Ok(())
    }

    /// How far the plain way to a folder comes.
    fn progress_at(&self, path: &Path) -> (PatternProgress, PatternProgress) {
        let start = (self.hide.start(), self.freeze.start());
        path.components().fold(start, |(hide, freeze), part| {
            let name = part.as_os_str().to_string_lossy();
            (self.hide.step(&hide, &name), self.freeze.step(&freeze, &name))
        })
    }

    /// Looks at one folder. Returns the folders in it.
    fn visit(&mut self, visit: &PendingDir) -> Result<Vec<PendingDir>, Failed> {
        if self.exceeds_budget(&visit.path) {
            if visit.is_hidden {
                // So is this.
            } else if !self.hide.is_empty() {
                self.found.hidden.insert(visit.path.clone());
            } else if !visit.is_read_only && !self.freeze.is_empty() {
                self.found.read_only.insert(visit.path.clone());
            }
            return Ok(Vec::new());
        }
        let Some((folder, entries)) = self.list(&visit.path)? else { return Ok(Vec::new()) };
        Ok(match visit.is_hidden {
            true => self.scan_hidden_dir(&folder, visit, &entries),
            false => self.names(&folder, visit, &entries),
        })
    }

    /// What is in a hidden folder is hidden, and what has other names elsewhere under those too. Links in it lead to what has its
    /// own name.
    fn scan_hidden_dir(
        &mut self,
        folder: &OwnedFd,
        visit: &PendingDir,
        entries: &[DirEntry],
    ) -> Vec<PendingDir> {
        let mut inner = Vec::new();
        for entry in entries {
            match entry.kind {
                FileType::Symlink => {}
                FileType::Directory => {
                    let path = visit.path.join(OsStr::from_bytes(&entry.name));
                    inner.push(PendingDir { path, ..visit.clone() });
                }
                _ => self.hidden_inodes.extend(inode_if_hard_linked(folder, &entry.name)),
            }
        }
        inner
    }

    fn exceeds_budget(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes().len();
        bytes != 0 && (self.seen > MAX_ENTRIES || bytes > MAX_DIR_PATH_BYTES)
    }

    /// A folder with its names, or nothing if it is gone or the sandbox's user cannot read it: then it cannot inside either.
    fn list(&mut self, path: &Path) -> Result<Option<(OwnedFd, Vec<DirEntry>)>, Failed> {
        const REMEDY: &str = "Check the disk that the workspace is on";
        let doing = format_args!("searching `{}` in the workspace", path.display());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        let name = if is_root(path) { Path::new(".") } else { path };
        let folder = match rustix::fs::openat2(self.root, name, flags, Mode::empty(), resolve) {
            Err(Errno::ACCESS) => return Ok(None),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                self.missed_moved_dir = true;
                return Ok(None);
            }
            folder => folder.at(LaunchStage::Workspace, doing, REMEDY)?,
        };
        let entries = read_entries(&folder).at(LaunchStage::Workspace, doing, REMEDY)?;
        self.seen += entries.len();
        Ok(Some((folder, entries)))
    }

    /// Finds the names in a folder. Returns the folders in it that are to be searched.
    fn names(&mut self, folder: &OwnedFd, visit: &PendingDir, entries: &[DirEntry]) -> Vec<PendingDir> {
        let is_repository =
            is_repository(|wanted| entries.iter().any(|entry| entry.name == wanted.as_bytes()));
        let (in_read_only, is_plain) = (visit.is_read_only, visit.through.is_none());
        let mut inner = Vec::new();
        for entry in entries {
            let own = visit.path.join(OsStr::from_bytes(&entry.name));
            // A name that is no text is compared as what can be read of it.
            let name = String::from_utf8_lossy(&entry.name);
            let is_hidden = self.hide.matches(&visit.hide, &name);
            let is_read_only = in_read_only
                || self.freeze.matches(&visit.freeze, &name)
                || (is_plain && !self.freeze.is_empty() && is_git_control_file(entry, is_repository));
            let is_found = is_hidden || is_read_only && !in_read_only;
            if let Some(through) = visit.through.as_ref().filter(|_| is_found) {
                self.found.pinned.extend(through.iter().cloned());
            }
            match entry.kind {
                FileType::Symlink => self.link(visit, &own, (is_hidden, is_read_only)),
                FileType::Socket if self.sockets && has_listener(folder, &entry.name) => {
                    self.found.hidden.insert(own);
                }
                FileType::Directory if is_hidden => {
                    self.found.hidden.insert(own.clone());
                    inner.push(PendingDir::hidden(own));
                }
                FileType::Directory => {
                    if is_read_only && !in_read_only {
                        self.found.read_only.insert(own.clone());
                    }
                    let through = visit.through.clone();
                    inner.push(PendingDir { path: own, is_read_only, through, ..self.next(visit, &name) });
                }
                _ if is_hidden => {
                    self.hidden_inodes.extend(inode_if_hard_linked(folder, &entry.name));
                    self.found.hidden.insert(own);
                }
                _ if is_read_only => {
                    self.read_only_inodes.extend(inode_if_hard_linked(folder, &entry.name));
                    if !in_read_only {
                        self.found.read_only.insert(own);
                    }
                }
                _ => {}
            }
        }
        inner
    }

    /// How far a name in a folder leads.
    fn next(&self, from: &PendingDir, name: &str) -> PendingDir {
        let (hide, freeze) = (self.hide.step(&from.hide, name), self.freeze.step(&from.freeze, name));
        PendingDir { hide, freeze, ..PendingDir::default() }
    }

    /// A link. If it is hidden or read_only it stays, and so does all that it leads through; its end is hidden or read_only too.
    fn link(&mut self, visit: &PendingDir, own: &Path, (is_hidden, is_read_only): (bool, bool)) {
        let name = own.file_name().unwrap_or_default().to_string_lossy();
        let mut next = PendingDir { is_read_only, ..self.next(visit, &name) };
        // What holds everywhere holds on the plain way too.
        next.hide = next.hide.beyond(&self.hide.start());
        next.freeze = next.freeze.beyond(&self.freeze.start());
        if !is_hidden && next.matches_nothing() {
            return;
        }
        let trace = symlink_trace::trace_link(self.ground(), own);
        self.seen += trace.steps;
        let hides = is_hidden || !next.hide.is_empty();
        let cover = if hides { MaskKind::Hide } else { MaskKind::ReadOnly };
        if is_hidden || is_read_only || !trace.out.is_empty() {
            self.found.pinned.extend(trace.passed.iter().cloned());
            self.out.extend(trace.around.into_iter().map(|path| (path, MaskKind::Pin)));
        }
        self.out.extend(trace.out.into_iter().map(|path| (path, cover)));
        if is_hidden {
            for (end, kind) in trace.ends.into_iter().filter(|(end, _)| !is_root(end)) {
                self.hidden_inodes.extend(inode_if_hard_linked(self.root, end.as_os_str().as_bytes()));
                self.found.hidden.insert(end.clone());
                self.linked_dirs.extend((kind == FileType::Directory).then(|| PendingDir::hidden(end)));
            }
            return;
        }
        let is_git = name.eq_ignore_ascii_case(".git");
        let is_file =
            |(end, kind): &(PathBuf, FileType)| (*kind == FileType::RegularFile).then(|| end.clone());
        let files: Vec<PathBuf> = trace.ends.iter().filter_map(is_file).collect();
        if is_read_only && !visit.is_read_only {
            self.found.links.insert(own.to_owned(), files.first().cloned());
        }
        for file in files.into_iter().filter(|_| is_read_only) {
            self.read_only_inodes.extend(inode_if_hard_linked(self.root, file.as_os_str().as_bytes()));
            self.found.read_only.insert(file);
        }
        let before = visit.through.iter().flat_map(|through| through.iter().cloned());
        let through = Rc::new(before.chain(trace.passed).collect::<Vec<_>>());
        for (path, _) in trace.ends.into_iter().filter(|(_, kind)| *kind == FileType::Directory) {
            // A repository is looked at by itself, and so is everything.
            let is_read_only = next.is_read_only && !is_git && !is_root(&path);
            if is_read_only {
                self.found.read_only.insert(path.clone());
            }
            self.linked_dirs.push_back(PendingDir {
                path,
                is_read_only,
                through: Some(through.clone()),
                ..next.clone()
            });
        }
    }

    /// Finds the other names of files that were found and have several.
    fn find_hard_links(&mut self) -> Result<(), Failed> {
        let mut folders = VecDeque::from([(PathBuf::new(), false)]);
        while let Some((path, is_read_only)) = folders.pop_front() {
            if self.exceeds_budget(&path) {
                if !self.hide.is_empty() {
                    self.found.hidden.insert(path);
                } else if !is_read_only {
                    self.found.read_only.insert(path);
                }
                continue;
            }
            let Some((folder, entries)) = self.list(&path)? else { continue };
            for entry in entries {
                let own = path.join(OsStr::from_bytes(&entry.name));
                match entry.kind {
                    FileType::Directory if self.found.hidden.contains(&own) => {}
                    FileType::Directory => {
                        let is_read_only = is_read_only || self.found.read_only.contains(&own);
                        folders.push_back((own, is_read_only));
                    }
                    FileType::Symlink => {}
                    _ => {
                        let Some(inode) = inode_if_hard_linked(&folder, &entry.name) else { continue };
                        if self.hidden_inodes.contains(&inode) {
                            self.found.hidden.insert(own);
                        } else if self.read_only_inodes.contains(&inode) {
                            self.found.read_only.insert(own);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn is_root(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// The device and inode of a file that has several names.
fn inode_if_hard_linked(folder: &OwnedFd, name: &[u8]) -> Option<(u64, u64)> {
    let stat = rustix::fs::statat(folder, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    (stat.st_nlink > 1 && !is_folder).then_some((stat.st_dev, stat.st_ino))
}
