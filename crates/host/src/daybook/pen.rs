//! The file of the daybook, in the hand of whoever writes now.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use super::sheet::BLOCK;
use crate::files;

/// Bytes of the book. It is then begun again at its front, so its blocks stay where they are: syncing a block that is there
/// costs a third of what a new one does.
const CAPACITY: u64 = 8 << 20;

/// It grows by this much at a time, so that a house that does little has a short one.
const STEP: u64 = 256 << 10;

#[derive(Debug)]
pub(super) struct Pen {
    file: File,
    /// Where the next sheet goes.
    at: u64,
    /// Bytes that the file has.
    length: u64,
}

impl Pen {
    /// Opens the book at `path`, for its owner alone; makes it if it is missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(path)?;
        let length = file.metadata()?.len();
        if length == 0 {
            files::sync_parent(path)?;
        }
        Ok(Self { file, at: 0, length })
    }

    /// Everything in it.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut all = vec![0; usize::try_from(self.length.min(CAPACITY + STEP)).unwrap_or(0)];
        self.file.read_exact_at(&mut all, 0)?;
        Ok(all)
    }

    pub(super) const fn has_room(&self, bytes: usize) -> bool {
        self.at + bytes as u64 <= CAPACITY
    }

    pub(super) const fn is_half_full(&self) -> bool {
        self.at >= CAPACITY / 2
    }

    /// Writes a sheet behind the last. It is on disk when this returns.
    pub(super) fn write(&mut self, sheet: &mut Vec<u8>) -> io::Result<()> {
        let end = self.at + sheet.len() as u64;
        if end > self.length {
            // New blocks are made for the next ones too.
            let length = end.next_multiple_of(STEP);
            sheet.resize(usize::try_from(length - self.at).unwrap_or(sheet.len()), 0);
        }
        self.file.write_all_at(sheet, self.at)?;
        self.file.sync_data()?;
        self.length = self.length.max(self.at + sheet.len() as u64);
        self.at = end;
        Ok(())
    }

    /// Goes back to the front. What is there is written over.
    pub(super) const fn begin_again(&mut self) {
        self.at = 0;
    }

    /// Goes back to the front; nothing is found there any more.
    pub(super) fn close_book(&mut self) -> io::Result<()> {
        self.begin_again();
        if self.length > 0 {
            self.file.write_all_at(&[0; BLOCK], 0)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Goes back to the front, and overwrites everything.
    pub(super) fn wipe(&mut self) -> io::Result<()> {
        self.begin_again();
        let zeros = vec![0; usize::try_from(STEP).unwrap_or(BLOCK)];
        let mut at = 0;
        while at < self.length {
            let bytes = zeros.len().min(usize::try_from(self.length - at).unwrap_or(zeros.len()));
            self.file.write_all_at(&zeros[..bytes], at)?;
            at += bytes as u64;
        }
        self.file.sync_data()
    }
}
