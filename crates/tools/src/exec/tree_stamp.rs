//! A stamp of all files below some folders, made of what the kernel keeps of them and not of their content: it is there
//! to tell whether anything was changed, and has to be quick in large trees.
//!
//! Every change of a file sets its change time, which no program can choose. Two changes within one tick of the kernel's
//! clock have the same time; a file that was changed in the present tick is therefore looked at again in a later one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;
use tribune_records::approval::action::TreeStamp;
use tribune_records::text::shown;

/// Files and folders of a tree.
const MAX_ENTRIES: usize = 100_000;

/// Entries whose names are kept, to say which of them changed.
const MAX_NAMED: usize = 20_000;

/// Threads that look at one tree, and folders for which another one is worth its start.
const MAX_THREADS: usize = 4;
const FOLDERS_PER_THREAD: usize = 16;

/// Longer than a tick of the kernel's clock.
const TICK: Duration = Duration::from_millis(11);

/// How often files that are being changed are looked at again.
const MAX_TRIES: usize = 4;

/// Nanoseconds after which a time in the future is not one of this tick: the clock was set back.
const FUTURE: i64 = 1_000_000_000;

/// A folder whose tree is stamped, and what its names begin with.
pub(crate) type StampedRoot<'a> = (String, &'a OwnedFd);

/// The stamp of these trees. No link is followed.
pub(crate) fn tree_stamp(roots: &[StampedRoot<'_>], stop: &CancellationToken) -> TreeStamp {
    let started = now();
    let mut entries = Vec::new();
    for (index, (_, root)) in roots.iter().enumerate() {
        match tree(index, root, stop) {
            Ok(found) => entries.extend(found),
            Err(TreeError::TooLarge) => {
                return TreeStamp::unbound(format!("more than {MAX_ENTRIES} files and folders"));
            }
            Err(TreeError::Failed(folder, error)) => {
                let folder = String::from_utf8_lossy(&folder);
                return TreeStamp::unbound(format!("`{}` cannot be read ({error})", shown(&folder)));
            }
        }
    }
    settle(&mut entries, roots, started, stop);
    entries.sort_unstable();
    let mut hasher = blake3::Hasher::new();
    for TreeEntry { root, path, numbers } in &entries {
        hasher.update(&root.to_le_bytes()).update(path).update(&[0]);
        numbers.iter().for_each(|number| {
            hasher.update(&number.to_le_bytes());
        });
    }
    let digest = hasher.finalize().to_hex().to_string();
    if entries.len() > MAX_NAMED {
        return TreeStamp::from(digest);
    }
    let named = |TreeEntry { root, path, numbers }| {
        let mut value = DefaultHasher::new();
        numbers.hash(&mut value);
        (format!("{}{}", roots[root].0, String::from_utf8_lossy(&path)), value.finish())
    };
    TreeStamp { digest, entries: Arc::new(entries.into_iter().map(named).collect()) }
}

/// A file or folder, and what the kernel says of it: mode, device, inode, size, change time, modification time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TreeEntry {
    root: usize,
    path: Vec<u8>,
    numbers: [i64; 6],
}

enum TreeError {
    TooLarge,
    Failed(Vec<u8>, Errno),
}

impl TreeEntry {
    fn new(root: usize, path: Vec<u8>, stat: &Stat) -> Self {
        let mode = i64::from(stat.st_mode);
        // What is in a folder has entries of its own.
        let numbers = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => [mode, 0, 0, 0, 0, 0],
            _ => [
                mode,
                stat.st_dev.cast_signed(),
                stat.st_ino.cast_signed(),
                stat.st_size,
                nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
                nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            ],
        };
        Self { root, path, numbers }
    }

    /// Whether another change could have the same time as the last one.
    fn is_fresh(&self, looked_at: i64) -> bool {
        (looked_at..looked_at.saturating_add(FUTURE)).contains(&self.numbers[4])
    }
}

/// Looks again at the entries that were changed in the tick in which they were looked at.
fn settle(
    entries: &mut Vec<TreeEntry>,
    roots: &[StampedRoot<'_>],
    mut looked_at: i64,
    stop: &CancellationToken,
) {
    for _ in 0..MAX_TRIES {
        if stop.is_cancelled() || !entries.iter().any(|entry| entry.is_fresh(looked_at)) {
            return;
        }
        thread::sleep(TICK);
        let before = std::mem::replace(&mut looked_at, now());
        entries.retain_mut(|entry| {
            if !entry.is_fresh(before) {
                return true;
            }
            let path = entry.path.as_slice();
            match rustix::fs::statat(roots[entry.root].1, path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => *entry = TreeEntry::new(entry.root, std::mem::take(&mut entry.path), &stat),
                Err(_) => return false,
            }
            true
        });
    }
    for entry in entries.iter_mut().filter(|entry| entry.is_fresh(looked_at)) {
        // It changes all the time, so no later stamp is the same.
        entry.numbers[5] = now();
    }
}

/// Everything below a folder, level by level.
fn tree(root: usize, fd: &OwnedFd, stop: &CancellationToken) -> Result<Vec<TreeEntry>, TreeError> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let (mut found, mut level) = (Vec::new(), vec![b".".to_vec()]);
    while !level.is_empty() {
        let share = level.len().div_ceil(threads).max(FOLDERS_PER_THREAD);
        let looked = thread::scope(|scope| {
            let (own, others) = level.split_at(share.min(level.len()));
            let others: Vec<_> =
                others.chunks(share).map(|folders| scope.spawn(|| look(root, fd, folders, stop))).collect();
            let mut looked = vec![look(root, fd, own, stop)];
            looked.extend(others.into_iter().map(|other| other.join().unwrap_or(Err(TreeError::TooLarge))));
            looked
        });
        level.clear();
        for entries in looked {
            let entries = entries?;
            let is_folder = |entry: &&TreeEntry| entry.numbers[1..] == [0; 5];
            level.extend(entries.iter().filter(is_folder).map(|entry| entry.path.clone()));
            found.extend(entries);
        }
        if found.len() > MAX_ENTRIES {
            return Err(TreeError::TooLarge);
        }
    }
    Ok(found)
}

/// The entries of these folders.
fn look(
    root: usize,
    fd: &OwnedFd,
    folders: &[Vec<u8>],
    stop: &CancellationToken,
) -> Result<Vec<TreeEntry>, TreeError> {
    let mut found = Vec::new();
    for folder in folders {
        let failed = |error| TreeError::Failed(folder.clone(), error);
        if stop.is_cancelled() {
            return Err(failed(Errno::CANCELED));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = match rustix::fs::openat2(fd, folder.as_slice(), flags, Mode::empty(), resolve) {
            Ok(opened) => opened,
            // It was removed meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if folder != b"." => continue,
            Err(error) => return Err(failed(error)),
        };
        for entry in Dir::read_from(&opened).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let path = if folder == b"." {
                name.to_bytes().to_vec()
            } else {
                [folder.as_slice(), b"/", name.to_bytes()].concat()
            };
            found.push(TreeEntry::new(root, path, &stat));
            if found.len() > MAX_ENTRIES {
                return Err(TreeError::TooLarge);
            }
        }
    }
    Ok(found)
}

/// The time that the kernel would give a file now.
fn now() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    nanoseconds(now.tv_sec, now.tv_nsec)
}

fn nanoseconds(seconds: i64, nanoseconds: impl TryInto<i64>) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds.try_into().unwrap_or_default())
}
