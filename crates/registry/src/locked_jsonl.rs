//! A file of lines that several programs append to, under a lock (`flock`).
//!
//! Each append is one write to the end, so that programs that do not use the lock can append as well. The lock prevents those
//! that use it from appending to a file that is being replaced.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};

/// How long to wait for the lock. Tribune's own processes hold it for one write and one fsync.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The identity of a file: device and inode. Inode numbers are reused after a file is deleted, so an identity is valid only
/// while the file is held open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(super) fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

/// A locked file. The holder may append to it and replace it; dropping this releases the lock.
#[derive(Debug)]
pub(super) struct LineFile {
    file: File,
}

impl LineFile {
    /// Opens and locks the file. A missing file is created empty, with access for its owner only.
    pub(super) fn lock(path: &Path) -> io::Result<Self> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            let file = open_or_create(path)?;
            if flock_until(&file, deadline)? {
                // The previous holder may have replaced the file.
                let here = fs::symlink_metadata(path).map(|found| Identity::of(&found));
                if here.is_ok_and(|here| file.metadata().is_ok_and(|opened| Identity::of(&opened) == here)) {
                    return Ok(Self { file });
                }
            }
            if Instant::now() >= deadline {
                let held = format!("another program has kept it locked for {} s", LOCK_TIMEOUT.as_secs());
                return Err(io::Error::new(ErrorKind::WouldBlock, held));
            }
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Appends `lines`, which end with a newline, in one write. A torn last line is terminated first, so that it does not
    /// corrupt the new lines.
    pub(super) fn append(&self, lines: &[u8]) -> io::Result<()> {
        let mut whole = Vec::with_capacity(lines.len() + 1);
        if self.ends_inside_a_line()? {
            whole.push(b'\n');
        }
        whole.extend_from_slice(lines);
        loop {
            match (&self.file).write(&whole) {
                Ok(written) if written == whole.len() => return Ok(()),
                Ok(_) => return Err(ErrorKind::StorageFull.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn ends_inside_a_line(&self) -> io::Result<bool> {
        let len = self.len()?;
        let mut last = [b'\n'];
        if len > 0 {
            self.file.read_exact_at(&mut last, len - 1)?;
        }
        Ok(last != *b"\n")
    }
}

/// Opens the file for reading. Rejects symlinks and everything that is not a regular file.
pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    plain(OpenOptions::new().read(true).custom_flags(flags()).open(path)?)
}

fn open_or_create(path: &Path) -> io::Result<File> {
    let open = || {
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags()).open(path)
    };
    let opened = match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            open()
        }
        other => other,
    };
    plain(opened?)
}

fn plain(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(ErrorKind::InvalidInput, "it is not a plain file"))
    }
}

/// Does not follow symlinks, and does not block on a pipe.
fn flags() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

/// Whether the lock was acquired before the deadline. Waits in the kernel, which queues the waiters: polling could miss the lock
/// for as long as others take it one after the other.
fn flock_until(file: &File, deadline: Instant) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let same = file.try_clone()?;
    let (sender, receiver) = mpsc::channel();
    // If the lock comes too late, only this thread still has the file open, so its end releases the lock.
    thread::Builder::new().spawn(move || {
        let locked = rustix::io::retry_on_intr(|| rustix::fs::flock(&same, FlockOperation::LockExclusive));
        let _ = sender.send(locked);
    })?;
    match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(locked) => locked.map(|()| true).map_err(io::Error::from),
        Err(_) => Ok(false),
    }
}
