//! A file of lines that several programs add to, held locked while we change it.
//!
//! Lines are added in one write to the end, so that programs which never heard of the lock can add theirs as well. The
//! lock (`flock`) keeps those that did from adding to a file that is just being replaced.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};

/// How long to wait for a program that holds the lock. Ours hold it for one write and one fsync.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Which file a name led to. Numbers are used again after a file is gone, so they say something only while the file is
/// held open.
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

/// The file, ours to add to and to replace until this is dropped.
#[derive(Debug)]
pub(super) struct LineFile {
    file: File,
}

impl LineFile {
    /// Opens and locks the file, which begins empty and for its owner alone if there was none.
    pub(super) fn lock(path: &Path) -> io::Result<Self> {
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            let file = open_or_create(path)?;
            if flock_until(&file, deadline)? {
                // Whoever had the lock before may have put another file in this one's place.
                let here = fs::symlink_metadata(path).map(|found| Identity::of(&found));
                if here.is_ok_and(|here| file.metadata().is_ok_and(|ours| Identity::of(&ours) == here)) {
                    return Ok(Self { file });
                }
            }
            if Instant::now() >= deadline {
                let held = format!("another program has kept it locked for {} s", LOCK_PATIENCE.as_secs());
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

    /// Adds `lines`, which end with a newline, in one write. A line that someone left half written is ended first, so
    /// that it spoils only itself.
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

/// Opens the file for reading. Links and whatever is not a plain file are refused.
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

/// Not through a link, and not waiting for whoever holds the other end of a pipe.
fn flags() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

/// Whether the lock was had in time. Who has to wait waits in the kernel, which wakes it whenever the lock comes free: whoever looks
/// now and then can miss that for as long as others take it one after the other.
fn flock_until(file: &File, deadline: Instant) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let same = file.try_clone()?;
    let (tell, told) = mpsc::channel();
    // If it comes too late, nobody has the file open any more but this thread, and the lock goes with it.
    thread::Builder::new().spawn(move || {
        let locked = rustix::io::retry_on_intr(|| rustix::fs::flock(&same, FlockOperation::LockExclusive));
        let _ = tell.send(locked);
    })?;
    match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(locked) => locked.map(|()| true).map_err(io::Error::from),
        Err(_) => Ok(false),
    }
}
