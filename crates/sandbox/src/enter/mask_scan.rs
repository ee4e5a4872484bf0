//! Finds what of a shown folder is hidden or frozen. Nothing is changed here.
//!
//! Whoever works in the workspace chose its names, so none of them may stop the next command: what cannot be looked at, or
//! not name by name, is frozen as a whole. More is protected then, never less.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tribune_contract::{Failed, PatternSet, PatternProgress, LaunchStage};

use super::failure::At as _;
use super::socket_probe::answers;
use super::symlink_trace::{self, Ground, Machine, Way};
use crate::dir_entries::{DirEntry, MAX_DIR_PATH_BYTES, MAX_ENTRIES, read_entries, is_git_control_file, is_repository};

/// How often a folder is looked through while others move what is in it. What is removed all the time stops nobody.
const TRIES: usize = 4;

/// What is covered, by its path from the root of the workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) hidden: BTreeSet<PathBuf>,
    pub(super) frozen: BTreeSet<PathBuf>,
    /// Frozen names that are links, with the file in the workspace that each leads to, if it does.
    pub(super) links: BTreeMap<PathBuf, Option<PathBuf>>,
    /// Links that lead to any of that, and folders that they lead through. They stay where and as they are.
    pub(super) kept: BTreeSet<PathBuf>,
}

/// What is looked for in a shown folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Where the folder is inside and where on this machine, for links that name it.
    pub(super) names: &'a [&'a Path],
    pub(super) machine: &'a Machine,
    pub(super) hide: &'a [String],
    pub(super) freeze: &'a [String],
    /// Whether a program inside could reach who listens at a socket there. In an overlay nobody can.
    pub(super) sockets: bool,
}

/// A folder that is looked through, open.
pub(super) type Shown<'a> = (&'a OwnedFd, Wanted<'a>);

/// Looks through folders of one box. What is hidden or frozen in one of them by a link or by another name is hidden or frozen in each
/// that it leads to.
pub(super) fn search(folders: &[Shown<'_>]) -> Result<Vec<Found>, Failed> {
    let mut all: Vec<Search<'_>> = folders.iter().map(|folder| Search::new(*folder)).collect();
    for _ in 0..TRIES {
        for search in &mut all {
            (search.seen, search.has_moved) = (0, false);
            search.plain_ways()?;
            search.ways_through_links()?;
        }
        ways_between(&mut all)?;
        let hidden: Inodes = all.iter().flat_map(|search| &search.hidden_inodes).copied().collect();
        let frozen: Inodes = all.iter().flat_map(|search| &search.frozen_inodes).copied().collect();
        for search in all.iter_mut().filter(|_| !hidden.is_empty() || !frozen.is_empty()) {
            (search.hidden_inodes, search.frozen_inodes) = (hidden.clone(), frozen.clone());
            search.seen = 0;
            search.other_names()?;
        }
        if !all.iter().any(|search| search.has_moved) {
            break;
        }
    }
    Ok(all.into_iter().map(|search| search.found).collect())
}

/// Follows what leads out of a folder into another one of the box. What is at its end there is covered whole: by how much of a pattern
/// it leads there is not looked at.
fn ways_between(all: &mut [Search<'_>]) -> Result<(), Failed> {
    let mut been: BTreeSet<(PathBuf, Cover)> = BTreeSet::new();
    while let Some((path, cover)) =
        all.iter_mut().find_map(|search| search.out.pop_first()).filter(|_| been.len() < MAX_ENTRIES)
    {
        if !been.insert((path.clone(), cover)) {
            continue;
        }
        for search in all.iter_mut() {
            if let Some(way) = symlink_trace::arrive(search.ground(), &path) {
                search.led_here(way, cover);
                search.ways_through_links()?;
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
    let machine = &Machine::default();
    let wanted = |names| Wanted { names, machine, hide, freeze: &[], sockets: false };
    let shown: Vec<Shown<'_>> = folders.iter().map(|(folder, names)| (*folder, wanted(*names))).collect();
    Ok(search(&shown)?.into_iter().map(|found| found.hidden).collect())
}

/// Files with several names, by device and inode.
type Inodes = BTreeSet<(u64, u64)>;

/// How something is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cover {
    Hide,
    Freeze,
    /// Not at all, but what it leads through stays.
    Keep,
}

/// A folder that is to be looked at.
#[derive(Debug, Clone, Default)]
struct Visit {
    /// Its path without links.
    path: PathBuf,
    /// How far the way to it has come in the patterns.
    hide: PatternProgress,
    freeze: PatternProgress,
    /// Whether all of it is hidden or frozen already.
    is_hidden: bool,
    is_frozen: bool,
    /// If the way goes through links: what must stay for it to lead here.
    through: Option<Rc<Vec<PathBuf>>>,
}

impl Visit {
    fn hidden(path: PathBuf) -> Self {
        Self { path, is_hidden: true, ..Self::default() }
    }

    const fn is_vain(&self) -> bool {
        self.hide.is_empty() && self.freeze.is_empty() && !self.is_hidden && !self.is_frozen
    }
}

#[derive(Debug)]
struct Search<'a> {
    root: &'a OwnedFd,
    names: Vec<PathBuf>,
    machine: &'a Machine,
    hide: PatternSet,
    freeze: PatternSet,
    sockets: bool,
    found: Found,
    hidden_inodes: Inodes,
    frozen_inodes: Inodes,
    /// Where links lead out of the folder that are hidden or frozen, or whose names are the beginning of a pattern.
    out: BTreeSet<(PathBuf, Cover)>,
    /// Folders that links lead to whose names are the beginning of a pattern.
    led: VecDeque<Visit>,
    seen: usize,
    /// Whether a folder was no longer where it was listed.
    has_moved: bool,
}

impl<'a> Search<'a> {
    fn new((root, wanted): Shown<'a>) -> Self {
        Self {
            root,
            names: symlink_trace::with_real(wanted.names, wanted.machine),
            machine: wanted.machine,
            hide: PatternSet::new(wanted.hide),
            freeze: PatternSet::new(wanted.freeze),
            sockets: wanted.sockets,
            found: Found::default(),
            hidden_inodes: Inodes::new(),
            frozen_inodes: Inodes::new(),
            out: BTreeSet::new(),
            led: VecDeque::new(),
            seen: 0,
            has_moved: false,
        }
    }

    fn ground(&self) -> Ground<'_> {
        (self.root, &self.names, self.machine)
    }

    /// Covers what a way from another folder, or around this one, leads to.
    fn led_here(&mut self, way: Way, cover: Cover) {
        self.seen += way.steps;
        self.found.kept.extend(way.passed);
        self.out.extend(way.out.into_iter().map(|path| (path, cover)));
        self.out.extend(way.around.into_iter().map(|path| (path, Cover::Keep)));
        // The folder as a whole is looked at by itself, and so is everything in it.
        for (end, kind) in way.ends.into_iter().filter(|(end, _)| !is_root(end)) {
            let inode = linked(self.root, end.as_os_str().as_bytes());
            let (covered, inodes, visit) = match cover {
                Cover::Hide => (&mut self.found.hidden, &mut self.hidden_inodes, Visit::hidden(end.clone())),
                Cover::Freeze => {
                    let visit = Visit { path: end.clone(), is_frozen: true, ..Visit::default() };
                    (&mut self.found.frozen, &mut self.frozen_inodes, visit)
                }
                Cover::Keep => continue,
            };
            inodes.extend(inode);
            covered.insert(end);
            self.led.extend((kind == FileType::Directory).then_some(visit));
        }
    }

    /// Goes through folder after folder, the nearest first.
    fn plain_ways(&mut self) -> Result<(), Failed> {
        let start = Visit { hide: self.hide.start(), freeze: self.freeze.start(), ..Visit::default() };
        let mut folders = VecDeque::from([start]);
        while let Some(visit) = folders.pop_front() {
            folders.extend(self.visit(&visit)?);
        }
        Ok(())
    }

    /// Goes through what links lead to, as far as more is hidden or frozen by such a way than by the plain one. No folder is
    /// looked at twice for the same, so that links in a circle come to an end.
    fn ways_through_links(&mut self) -> Result<(), Failed> {
        let mut been: BTreeMap<PathBuf, Visit> = BTreeMap::new();
        while let Some(mut visit) = self.led.pop_front() {
            let before = been.entry(visit.path.clone()).or_insert_with(|| {
                let (hide, freeze) = self.reached(&visit.path);
                Visit { hide, freeze, ..Visit::default() }
            });
            visit.hide = visit.hide.beyond(&before.hide);
            visit.freeze = visit.freeze.beyond(&before.freeze);
            let is_more = visit.is_hidden && !before.is_hidden || visit.is_frozen && !before.is_frozen;
            if visit.hide.is_empty() && visit.freeze.is_empty() && !is_more {
                continue;
            }
            before.hide = before.hide.and(&visit.hide);
            before.freeze = before.freeze.and(&visit.freeze);
            before.is_hidden |= visit.is_hidden;
            before.is_frozen |= visit.is_frozen;
            let inner = self.visit(&visit)?;
            self.led.extend(inner.into_iter().filter(|inner| !inner.is_vain()));
        }
        Ok(())
    }

    /// How far the plain way to a folder comes.
    fn reached(&self, path: &Path) -> (PatternProgress, PatternProgress) {
        let start = (self.hide.start(), self.freeze.start());
        path.components().fold(start, |(hide, freeze), part| {
            let name = part.as_os_str().to_string_lossy();
            (self.hide.step(&hide, &name), self.freeze.step(&freeze, &name))
        })
    }

    /// Looks at one folder. Returns the folders in it.
    fn visit(&mut self, visit: &Visit) -> Result<Vec<Visit>, Failed> {
        if self.is_too_much(&visit.path) {
            if visit.is_hidden {
                // So is this.
            } else if !self.hide.is_empty() {
                self.found.hidden.insert(visit.path.clone());
            } else if !visit.is_frozen && !self.freeze.is_empty() {
                self.found.frozen.insert(visit.path.clone());
            }
            return Ok(Vec::new());
        }
        let Some((folder, entries)) = self.list(&visit.path)? else { return Ok(Vec::new()) };
        Ok(match visit.is_hidden {
            true => self.names_in_hidden(&folder, visit, &entries),
            false => self.names(&folder, visit, &entries),
        })
    }

    /// What is in a hidden folder is hidden, and what has other names elsewhere under those too. Links in it lead to what has its
    /// own name.
    fn names_in_hidden(&mut self, folder: &OwnedFd, visit: &Visit, entries: &[DirEntry]) -> Vec<Visit> {
        let mut inner = Vec::new();
        for entry in entries {
            match entry.kind {
                FileType::Symlink => {}
                FileType::Directory => {
                    let path = visit.path.join(OsStr::from_bytes(&entry.name));
                    inner.push(Visit { path, ..visit.clone() });
                }
                _ => self.hidden_inodes.extend(linked(folder, &entry.name)),
            }
        }
        inner
    }

    fn is_too_much(&self, path: &Path) -> bool {
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
                self.has_moved = true;
                return Ok(None);
            }
            folder => folder.at(LaunchStage::Workspace, doing, REMEDY)?,
        };
        let entries = read_entries(&folder).at(LaunchStage::Workspace, doing, REMEDY)?;
        self.seen += entries.len();
        Ok(Some((folder, entries)))
    }

    /// Finds the names in a folder. Returns the folders in it that are to be searched.
    fn names(&mut self, folder: &OwnedFd, visit: &Visit, entries: &[DirEntry]) -> Vec<Visit> {
        let is_repository =
            is_repository(|wanted| entries.iter().any(|entry| entry.name == wanted.as_bytes()));
        let (in_frozen, is_plain) = (visit.is_frozen, visit.through.is_none());
        let mut inner = Vec::new();
        for entry in entries {
            let own = visit.path.join(OsStr::from_bytes(&entry.name));
            // A name that is no text is compared as what can be read of it.
            let name = String::from_utf8_lossy(&entry.name);
            let is_hidden = self.hide.matches(&visit.hide, &name);
            let is_frozen = in_frozen
                || self.freeze.matches(&visit.freeze, &name)
                || (is_plain && !self.freeze.is_empty() && is_git_control_file(entry, is_repository));
            let is_found = is_hidden || is_frozen && !in_frozen;
            if let Some(through) = visit.through.as_ref().filter(|_| is_found) {
                self.found.kept.extend(through.iter().cloned());
            }
            match entry.kind {
                FileType::Symlink => self.link(visit, &own, (is_hidden, is_frozen)),
                FileType::Socket if self.sockets && answers(folder, &entry.name) => {
                    self.found.hidden.insert(own);
                }
                FileType::Directory if is_hidden => {
                    self.found.hidden.insert(own.clone());
                    inner.push(Visit::hidden(own));
                }
                FileType::Directory => {
                    if is_frozen && !in_frozen {
                        self.found.frozen.insert(own.clone());
                    }
                    let through = visit.through.clone();
                    inner.push(Visit { path: own, is_frozen, through, ..self.further(visit, &name) });
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

    /// How far a name in a folder leads.
    fn further(&self, from: &Visit, name: &str) -> Visit {
        let (hide, freeze) = (self.hide.step(&from.hide, name), self.freeze.step(&from.freeze, name));
        Visit { hide, freeze, ..Visit::default() }
    }

    /// A link. If it is hidden or frozen it stays, and so does all that it leads through; its end is hidden or frozen too.
    fn link(&mut self, visit: &Visit, own: &Path, (is_hidden, is_frozen): (bool, bool)) {
        let name = own.file_name().unwrap_or_default().to_string_lossy();
        let mut further = Visit { is_frozen, ..self.further(visit, &name) };
        // What holds everywhere holds on the plain way too.
        further.hide = further.hide.beyond(&self.hide.start());
        further.freeze = further.freeze.beyond(&self.freeze.start());
        if !is_hidden && further.is_vain() {
            return;
        }
        let way = symlink_trace::follow(self.ground(), own);
        self.seen += way.steps;
        let hides = is_hidden || !further.hide.is_empty();
        let cover = if hides { Cover::Hide } else { Cover::Freeze };
        if is_hidden || is_frozen || !way.out.is_empty() {
            self.found.kept.extend(way.passed.iter().cloned());
            self.out.extend(way.around.into_iter().map(|path| (path, Cover::Keep)));
        }
        self.out.extend(way.out.into_iter().map(|path| (path, cover)));
        if is_hidden {
            for (end, kind) in way.ends.into_iter().filter(|(end, _)| !is_root(end)) {
                self.hidden_inodes.extend(linked(self.root, end.as_os_str().as_bytes()));
                self.found.hidden.insert(end.clone());
                self.led.extend((kind == FileType::Directory).then(|| Visit::hidden(end)));
            }
            return;
        }
        let is_git = name.eq_ignore_ascii_case(".git");
        let is_file =
            |(end, kind): &(PathBuf, FileType)| (*kind == FileType::RegularFile).then(|| end.clone());
        let files: Vec<PathBuf> = way.ends.iter().filter_map(is_file).collect();
        if is_frozen && !visit.is_frozen {
            self.found.links.insert(own.to_owned(), files.first().cloned());
        }
        for file in files.into_iter().filter(|_| is_frozen) {
            self.frozen_inodes.extend(linked(self.root, file.as_os_str().as_bytes()));
            self.found.frozen.insert(file);
        }
        let before = visit.through.iter().flat_map(|through| through.iter().cloned());
        let through = Rc::new(before.chain(way.passed).collect::<Vec<_>>());
        for (path, _) in way.ends.into_iter().filter(|(_, kind)| *kind == FileType::Directory) {
            // A repository is looked at by itself, and so is everything.
            let is_frozen = further.is_frozen && !is_git && !is_root(&path);
            if is_frozen {
                self.found.frozen.insert(path.clone());
            }
            self.led.push_back(Visit { path, is_frozen, through: Some(through.clone()), ..further.clone() });
        }
    }

    /// Finds the other names of files that were found and have several.
    fn other_names(&mut self) -> Result<(), Failed> {
        let mut folders = VecDeque::from([(PathBuf::new(), false)]);
        while let Some((path, is_frozen)) = folders.pop_front() {
            if self.is_too_much(&path) {
                if !self.hide.is_empty() {
                    self.found.hidden.insert(path);
                } else if !is_frozen {
                    self.found.frozen.insert(path);
                }
                continue;
            }
            let Some((folder, entries)) = self.list(&path)? else { continue };
            for entry in entries {
                let own = path.join(OsStr::from_bytes(&entry.name));
                match entry.kind {
                    FileType::Directory if self.found.hidden.contains(&own) => {}
                    FileType::Directory => {
                        let is_frozen = is_frozen || self.found.frozen.contains(&own);
                        folders.push_back((own, is_frozen));
                    }
                    FileType::Symlink => {}
                    _ => {
                        let Some(inode) = linked(&folder, &entry.name) else { continue };
                        if self.hidden_inodes.contains(&inode) {
                            self.found.hidden.insert(own);
                        } else if self.frozen_inodes.contains(&inode) {
                            self.found.frozen.insert(own);
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
fn linked(folder: &OwnedFd, name: &[u8]) -> Option<(u64, u64)> {
    let stat = rustix::fs::statat(folder, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    (stat.st_nlink > 1 && !is_folder).then_some((stat.st_dev, stat.st_ino))
}
