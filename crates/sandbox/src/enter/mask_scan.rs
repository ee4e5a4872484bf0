//! Finds which names of a folder get a mask: hidden or read-only. Changes nothing.
//!
//! An agent chose the names in a workspace, so none of them may make the next start fail. What cannot be examined, or
//! not name by name, is masked as a whole: this protects too much, never too little.

mod pending_dir;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tribune_contract::{LaunchFailure, LaunchStage, PatternProgress, PatternSet, is_tribune_home};

use self::pending_dir::{LinkMask, MaskKind, PendingDir};
use super::failure::AtStage as _;
use super::socket_probe::has_listener;
use super::symlink_trace::{self, HostView, LinkTrace, TracedDir};
use crate::dir_entries::{
    DirEntry, MAX_DIR_PATH_BYTES, MAX_ENTRIES, is_git_control_file, is_repository, read_entries,
};

/// How often a folder is scanned again because its content was moved meanwhile. What is removed repeatedly does not
/// make a start fail.
const MAX_ATTEMPTS: usize = 4;

/// The masks of a folder, by path relative to its root.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MaskSet {
    pub(super) hidden: BTreeSet<PathBuf>,
    pub(super) read_only: BTreeSet<PathBuf>,
    /// Read-only names that are symlinks, with the file in the folder that each leads to, if any.
    pub(super) links: BTreeMap<PathBuf, Option<PathBuf>>,
    /// Symlinks that lead to a masked path, and the folders that they lead through. They can be neither moved nor
    /// removed.
    pub(super) pinned: BTreeSet<PathBuf>,
}

/// What to look for in a folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanRequest<'a> {
    /// The paths of the folder, in the sandbox and on the host, for symlinks that name it.
    pub(super) paths: &'a [&'a Path],
    pub(super) host: &'a HostView,
    pub(super) hide: &'a [String],
    pub(super) read_only: &'a [String],
    /// Whether to hide sockets with a listener, and FIFOs. Through an overlay neither leads to a program of the host.
    pub(super) sockets: bool,
}

/// An open folder to scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanDir<'a> {
    pub(super) root: &'a OwnedFd,
    pub(super) request: ScanRequest<'a>,
}

/// Scans the folders of one sandbox. What a symlink or hard link of one folder masks in another one is masked there
/// too.
pub(super) fn scan(folders: &[ScanDir<'_>]) -> Result<Vec<MaskSet>, LaunchFailure> {
    let mut all: Vec<DirScan<'_>> = folders.iter().map(|folder| DirScan::new(*folder)).collect();
    for _ in 0..MAX_ATTEMPTS {
        for scan in &mut all {
            (scan.seen, scan.missed_moved_dir) = (0, false);
            scan.scan_plain_paths()?;
            scan.scan_linked_paths()?;
        }
        trace_between_dirs(&mut all)?;
        let hidden: Inodes = all.iter().flat_map(|scan| &scan.hidden_inodes).copied().collect();
        let read_only: Inodes = all.iter().flat_map(|scan| &scan.read_only_inodes).copied().collect();
        for scan in all.iter_mut().filter(|_| !hidden.is_empty() || !read_only.is_empty()) {
            (scan.hidden_inodes, scan.read_only_inodes) = (hidden.clone(), read_only.clone());
            scan.seen = 0;
            scan.find_hard_links()?;
        }
        if !all.iter().any(|scan| scan.missed_moved_dir) {
            break;
        }
    }
    Ok(all.into_iter().map(|scan| scan.found).collect())
}

/// Follows symlinks from one folder into another one of the sandbox. Their end points are masked as a whole, even if
/// only a part of a pattern led there.
fn trace_between_dirs(all: &mut [DirScan<'_>]) -> Result<(), LaunchFailure> {
    let mut visited: BTreeSet<(PathBuf, MaskKind)> = BTreeSet::new();
    while let Some((path, mask_kind)) =
        all.iter_mut().find_map(|scan| scan.out.pop_first()).filter(|_| visited.len() < MAX_ENTRIES)
    {
        if !visited.insert((path.clone(), mask_kind)) {
            continue;
        }
        for scan in all.iter_mut() {
            if let Some(trace) = symlink_trace::trace_path(scan.traced_dir(), &path) {
                scan.mask_trace_ends(trace, mask_kind);
                scan.scan_linked_paths()?;
            }
        }
    }
    Ok(())
}

/// Returns what the patterns hide in the folders of one session, for tools that open files there outside of a sandbox.
/// Each folder comes with all of its paths. The result is what a sandbox would hide: by name, through hidden symlinks,
/// and through symlinks to folders.
pub fn hidden_in(
    folders: &[(&OwnedFd, &[&Path])],
    hide: &[String],
) -> Result<Vec<BTreeSet<PathBuf>>, LaunchFailure> {
    let host = &HostView::default();
    let request = |paths| ScanRequest { paths, host, hide, read_only: &[], sockets: false };
    let dirs: Vec<ScanDir<'_>> =
        folders.iter().map(|(root, paths)| ScanDir { root, request: request(*paths) }).collect();
    Ok(scan(&dirs)?.into_iter().map(|found| found.hidden).collect())
}

/// Files with hard links, by device and inode.
type Inodes = BTreeSet<(u64, u64)>;

#[derive(Debug)]
struct DirScan<'a> {
    root: &'a OwnedFd,
    paths: Vec<PathBuf>,
    host: &'a HostView,
    hide: PatternSet,
    read_only: PatternSet,
    sockets: bool,
    found: MaskSet,
    hidden_inodes: Inodes,
    read_only_inodes: Inodes,
    /// Host paths at which symlinks leave the folder that are masked or begin a pattern.
    out: BTreeSet<(PathBuf, MaskKind)>,
    /// Folders that are the targets of symlinks which begin a pattern.
    linked_dirs: VecDeque<PendingDir>,
    seen: usize,
    /// Whether a folder was moved after it was listed.
    missed_moved_dir: bool,
}

impl<'a> DirScan<'a> {
    fn new(ScanDir { root, request }: ScanDir<'a>) -> Self {
        Self {
            root,
            paths: symlink_trace::with_real_paths(request.paths, request.host),
            host: request.host,
            hide: PatternSet::new(request.hide),
            read_only: PatternSet::new(request.read_only),
            sockets: request.sockets,
            found: MaskSet::default(),
            hidden_inodes: Inodes::new(),
            read_only_inodes: Inodes::new(),
            out: BTreeSet::new(),
            linked_dirs: VecDeque::new(),
            seen: 0,
            missed_moved_dir: false,
        }
    }

    fn traced_dir(&self) -> TracedDir<'_> {
        TracedDir { root: self.root, paths: &self.paths, host: self.host }
    }

    /// Masks the end points of a path from another folder.
    fn mask_trace_ends(&mut self, trace: LinkTrace, mask_kind: MaskKind) {
        self.seen += trace.steps;
        self.found.pinned.extend(trace.passed);
        self.out.extend(trace.out.into_iter().map(|path| (path, mask_kind)));
        self.out.extend(trace.around.into_iter().map(|path| (path, MaskKind::Pin)));
        // The root itself is scanned anyway, with everything in it.
        for (end, kind) in trace.ends.into_iter().filter(|(end, _)| !is_scan_root(end)) {
            let inode = inode_if_hard_linked(self.root, end.as_os_str().as_bytes());
            let (covered, inodes, visit) = match mask_kind {
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

    /// Scans all folders, the nearest first.
    fn scan_plain_paths(&mut self) -> Result<(), LaunchFailure> {
        let start = PendingDir {
            hide: self.hide.start(),
            read_only: self.read_only.start(),
            ..PendingDir::default()
        };
        let mut folders = VecDeque::from([start]);
        while let Some(visit) = folders.pop_front() {
            folders.extend(self.visit(&visit)?);
        }
        Ok(())
    }

    /// Scans the targets of symlinks where that can mask more than the plain path does. A folder is not scanned twice
    /// for the same progress, so symlink loops end.
    fn scan_linked_paths(&mut self) -> Result<(), LaunchFailure> {
        let mut visited: BTreeMap<PathBuf, PendingDir> = BTreeMap::new();
        while let Some(mut visit) = self.linked_dirs.pop_front() {
            let before = visited.entry(visit.path.clone()).or_insert_with(|| {
                let (hide, read_only) = self.progress_at(&visit.path);
                PendingDir { hide, read_only, ..PendingDir::default() }
            });
            visit.hide = visit.hide.beyond(&before.hide);
            visit.read_only = visit.read_only.beyond(&before.read_only);
            let is_more = visit.is_hidden && !before.is_hidden || visit.is_read_only && !before.is_read_only;
            if visit.hide.is_empty() && visit.read_only.is_empty() && !is_more {
                continue;
            }
            before.hide = before.hide.and(&visit.hide);
            before.read_only = before.read_only.and(&visit.read_only);
            before.is_hidden |= visit.is_hidden;
            before.is_read_only |= visit.is_read_only;
            let inner = self.visit(&visit)?;
            self.linked_dirs.extend(inner.into_iter().filter(|inner| !inner.matches_nothing()));
        }
        Ok(())
    }

    /// The progress of the plain path to a folder.
    fn progress_at(&self, path: &Path) -> (PatternProgress, PatternProgress) {
        let start = (self.hide.start(), self.read_only.start());
        path.components().fold(start, |(hide, read_only), part| {
            let name = part.as_os_str().to_string_lossy();
            (self.hide.step(&hide, &name), self.read_only.step(&read_only, &name))
        })
    }

    /// Scans one folder. Returns its subfolders.
    fn visit(&mut self, visit: &PendingDir) -> Result<Vec<PendingDir>, LaunchFailure> {
        if self.exceeds_budget(&visit.path) {
            if visit.is_hidden {
                // It is hidden together with its parent.
            } else if !self.hide.is_empty() {
                self.found.hidden.insert(visit.path.clone());
            } else if !visit.is_read_only && !self.read_only.is_empty() {
                self.found.read_only.insert(visit.path.clone());
            }
            return Ok(Vec::new());
        }
        let Some((folder, entries)) = self.list(&visit.path)? else { return Ok(Vec::new()) };
        Ok(match visit.is_hidden {
            true => self.scan_hidden_dir(&folder, visit, &entries),
            false => self.scan_dir(&folder, visit, &entries),
        })
    }

    /// Scans a hidden folder: its files are hidden under their other hard links too. Symlinks in it need no mask,
    /// because their targets have names of their path.
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

    /// Hides a home of Tribune, whichever instance it belongs to. The folder that is scanned keeps its place, and each of its
    /// entries is hidden.
    fn hide_tribune_home(
        &mut self,
        folder: &OwnedFd,
        visit: &PendingDir,
        entries: &[DirEntry],
    ) -> Vec<PendingDir> {
        if is_scan_root(&visit.path) {
            let paths = entries.iter().map(|entry| PathBuf::from(OsStr::from_bytes(&entry.name)));
            self.found.hidden.extend(paths);
        } else {
            self.found.hidden.insert(visit.path.clone());
        }
        let hidden = PendingDir { is_hidden: true, ..visit.clone() };
        self.scan_hidden_dir(folder, &hidden, entries)
    }

    fn exceeds_budget(&self, path: &Path) -> bool {
        let bytes = path.as_os_str().as_bytes().len();
        bytes != 0 && (self.seen > MAX_ENTRIES || bytes > MAX_DIR_PATH_BYTES)
    }

    /// Lists a folder. Returns `None` if it is gone or the sandbox's user cannot read it: then it cannot inside either.
    fn list(&mut self, path: &Path) -> Result<Option<(OwnedFd, Vec<DirEntry>)>, LaunchFailure> {
        const REMEDY: &str = "Check the disk that the workspace is on";
        let doing = format_args!("searching `{}` in the workspace", path.display());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        let name = if is_scan_root(path) { Path::new(".") } else { path };
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

    /// Masks the entries of a folder. Returns the subfolders to scan.
    fn scan_dir(&mut self, folder: &OwnedFd, visit: &PendingDir, entries: &[DirEntry]) -> Vec<PendingDir> {
        let is_repository =
            is_repository(|wanted| entries.iter().any(|entry| entry.name == wanted.as_bytes()));
        if is_tribune_home(|wanted| entries.iter().any(|entry| entry.name == wanted.as_bytes())) {
            return self.hide_tribune_home(folder, visit, entries);
        }
        let (in_read_only_dir, is_plain) = (visit.is_read_only, visit.through.is_none());
        let mut inner = Vec::new();
        for entry in entries {
            let path = visit.path.join(OsStr::from_bytes(&entry.name));
            // A name that is not UTF-8 is matched lossily.
            let name = String::from_utf8_lossy(&entry.name);
            let is_hidden = self.hide.matches(&visit.hide, &name);
            let is_read_only = in_read_only_dir
                || self.read_only.matches(&visit.read_only, &name)
                || (is_plain && !self.read_only.is_empty() && is_git_control_file(entry, is_repository));
            let is_found = is_hidden || is_read_only && !in_read_only_dir;
            if let Some(through) = visit.through.as_ref().filter(|_| is_found) {
                self.found.pinned.extend(through.iter().cloned());
            }
            match entry.kind {
                FileType::Symlink => self.scan_link(visit, &path, LinkMask { is_hidden, is_read_only }),
                FileType::Socket if self.sockets && has_listener(folder, &entry.name) => {
                    self.found.hidden.insert(path);
                }
                // Opening one to see who is at the other end would let that program go on.
                FileType::Fifo if self.sockets => {
                    self.found.hidden.insert(path);
                }
                FileType::Directory if is_hidden => {
                    self.found.hidden.insert(path.clone());
                    inner.push(PendingDir::hidden(path));
                }
                FileType::Directory => {
                    if is_read_only && !in_read_only_dir {
                        self.found.read_only.insert(path.clone());
                    }
                    let through = visit.through.clone();
                    inner.push(PendingDir {
                        path,
                        is_read_only,
                        through,
                        ..self.entry_progress(visit, &name)
                    });
                }
                _ if is_hidden => {
                    self.hidden_inodes.extend(inode_if_hard_linked(folder, &entry.name));
                    self.found.hidden.insert(path);
                }
                _ if is_read_only => {
                    self.read_only_inodes.extend(inode_if_hard_linked(folder, &entry.name));
                    if !in_read_only_dir {
                        self.found.read_only.insert(path);
                    }
                }
                _ => {}
            }
        }
        inner
    }

    /// The progress of an entry of a folder.
    fn entry_progress(&self, from: &PendingDir, name: &str) -> PendingDir {
        let (hide, read_only) =
            (self.hide.step(&from.hide, name), self.read_only.step(&from.read_only, name));
        PendingDir { hide, read_only, ..PendingDir::default() }
    }

    /// Masks the end points of a symlink like the symlink itself, and pins everything that it leads through.
    fn scan_link(&mut self, visit: &PendingDir, path: &Path, mask: LinkMask) {
        let LinkMask { is_hidden, is_read_only } = mask;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut next = PendingDir { is_read_only, ..self.entry_progress(visit, &name) };
        // Patterns that match everywhere match on the plain path too.
        next.hide = next.hide.beyond(&self.hide.start());
        next.read_only = next.read_only.beyond(&self.read_only.start());
        if !is_hidden && next.matches_nothing() {
            return;
        }
        let trace = symlink_trace::trace_link(self.traced_dir(), path);
        self.seen += trace.steps;
        let hides = is_hidden || !next.hide.is_empty();
        let mask_kind = if hides { MaskKind::Hide } else { MaskKind::ReadOnly };
        if is_hidden || is_read_only || !trace.out.is_empty() {
            self.found.pinned.extend(trace.passed.iter().cloned());
            self.out.extend(trace.around.into_iter().map(|path| (path, MaskKind::Pin)));
        }
        self.out.extend(trace.out.into_iter().map(|path| (path, mask_kind)));
        if is_hidden {
            for (end, kind) in trace.ends.into_iter().filter(|(end, _)| !is_scan_root(end)) {
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
            self.found.links.insert(path.to_owned(), files.first().cloned());
        }
        for file in files.into_iter().filter(|_| is_read_only) {
            self.read_only_inodes.extend(inode_if_hard_linked(self.root, file.as_os_str().as_bytes()));
            self.found.read_only.insert(file);
        }
        let before = visit.through.iter().flat_map(|through| through.iter().cloned());
        let through = Rc::new(before.chain(trace.passed).collect::<Vec<_>>());
        for (path, _) in trace.ends.into_iter().filter(|(_, kind)| *kind == FileType::Directory) {
            // A repository is scanned separately, and so is the root.
            let is_read_only = next.is_read_only && !is_git && !is_scan_root(&path);
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

    /// Masks the other hard links of masked files.
    fn find_hard_links(&mut self) -> Result<(), LaunchFailure> {
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
                let path = path.join(OsStr::from_bytes(&entry.name));
                match entry.kind {
                    FileType::Directory if self.found.hidden.contains(&path) => {}
                    FileType::Directory => {
                        let is_read_only = is_read_only || self.found.read_only.contains(&path);
                        folders.push_back((path, is_read_only));
                    }
                    FileType::Symlink => {}
                    _ => {
                        let Some(inode) = inode_if_hard_linked(&folder, &entry.name) else { continue };
                        if self.hidden_inodes.contains(&inode) {
                            self.found.hidden.insert(path);
                        } else if self.read_only_inodes.contains(&inode) {
                            self.found.read_only.insert(path);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn is_scan_root(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// The device and inode of a file with hard links.
fn inode_if_hard_linked(folder: &OwnedFd, name: &[u8]) -> Option<(u64, u64)> {
    let stat = rustix::fs::statat(folder, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    (stat.st_nlink > 1 && !is_folder).then_some((stat.st_dev, stat.st_ino))
}
