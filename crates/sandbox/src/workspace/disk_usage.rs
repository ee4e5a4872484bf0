//! Disk usage of a session: the size of its overlay, or the growth of its folder.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::inaccessible_dirs::enter;
use super::{MAX_CHANGES, MAX_DEPTH, OverlayDirs, WorkspaceError, resolve_beneath, unreadable};
use crate::dir_entries::{MAX_ENTRIES, read_entries};

/// Maximum number of entries by which a folder may grow.
pub const MAX_GROWTH: usize = MAX_ENTRIES;

/// How far file times lag behind the clock, at most.
const FILE_TIME_LAG: Duration = Duration::from_millis(20);

/// Space on disk. Open files without a name are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    pub bytes: u64,
    /// Files, folders and everything else with a name. Counting stops above the maximum.
    pub names: usize,
}

impl OverlayDirs {
    /// Counts the overlay. For a quota that the host enforces, because file systems do not for ordinary users. Entries
    /// that disappear meanwhile are not counted.
    pub fn usage(&self) -> Result<DiskUsage, WorkspaceError> {
        let mut counter = UsageCounter { began: i128::MIN, most: MAX_CHANGES, ..UsageCounter::default() };
        counter.count_folder(&self.upper())?;
        Ok(counter.new)
    }
}

/// The growth of a folder that is changed directly, from a point in time on.
#[derive(Debug, Clone)]
pub struct DirGrowth {
    folder: PathBuf,
    /// In nanoseconds, like file times.
    began: i128,
    before: Option<DiskUsage>,
}

impl DirGrowth {
    /// Starts measuring now.
    #[must_use]
    pub fn start(folder: &Path) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let began = i128::try_from(since.saturating_sub(FILE_TIME_LAG).as_nanos()).unwrap_or(i128::MAX);
        Self { folder: folder.to_owned(), began, before: None }
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Counts the growth. The first count also establishes the size before: everything that has not changed since.
    /// Returns `None` if the folder had too many entries to count.
    pub fn count(&mut self) -> Result<Option<DiskUsage>, WorkspaceError> {
        let most = MAX_GROWTH + self.before.map_or(MAX_ENTRIES, |before| before.names);
        let mut counter = UsageCounter { began: self.began, most, ..UsageCounter::default() };
        counter.count_folder(&self.folder)?;
        if self.before.is_none() && counter.names() > most {
            return Ok(None);
        }
        let before = *self.before.get_or_insert(counter.old);
        Ok(Some(DiskUsage {
            bytes: (counter.old.bytes + counter.new.bytes).saturating_sub(before.bytes),
            names: counter.names().saturating_sub(before.names),
        }))
    }
}

/// A running count.
#[derive(Debug, Default)]
struct UsageCounter {
    began: i128,
    most: usize,
    /// Entries that existed before and have not changed.
    old: DiskUsage,
    new: DiskUsage,
    /// Files with hard links, which are counted once.
    linked: HashSet<(u64, u64)>,
}

impl UsageCounter {
    const fn names(&self) -> usize {
        self.old.names + self.new.names
    }

    fn count_folder(&mut self, path: &Path) -> Result<(), WorkspaceError> {
        let root = resolve_beneath::open_root(path).map_err(|error| unreadable(path, error))?;
        self.walk(&root, Path::new(""), 0)
    }

    fn walk(&mut self, folder: &OwnedFd, path: &Path, depth: usize) -> Result<(), WorkspaceError> {
        if depth > MAX_DEPTH {
            return Err(WorkspaceError::TooMany);
        }
        for entry in read_entries(folder).map_err(|error| unreadable(path, error))? {
            if self.names() > self.most {
                return Ok(());
            }
            let name = OsStr::from_bytes(&entry.name);
            let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(unreadable(path.join(name), error)),
            };
            let is_new = self.add(&stat);
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                continue;
            }
            let counted = if is_new {
                // A folder that denies access stays accessible while this is held.
                enter(folder, name.as_ref())
                    .map(|entered| self.walk(&entered.folder, &path.join(name), depth + 1))
            } else {
                resolve_beneath::open_folder(folder, name.as_ref())
                    .map(|folder| self.walk(&folder, &path.join(name), depth + 1))
            };
            match counted {
                Ok(counted) => counted?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                // Owned by another user, who alone can fill it.
                Err(Errno::ACCESS) if !is_new => {}
                Err(error) => return Err(unreadable(path.join(name), error)),
            }
        }
        Ok(())
    }

    /// Adds an entry. Returns whether it has changed since the start.
    fn add(&mut self, stat: &Stat) -> bool {
        let changed = i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec);
        let is_new = changed >= self.began;
        let usage = if is_new { &mut self.new } else { &mut self.old };
        usage.names += 1;
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_folder || stat.st_nlink < 2 || self.linked.insert((stat.st_dev, stat.st_ino)) {
            usage.bytes = usage.bytes.saturating_add(stat.st_blocks.cast_unsigned().saturating_mul(512));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_counts_only_what_was_written_after_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, mib: usize| {
            std::fs::write(folder.path().join(name), vec![1; mib << 20]).unwrap();
        };
        write("old", 3);
        write("changed", 1);
        std::thread::sleep(FILE_TIME_LAG * 3);
        let mut growth = DirGrowth::start(folder.path());
        std::thread::sleep(FILE_TIME_LAG * 3);
        write("new", 2);
        let mib = |usage: Option<DiskUsage>| (usage.unwrap().bytes >> 20, usage.unwrap().names);
        assert_eq!(mib(growth.count().unwrap()), (2, 1));
        // Hard links take no space, and removing frees some.
        std::fs::hard_link(folder.path().join("old"), folder.path().join("link")).unwrap();
        assert_eq!(mib(growth.count().unwrap()), (2, 2));
        write("changed", 4);
        assert_eq!(mib(growth.count().unwrap()), (5, 2));
        std::fs::remove_file(folder.path().join("new")).unwrap();
        assert_eq!(mib(growth.count().unwrap()), (3, 1));
    }
}
