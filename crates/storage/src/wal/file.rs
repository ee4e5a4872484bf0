//! The file of the write-ahead log: preallocated, and written with O_DIRECT where the disk can do it. Only the leader writes
//! to it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::frame::BLOCK;
use crate::files;

/// Largest size of the file. When it is full, writing rewinds to its start, so its blocks stay where they are: syncing an
/// existing block costs a third of what a new one does.
const CAPACITY: u64 = 8 << 20;

/// The file grows by this much at a time, so that an instance with little work has a short one.
const STEP: u64 = 256 << 10;

/// Largest write buffer that is kept between two frames.
const SCRATCH: usize = 128 << 10;

/// Moves the file; its new name is durable.
pub(super) fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)?;
    files::sync_parent(to)
}

/// Reads the whole file at `path`; empty if there is none.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(CAPACITY + STEP).read_to_end(&mut all).map(|_| all),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(all),
        Err(error) => Err(error),
    }
}

#[derive(Debug)]
pub(super) struct WalFile {
    file: File,
    /// Offset of the next frame.
    at: u64,
    /// Size of the file in bytes.
    length: u64,
    /// The write buffer; what is written is aligned to [`BLOCK`], as O_DIRECT needs it. Bypassing the page cache takes a
    /// seventh off a sync.
    scratch: Vec<u8>,
}

impl WalFile {
    /// Opens the file at `path`, readable by its owner only; creates it if it is missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path, OFlags::DIRECT).or_else(|error| match error.kind() {
            io::ErrorKind::InvalidInput => open(path, OFlags::empty()),
            _ => Err(error),
        })?;
        let length = file.metadata()?.len();
        if length == 0 {
            files::sync_parent(path)?;
        }
        Ok(Self { file, at: 0, length, scratch: Vec::new() })
    }

    pub(super) const fn has_room(&self, bytes: usize) -> bool {
        self.at + bytes as u64 <= CAPACITY
    }

    pub(super) const fn is_half_full(&self) -> bool {
        self.at >= CAPACITY / 2
    }

    /// Appends a frame and syncs it (fdatasync). It is on disk when this returns.
    pub(super) fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let end = self.at + frame.len() as u64;
        // When the file grows, blocks for the next frames are allocated too.
        let length = if end > self.length { end.next_multiple_of(STEP) } else { end };
        self.put(frame, usize::try_from(length - self.at).unwrap_or(frame.len()), self.at)?;
        self.file.sync_data()?;
        self.length = self.length.max(length);
        self.at = end;
        Ok(())
    }

    /// Moves the write position to the start. Later frames overwrite what is there.
    pub(super) const fn rewind(&mut self) {
        self.at = 0;
    }

    /// Rewinds and clears the first block, so that a scan finds no records: the mark of a clean shutdown.
    pub(super) fn write_clean_marker(&mut self) -> io::Result<()> {
        self.rewind();
        self.put(&[], BLOCK, 0)?;
        self.file.sync_data()?;
        self.length = self.length.max(BLOCK as u64);
        Ok(())
    }

    /// Rewinds and overwrites the whole file with zeros.
    pub(super) fn zero_fill(&mut self) -> io::Result<()> {
        self.rewind();
        let mut at = 0;
        while at < self.length {
            let bytes = STEP.min((self.length - at).next_multiple_of(BLOCK as u64));
            self.put(&[], usize::try_from(bytes).unwrap_or(BLOCK), at)?;
            at += bytes;
        }
        self.file.sync_data()
    }

    /// Writes `bytes` at `at`, padded with zeros to `length`.
    fn put(&mut self, bytes: &[u8], length: usize, at: u64) -> io::Result<()> {
        self.scratch.clear();
        self.scratch.resize(length + BLOCK, 0);
        let from = self.scratch.as_ptr().align_offset(BLOCK).min(BLOCK);
        let aligned = &mut self.scratch[from..from + length];
        aligned[..bytes.len()].copy_from_slice(bytes);
        let written = match self.file.write_all_at(aligned, at) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                // This filesystem does not support O_DIRECT: write through the page cache.
                fcntl_setfl(&self.file, fcntl_getfl(&self.file)? - OFlags::DIRECT)?;
                self.file.write_all_at(aligned, at)
            }
            written => written,
        };
        if self.scratch.capacity() > SCRATCH {
            self.scratch = Vec::new();
        }
        written
    }
}

fn open(path: &Path, more: OFlags) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags((OFlags::NOFOLLOW | more).bits().cast_signed());
    options.open(path)
}
