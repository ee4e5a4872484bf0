//! Applies single changes of an overlay to the workspace folder.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::change::Change;
use super::land_journal::LandJournal;
use super::land_report::LandRefusal;
use super::node::{Node, NodeStat};
use super::overlay::OverlayBase;
use super::{OverlayDirs, WorkspaceError, resolve_beneath, unreadable, unwritable};

static TEMPORARY_COUNTER: AtomicU64 = AtomicU64::new(0);

/// Both sides of a landing, open.
pub(super) struct Applier {
    lower: OwnedFd,
    upper: OwnedFd,
    /// The owner of new files, if this process may set it.
    owner: Option<(Uid, Gid)>,
    base: OverlayBase,
    journal: LandJournal,
    /// Changes of something that no longer exists in the workspace.
    gone: BTreeSet<PathBuf>,
    /// Folders in which something landed and that nothing else changed before.
    touched: BTreeSet<PathBuf>,
    /// Folders whose final mode is set after their content has landed.
    folders: Vec<(PathBuf, u32)>,
}

type ApplyResult = Result<Result<(), LandRefusal>, WorkspaceError>;

impl Applier {
    pub(super) fn open(
        lower: &Path,
        layers: &OverlayDirs,
        changes: &[Change],
    ) -> Result<Self, WorkspaceError> {
        let upper = layers.upper();
        let folder = resolve_beneath::open_root(lower).map_err(|error| unreadable(lower, error))?;
        let owner = rustix::fs::fstat(&folder).map_err(|error| unreadable(lower, error))?;
        let owner = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
        let mut applier = Self {
            lower: folder,
            upper: resolve_beneath::open_root(&upper).map_err(|error| unreadable(&upper, error))?,
            owner: rustix::process::geteuid().is_root().then_some(owner),
            base: layers.read_base()?,
            journal: LandJournal::begin(layers).map_err(|error| unwritable(layers.folder(), error))?,
            gone: BTreeSet::new(),
            touched: BTreeSet::new(),
            folders: Vec::new(),
        };
        let copies = changes.iter().filter(|change| change.is_copied_up);
        let gone = copies
            .filter(|change| change.path.parent().is_some_and(|folder| applier.is_changed_elsewhere(folder)));
        applier.gone = gone.map(|change| change.path.clone()).collect();
        Ok(applier)
    }

    /// Returns whether anything but this session added or removed entries of a workspace folder since the session
    /// began.
    fn is_changed_elsewhere(&self, folder: &Path) -> bool {
        let found = NodeStat::beneath(&self.lower, folder).ok().flatten();
        found.is_some_and(|found| {
            let changed = found.changed_at();
            changed > self.base.began && self.base.landed.get(folder) != Some(&changed)
        })
    }

    /// Sets the final modes of landed folders, innermost first. Returns the failures.
    pub(super) fn restore_folder_modes(&mut self) -> Vec<(PathBuf, WorkspaceError)> {
        let mut failed = Vec::new();
        while let Some((path, mode)) = self.folders.pop() {
            let held = resolve_beneath::open_folder(&self.lower, &path);
            let closed = held.and_then(|held| rustix::fs::fchmod(&held, Mode::from_raw_mode(mode)));
            if let Err(error) = closed {
                failed.push((path, unwritable("its rights", error)));
            }
        }
        failed
    }

    /// Syncs the workspace and records what landed. Otherwise it would look like a conflicting change next time.
    pub(super) fn finish(mut self, layers: &OverlayDirs) -> std::io::Result<()> {
        let synced = rustix::fs::syncfs(&self.lower);
        for folder in std::mem::take(&mut self.touched) {
            if let Ok(Some(found)) = NodeStat::beneath(&self.lower, &folder) {
                self.base.landed.insert(folder, found.changed_at());
            }
        }
        layers.write_base(&self.base)?;
        synced?;
        self.journal.finish()
    }

    pub(super) fn apply(&mut self, change: &Change) -> ApplyResult {
        let path = change.path.as_path();
        let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
            return Ok(Err(LandRefusal::UnsupportedType));
        };
        let folder = match resolve_beneath::open_folder(&self.lower, parent) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Err(LandRefusal::ParentNotLanded)),
            Err(error) => return Err(unreadable(path, error)),
        };
        let found = NodeStat::in_folder(&folder, name.as_ref()).map_err(|error| unreadable(path, error))?;
        if self.is_conflict(change, found.as_ref()) {
            return Ok(Err(LandRefusal::Conflict));
        }
        if self.touched.contains(parent) || !self.is_changed_elsewhere(parent) {
            self.touched.insert(parent.to_owned());
        }
        let entry = TargetEntry { folder: &folder, name, found: found.as_ref() };
        let landed = match &change.after {
            None => self.remove(&entry, path)?,
            Some(Node::Folder { mode }) => self.make_folder(&entry, path, *mode)?,
            Some(Node::File { mode, .. }) => self.replace(&entry, path, |applier, temporary| {
                applier.copy_file(&folder, temporary, path, *mode)
            })?,
            Some(Node::Symlink { to }) => self.replace(&entry, path, |applier, temporary| {
                rustix::fs::symlinkat(to, &folder, temporary).map_err(|error| unwritable(path, error))?;
                applier.set_owner(&folder, temporary, path)
            })?,
            Some(Node::Other) => Err(LandRefusal::UnsupportedType),
        };
        if landed.is_ok() {
            let now = NodeStat::in_folder(&folder, name.as_ref()).map_err(|error| unreadable(path, error))?;
            match now {
                Some(now) => self.base.landed.insert(path.to_owned(), now.changed_at()),
                None => self.base.landed.remove(path),
            };
            self.journal.record_done(path).map_err(|error| unwritable(path, error))?;
        }
        Ok(landed)
    }

    /// Returns whether anything but this session changed the file since the session began.
    fn is_conflict(&self, change: &Change, found: Option<&NodeStat>) -> bool {
        if self.gone.contains(&change.path) {
            return true;
        }
        match (&change.before, found) {
            // It was removed or created since `before` was read.
            (before, found) if before.as_ref() != found.map(|found| &found.node) => true,
            (_, None) => false,
            // Every new entry changes a folder's time, and merging folders loses none.
            (Some(Node::Folder { .. }), Some(_)) if matches!(change.after, Some(Node::Folder { .. })) => {
                false
            }
            (_, Some(found)) => {
                let changed = found.changed_at();
                changed > self.base.began && self.base.landed.get(&change.path) != Some(&changed)
            }
        }
    }

    fn remove(&self, entry: &TargetEntry<'_>, path: &Path) -> ApplyResult {
        let is_folder = matches!(entry.found, Some(NodeStat { node: Node::Folder { .. }, .. }));
        if !is_folder {
            let removed = rustix::fs::unlinkat(entry.folder, entry.name, AtFlags::empty());
            return removed.map(Ok).map_err(|error| unwritable(path, error));
        }
        let held = resolve_beneath::open_folder(entry.folder, entry.name.as_ref())
            .map_err(|error| unreadable(path, error))?;
        if self.is_newer(&held, path)? {
            return Ok(Err(LandRefusal::Conflict));
        }
        let by_descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(entry.folder));
        let removed = std::fs::remove_dir_all(Path::new(&by_descriptor).join(entry.name));
        removed.map(Ok).map_err(|error| unwritable(path, error))
    }

    /// Returns whether anything in a folder changed since the session began, other than by landing.
    fn is_newer(&self, folder: &OwnedFd, path: &Path) -> Result<bool, WorkspaceError> {
        for entry in rustix::fs::Dir::read_from(folder).map_err(|error| unreadable(path, error))? {
            let entry = entry.map_err(|error| unreadable(path, error))?;
            if [c".", c".."].contains(&entry.file_name()) {
                continue;
            }
            let name: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(entry.file_name().to_bytes());
            let inner = path.join(name);
            let found =
                NodeStat::in_folder(folder, name.as_ref()).map_err(|error| unreadable(&inner, error))?;
            let Some(found) = found else { continue };
            let changed = found.changed_at();
            let is_ours = self.base.landed.get(&inner) == Some(&changed);
            match found.node {
                Node::Folder { .. } => {
                    let next = resolve_beneath::open_folder(folder, name.as_ref())
                        .map_err(|error| unreadable(&inner, error))?;
                    if self.is_newer(&next, &inner)? {
                        return Ok(true);
                    }
                }
                Node::File { .. } | Node::Symlink { .. } | Node::Other
                    if changed > self.base.began && !is_ours =>
                {
                    return Ok(true);
                }
                Node::File { .. } | Node::Symlink { .. } | Node::Other => {}
            }
        }
        Ok(false)
    }

    fn make_folder(&mut self, entry: &TargetEntry<'_>, path: &Path, mode: u32) -> ApplyResult {
        match entry.found {
            Some(NodeStat { node: Node::Folder { .. }, .. }) => {}
            Some(_) => match self.remove(entry, path)? {
                Ok(()) => self.new_folder(entry, path)?,
                why => return Ok(why),
            },
            None => self.new_folder(entry, path)?,
        }
        let held = resolve_beneath::open_folder(entry.folder, entry.name.as_ref())
            .map_err(|error| unreadable(path, error))?;
        // Writable while its content lands.
        let open = mode & 0o777 | 0o700;
        rustix::fs::fchmod(&held, Mode::from_raw_mode(open)).map_err(|error| unwritable(path, error))?;
        if mode & 0o777 != open {
            self.folders.push((path.to_owned(), mode & 0o777));
        }
        Ok(Ok(()))
    }

    fn new_folder(&self, entry: &TargetEntry<'_>, path: &Path) -> Result<(), WorkspaceError> {
        rustix::fs::mkdirat(entry.folder, entry.name, Mode::RWXU).map_err(|error| unwritable(path, error))?;
        self.set_owner(entry.folder, entry.name, path)
    }

    /// Creates the new version beside the target, then renames it into place.
    fn replace(
        &mut self,
        entry: &TargetEntry<'_>,
        path: &Path,
        make: impl FnOnce(&Self, &OsStr) -> Result<(), WorkspaceError>,
    ) -> ApplyResult {
        if let Some(NodeStat { node: Node::Folder { .. }, .. }) = entry.found
            && let Err(why) = self.remove(entry, path)?
        {
            return Ok(Err(why));
        }
        let number = TEMPORARY_COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".tribune-landing-{}-{number}", std::process::id());
        let temporary = OsStr::new(&temporary);
        let noted = |error| unwritable(path, error);
        self.journal.record_make(&path.with_file_name(temporary), path).map_err(noted)?;
        let moved = make(self, temporary).and_then(|()| {
            let made = rustix::fs::statat(entry.folder, temporary, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| unreadable(path, error))?;
            self.journal.record_made(made.st_ino).map_err(noted)?;
            entry.move_into_place(temporary, path)
        });
        if !matches!(moved, Ok(Ok(()))) {
            // Not needed any more, whatever it is by now.
            let _ = rustix::fs::unlinkat(entry.folder, temporary, AtFlags::empty());
        }
        moved
    }

    fn copy_file(&self, folder: &OwnedFd, to: &OsStr, path: &Path, mode: u32) -> Result<(), WorkspaceError> {
        let source =
            resolve_beneath::open_file(&self.upper, path).map_err(|error| unreadable(path, error))?;
        let stat = rustix::fs::fstat(&source).map_err(|error| unreadable(path, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(unreadable(path, std::io::Error::from(std::io::ErrorKind::InvalidData)));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(folder, to, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| unwritable(path, error))?;
        let (mut source, mut target) = (File::from(source), File::from(target));
        let changed =
            Timespec { tv_sec: stat.st_mtime, tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or(0) };
        let changed = Timestamps { last_access: changed, last_modification: changed };
        let copied = std::io::copy(&mut source, &mut target).and_then(|_| {
            if let Some((uid, gid)) = self.owner {
                rustix::fs::fchown(&target, Some(uid), Some(gid))?;
            }
            // After the change of owner, and without set-id bits.
            rustix::fs::fchmod(target.as_fd(), Mode::from_raw_mode(mode & 0o777))?;
            Ok(rustix::fs::futimens(&target, &changed)?)
        });
        copied.map_err(|error| unwritable(path, error))
    }

    fn set_owner(&self, folder: &OwnedFd, name: &OsStr, path: &Path) -> Result<(), WorkspaceError> {
        let Some((uid, gid)) = self.owner else { return Ok(()) };
        rustix::fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| unwritable(path, error))
    }
}

/// An entry of a workspace folder and its state when it was checked.
struct TargetEntry<'a> {
    folder: &'a OwnedFd,
    name: &'a OsStr,
    found: Option<&'a NodeStat>,
}

impl TargetEntry<'_> {
    /// Renames the new version into place, unless the entry has changed since it was checked.
    fn move_into_place(&self, temporary: &OsStr, path: &Path) -> ApplyResult {
        let rename = |flags| rustix::fs::renameat_with(self.folder, temporary, self.folder, self.name, flags);
        let was_file = self.found.filter(|found| !matches!(found.node, Node::Folder { .. }));
        let Some(expected) = was_file else {
            return match rename(RenameFlags::NOREPLACE) {
                Ok(()) => Ok(Ok(())),
                Err(Errno::EXIST) => Ok(Err(LandRefusal::Conflict)),
                Err(error) => Err(unwritable(path, error)),
            };
        };
        match rename(RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Err(LandRefusal::Conflict)),
            Err(error) => return Err(unwritable(path, error)),
        }
        // The exchange moved the old version aside, where it can be compared safely.
        let aside =
            NodeStat::in_folder(self.folder, temporary.as_ref()).map_err(|error| unreadable(path, error))?;
        let same = |aside: &NodeStat| {
            let identity = |stat: &rustix::fs::Stat| {
                (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec)
            };
            identity(&aside.stat) == identity(&expected.stat)
        };
        if aside.as_ref().is_some_and(same) {
            let removed = rustix::fs::unlinkat(self.folder, temporary, AtFlags::empty());
            return removed.map(Ok).map_err(|error| unwritable(path, error));
        }
        // Another process was faster: its version goes back.
        rename(RenameFlags::EXCHANGE).map_err(|error| unwritable(path, error))?;
        Ok(Err(LandRefusal::Conflict))
    }
}
