//! Where a book begins and ends: what an earlier daemon left in it, when it may be written over, and what a daemon leaves that
//! goes in peace. A database that knows a book was not left in peace, and needs that book.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use super::file::WalFile;
use super::flusher::Flusher;
use super::frame::CheckpointBase;
use super::watermarks::{Target, Watermarks};
use super::{
    Applier, ApplierRequest, UnappliedRecord, Wal, WalEpoch, WalInner, WalQueue, WriterState, failure, file,
    frame,
};
use crate::home::Home;
use crate::store::StoreError;

/// Books that lie aside, at most.
const MAX_ASIDE: usize = 100;

/// What an earlier daemon left for the vault.
#[derive(Debug, Clone)]
pub(crate) struct UnappliedRecords {
    pub(crate) records: Vec<UnappliedRecord>,
    /// What the vault has at least, if it is the book's.
    pub(crate) base: u64,
    /// The newest record for it behind a sheet that cannot be read, which may be an old one.
    pub(crate) stray: u64,
}

impl Wal {
    /// Where the book of `home` lies.
    pub(crate) fn path(home: &Home) -> PathBuf {
        home.root().join("daybook")
    }

    /// What the book of `home` holds, if it can be read. Changes nothing.
    pub(crate) fn peek(home: &Home) -> Option<(WalEpoch, Vec<UnappliedRecord>)> {
        let held = frame::scan(&file::read(&Self::path(home)).ok()?);
        held.begun.map(|(book, _)| (book, held.records))
    }

    /// Moves the book of `home` to a name where nobody looks for one. The caller holds the lock.
    pub(crate) fn put_aside(home: &Home) -> Result<Option<PathBuf>, StoreError> {
        let path = Self::path(home);
        let failed = |error: std::io::Error| StoreError::from(failure(&path, &error));
        if !path.try_exists().map_err(failed)? {
            return Ok(None);
        }
        let names = (1..=MAX_ASIDE).map(|n| home.root().join(format!("daybook.aside-{n}")));
        let Some(aside) = names.into_iter().find(|name| !name.exists()) else {
            return Err(failed(std::io::Error::other("too many lie there already")));
        };
        file::move_to(&path, &aside).map_err(failed)?;
        Ok(Some(aside))
    }

    /// Opens the book of `home`, whose lock the caller holds. `known` is the book that the ledger was posted from, and how
    /// far; none if it was left in peace. Returns what is to be posted there.
    pub(crate) fn open(
        home: &Home,
        known: Option<(WalEpoch, u64)>,
    ) -> Result<(Self, Vec<UnappliedRecord>), StoreError> {
        let path = Self::path(home);
        let failed = |error: std::io::Error| StoreError::from(failure(&path, &error));
        let damaged = |what: &str| StoreError::Daybook { path: path.clone(), what: what.to_owned() };
        let is_missing = !std::fs::metadata(&path).is_ok_and(|found| found.len() > 0);
        if known.is_some() && is_missing {
            return Err(damaged("it is missing, and what was promised last may be there alone"));
        }
        let held = frame::scan(&file::read(&path).map_err(failed)?);
        if held.foreign {
            return Err(damaged("another version wrote it: start and stop that version once"));
        }
        let posted = match (known, held.begun) {
            (None, None) if held.blank => 0,
            (None, _) => return Err(damaged("it holds what this log never had")),
            (Some((book, _)), Some((id, _))) if book != id => {
                return Err(damaged("it is the book of another log"));
            }
            (Some((_, posted)), Some((_, base))) if posted < base.ledger => {
                return Err(damaged("it goes on behind what the log has"));
            }
            (Some((book, posted)), _) if held.has_lost(book, posted, |record| !record.ledger.is_empty()) => {
                return Err(damaged("a sheet in it cannot be read, and newer ones stand behind it"));
            }
            (Some((_, posted)), _) => posted,
        };
        let last = held.records.last().map_or(posted, |last| last.number.max(posted));
        let left = known.and_then(|(book, _)| left_for_vault(&held, book));
        let book = match (known, &left) {
            (Some((book, _)), Some(_)) => book,
            _ => WalEpoch::generate().map_err(failed)?,
        };
        let pen = WalFile::open(&path).map_err(failed)?;
        let handed = CheckpointBase { ledger: last, vault: last };
        let marks = Watermarks::default();
        marks.begin_at(last);
        let queue =
            WalQueue { waiting: VecDeque::new(), leading: false, next: last + 1, left, closed: false };
        let shared = WalInner {
            path,
            book,
            queue: Mutex::new(queue),
            desk: Mutex::new(WriterState { pen, handed, base: handed, asked: false }),
            marks,
            ledger: Mutex::default(),
            vault: Mutex::default(),
            failure: OnceLock::new(),
            scribe: Flusher::default(),
        };
        let behind = |record: &UnappliedRecord| record.number > posted && !record.ledger.is_empty();
        Ok((Self(Arc::new(shared)), held.records.into_iter().filter(behind).collect()))
    }

    pub(crate) fn book(&self) -> WalEpoch {
        self.0.book
    }

    pub(crate) fn file(&self) -> &Path {
        &self.0.path
    }

    /// From now on this side is asked to sync when the book is begun again.
    pub(crate) fn attach(&self, side: Target, ask: impl Fn(ApplierRequest) + Send + Sync + 'static) {
        *self.applier(side) = Applier::There(Box::new(ask));
    }

    /// Nothing more comes for this side; it syncs what it has by itself.
    pub(crate) fn detach(&self, side: Target) {
        *self.applier(side) = Applier::Gone;
    }

    /// What is left of an earlier daemon for the vault. Until [`Self::begin`] nothing is written into the book.
    pub(crate) fn left_for_vault(&self) -> Option<UnappliedRecords> {
        self.queue().left.clone()
    }

    /// Everything that was left is posted and on disk in both databases, the vault up to `vault`: the book begins. A number
    /// that a database has is not given again.
    pub(crate) fn begin(&self, vault: u64) -> Result<(), StoreError> {
        let mut queue = self.queue();
        let mut desk = self.writer_state();
        let last = vault.max(queue.next - 1);
        self.0.marks.begin_at(last);
        queue.next = last + 1;
        desk.handed.vault = vault;
        desk.begun();
        desk.pen.write_clean_marker().map_err(|error| self.broken(&error))?;
        queue.left = None;
        Ok(())
    }

    /// Ends the book: nothing is taken any more. Returns whether everything is on disk in the databases, and nothing in the
    /// book; if not, the next start finds the rest there.
    pub(crate) fn close(&self) -> bool {
        self.queue().closed = true;
        self.flush();
        if self.queue().left.is_some() || self.0.failure.get().is_some() {
            return false;
        }
        let mut desk = self.writer_state();
        self.sync_sides(&desk).is_ok() && desk.pen.write_clean_marker().is_ok()
    }
}

fn left_for_vault(held: &frame::ScanResult, book: WalEpoch) -> Option<UnappliedRecords> {
    let is_words = |record: &&UnappliedRecord| !record.vault.is_empty();
    let records: Vec<UnappliedRecord> = held.records.iter().filter(is_words).cloned().collect();
    let strays = held.strays.iter().filter(|(of, _)| *of == book).map(|(_, record)| record);
    let stray = strays.filter(is_words).map(|record| record.number).max().unwrap_or(0);
    let base = held.begun.map_or(0, |(_, base)| base.vault);
    let is_there = !records.is_empty() || stray > 0;
    is_there.then_some(UnappliedRecords { records, base, stray })
}
