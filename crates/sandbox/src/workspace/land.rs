//! Takes the changes of a session over into the workspace.
//!
//! Each file is written beside its place and then moved there in one step, so that nobody sees half of one. What somebody
//! else changed since the session began is not touched: both versions stay, theirs in the workspace and the session's in its
//! layer.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use super::diff::{Change, diff};
use super::layers::Base;
use super::node::{Found, Node};
use super::{Layers, WorkspaceError, beneath, unreadable, unwritable};

/// Which changes are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All but traps.
    All,
    /// All, traps too.
    Everything,
    /// These, and what is in them. A trap is landed only if it is named itself.
    Paths(Vec<PathBuf>),
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Landing {
    pub landed: Vec<PathBuf>,
    pub unlanded: Vec<Unlanded>,
}

/// A change that was left where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlanded {
    pub path: PathBuf,
    pub why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("it was changed in the workspace since the session began: merge both versions by hand")]
    Conflict,
    #[error("programs of this machine would obey it: name it by itself if you have read it")]
    Trap,
    #[error("it is a link to somewhere outside: make it yourself if you want it")]
    LinkLeaves,
    #[error("it is no file, folder or link")]
    NoFile,
    #[error("the folder around it was not landed")]
    NoFolder,
}

static LANDINGS: AtomicU64 = AtomicU64::new(0);

/// Lands changes. An error in the middle leaves whole files, landed or not; landing again goes on.
pub fn land(lower: &Path, layers: &Layers, selection: &Selection) -> Result<Landing, WorkspaceError> {
    let changes = diff(lower, layers)?.changes;
    let upper = layers.upper();
    let lower_folder = beneath::folder(lower).map_err(|error| unreadable(lower, error))?;
    let owner = rustix::fs::fstat(&lower_folder).map_err(|error| unreadable(lower, error))?;
    let upper_folder = beneath::folder(&upper).map_err(|error| unreadable(&upper, error))?;
    let is_root = rustix::process::geteuid().is_root();
    let mut field = Field {
        lower: lower_folder,
        upper: upper_folder,
        owner: is_root.then(|| (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid))),
        base: layers.base()?,
    };
    let mut landing = Landing::default();
    let done = (|| {
        // What is removed or replaced goes before what comes in its place; folders come before what is in them.
        for change in changes.iter().filter(|change| selection.includes(change, &changes)) {
            let path = change.path.clone();
            match refused(change, selection) {
                Some(why) => landing.unlanded.push(Unlanded { path, why }),
                None => match field.land(change)? {
                    Ok(()) => landing.landed.push(path),
                    Err(why) => landing.unlanded.push(Unlanded { path, why }),
                },
            }
        }
        Ok(())
    })();
    // What was landed is remembered even if something else went wrong, or it would look like somebody else's change.
    layers.write(&field.base).map_err(|error| unwritable(layers.folder(), error))?;
    done.map(|()| landing)
}

impl Selection {
    fn includes(&self, change: &Change, all: &[Change]) -> bool {
        match self {
            Self::All | Self::Everything => true,
            Self::Paths(paths) => paths.iter().any(|path| {
                // New folders around what was named come along.
                let is_around =
                    || matches!(change.after, Some(Node::Folder { .. })) && change.before.is_none();
                change.path.starts_with(path)
                    || (path.starts_with(&change.path)
                        && is_around()
                        && all.iter().any(|other| other.path.starts_with(path)))
            }),
        }
    }

    fn names(&self, path: &Path) -> bool {
        match self {
            Self::All => false,
            Self::Everything => true,
            Self::Paths(paths) => paths.iter().any(|named| named == path),
        }
    }
}

/// What is not landed whatever the workspace says.
fn refused(change: &Change, selection: &Selection) -> Option<Why> {
    if change.is_trap && !selection.names(&change.path) {
        return Some(Why::Trap);
    }
    if change.leaves {
        return Some(Why::LinkLeaves);
    }
    matches!(change.after, Some(Node::Other)).then_some(Why::NoFile)
}

/// Both sides, open.
struct Field {
    lower: OwnedFd,
    upper: OwnedFd,
    /// Whose the new files shall be, if we can choose.
    owner: Option<(Uid, Gid)>,
    base: Base,
}

type Landed = Result<Result<(), Why>, WorkspaceError>;

impl Field {
    fn land(&mut self, change: &Change) -> Landed {
        let path = change.path.as_path();
        let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
            return Ok(Err(Why::NoFile));
        };
        let folder = match beneath::open_folder(&self.lower, parent) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Err(Why::NoFolder)),
            Err(error) => return Err(unreadable(path, error)),
        };
        let found = Found::in_folder(&folder, name.as_ref()).map_err(|error| unreadable(path, error))?;
        if self.is_conflict(change, found.as_ref()) {
            return Ok(Err(Why::Conflict));
        }
        let place = Place { folder: &folder, name, found: found.as_ref() };
        let landed = match &change.after {
            None => self.remove(&place, path)?,
            Some(Node::Folder { mode }) => self.make_folder(&place, path, *mode)?,
            Some(Node::File { mode, .. }) => self
                .replace(&place, path, |field, temporary| field.copy_file(&folder, temporary, path, *mode))?,
            Some(Node::Symlink { to }) => self.replace(&place, path, |field, temporary| {
                rustix::fs::symlinkat(to, &folder, temporary).map_err(|error| unwritable(path, error))?;
                field.give(&folder, temporary, path)
            })?,
            Some(Node::Other) => Err(Why::NoFile),
        };
        if landed.is_ok() {
            let now = Found::in_folder(&folder, name.as_ref()).map_err(|error| unreadable(path, error))?;
            match now {
                Some(now) => self.base.landed.insert(path.to_owned(), now.changed_at()),
                None => self.base.landed.remove(path),
            };
        }
        Ok(landed)
    }

    /// Whether somebody else changed it since the session began.
    fn is_conflict(&self, change: &Change, found: Option<&Found>) -> bool {
        match (&change.before, found) {
            // It went meanwhile, or came: `before` is of a moment ago.
            (before, found) if before.as_ref() != found.map(|found| &found.node) => true,
            (_, None) => false,
            // A folder changes with each name in it, and no name is lost by merging.
            (Some(Node::Folder { .. }), Some(_)) if matches!(change.after, Some(Node::Folder { .. })) => {
                false
            }
            (_, Some(found)) => {
                let changed = found.changed_at();
                changed > self.base.began && self.base.landed.get(&change.path) != Some(&changed)
            }
        }
    }

    fn remove(&self, place: &Place<'_>, path: &Path) -> Landed {
        let is_folder = matches!(place.found, Some(Found { node: Node::Folder { .. }, .. }));
        if !is_folder {
            let removed = rustix::fs::unlinkat(place.folder, place.name, AtFlags::empty());
            return removed.map(Ok).map_err(|error| unwritable(path, error));
        }
        let held = beneath::open_folder(place.folder, place.name.as_ref())
            .map_err(|error| unreadable(path, error))?;
        if self.is_newer(&held, path)? {
            return Ok(Err(Why::Conflict));
        }
        let by_descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(place.folder));
        let removed = std::fs::remove_dir_all(Path::new(&by_descriptor).join(place.name));
        removed.map(Ok).map_err(|error| unwritable(path, error))
    }

    /// Whether anything in a folder was changed since the session began, and not by landing.
    fn is_newer(&self, folder: &OwnedFd, path: &Path) -> Result<bool, WorkspaceError> {
        for entry in rustix::fs::Dir::read_from(folder).map_err(|error| unreadable(path, error))? {
            let entry = entry.map_err(|error| unreadable(path, error))?;
            if [c".", c".."].contains(&entry.file_name()) {
                continue;
            }
            let name: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(entry.file_name().to_bytes());
            let inner = path.join(name);
            let found = Found::in_folder(folder, name.as_ref()).map_err(|error| unreadable(&inner, error))?;
            let Some(found) = found else { continue };
            let changed = found.changed_at();
            let is_ours = self.base.landed.get(&inner) == Some(&changed);
            match found.node {
                Node::Folder { .. } => {
                    let next = beneath::open_folder(folder, name.as_ref())
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

    fn make_folder(&self, place: &Place<'_>, path: &Path, mode: u32) -> Landed {
        match place.found {
            Some(Found { node: Node::Folder { .. }, .. }) => {}
            Some(_) => match self.remove(place, path)? {
                Ok(()) => self.new_folder(place, path)?,
                why => return Ok(why),
            },
            None => self.new_folder(place, path)?,
        }
        let held = beneath::open_folder(place.folder, place.name.as_ref())
            .map_err(|error| unreadable(path, error))?;
        rustix::fs::fchmod(&held, Mode::from_raw_mode(mode & 0o777))
            .map_err(|error| unwritable(path, error))?;
        Ok(Ok(()))
    }

    fn new_folder(&self, place: &Place<'_>, path: &Path) -> Result<(), WorkspaceError> {
        rustix::fs::mkdirat(place.folder, place.name, Mode::RWXU).map_err(|error| unwritable(path, error))?;
        self.give(place.folder, place.name, path)
    }

    /// Makes something beside its place, and moves it there.
    fn replace(
        &self,
        place: &Place<'_>,
        path: &Path,
        make: impl FnOnce(&Self, &OsStr) -> Result<(), WorkspaceError>,
    ) -> Landed {
        if let Some(Found { node: Node::Folder { .. }, .. }) = place.found
            && let Err(why) = self.remove(place, path)?
        {
            return Ok(Err(why));
        }
        let number = LANDINGS.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".tribune-landing-{}-{number}", std::process::id());
        let temporary = OsStr::new(&temporary);
        let moved = make(self, temporary).and_then(|()| place.take(temporary, path));
        if !matches!(moved, Ok(Ok(()))) {
            // Whatever it is by now, it is not needed.
            let _ = rustix::fs::unlinkat(place.folder, temporary, AtFlags::empty());
        }
        moved
    }

    fn copy_file(&self, folder: &OwnedFd, to: &OsStr, path: &Path, mode: u32) -> Result<(), WorkspaceError> {
        let source = beneath::open_file(&self.upper, path).map_err(|error| unreadable(path, error))?;
        let stat = rustix::fs::fstat(&source).map_err(|error| unreadable(path, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(unreadable(path, std::io::Error::from(std::io::ErrorKind::InvalidData)));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(folder, to, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| unwritable(path, error))?;
        let (mut source, mut target) = (File::from(source), File::from(target));
        let copied = std::io::copy(&mut source, &mut target)
            .and_then(|_| {
                if let Some((uid, gid)) = self.owner {
                    rustix::fs::fchown(&target, Some(uid), Some(gid))?;
                }
                // After the change of owner, and without the bits that give an owner's rights away.
                Ok(rustix::fs::fchmod(target.as_fd(), Mode::from_raw_mode(mode & 0o777))?)
            })
            .and_then(|()| target.sync_all());
        copied.map_err(|error| unwritable(path, error))
    }

    fn give(&self, folder: &OwnedFd, name: &OsStr, path: &Path) -> Result<(), WorkspaceError> {
        let Some((uid, gid)) = self.owner else { return Ok(()) };
        rustix::fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| unwritable(path, error))
    }
}

/// A name in a folder of the workspace, and what was found there.
struct Place<'a> {
    folder: &'a OwnedFd,
    name: &'a OsStr,
    found: Option<&'a Found>,
}

impl Place<'_> {
    /// Moves the new version here, unless what is here is no longer what was found.
    fn take(&self, temporary: &OsStr, path: &Path) -> Landed {
        let rename = |flags| rustix::fs::renameat_with(self.folder, temporary, self.folder, self.name, flags);
        let was_file = self.found.filter(|found| !matches!(found.node, Node::Folder { .. }));
        let Some(expected) = was_file else {
            return match rename(RenameFlags::NOREPLACE) {
                Ok(()) => Ok(Ok(())),
                Err(Errno::EXIST) => Ok(Err(Why::Conflict)),
                Err(error) => Err(unwritable(path, error)),
            };
        };
        match rename(RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(Err(Why::Conflict)),
            Err(error) => return Err(unwritable(path, error)),
        }
        // The old version is aside now, where it can be compared at leisure.
        let aside =
            Found::in_folder(self.folder, temporary.as_ref()).map_err(|error| unreadable(path, error))?;
        let same = |aside: &Found| {
            let identity = |stat: &rustix::fs::Stat| {
                (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec)
            };
            identity(&aside.stat) == identity(&expected.stat)
        };
        if aside.as_ref().is_some_and(same) {
            let removed = rustix::fs::unlinkat(self.folder, temporary, AtFlags::empty());
            return removed.map(Ok).map_err(|error| unwritable(path, error));
        }
        // Somebody was faster: theirs goes back.
        rename(RenameFlags::EXCHANGE).map_err(|error| unwritable(path, error))?;
        Ok(Err(Why::Conflict))
    }
}
