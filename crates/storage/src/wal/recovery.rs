//! Crash recovery and clean shutdown of the WAL: which records of an earlier daemon are still to be applied, when they may be
//! overwritten, and the clean marker that a clean shutdown writes. A database that stores an epoch did not see a clean
//! shutdown and needs the WAL of that epoch.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use super::file::WalFile;
use super::flusher::Flusher;
use super::frame::CheckpointBase;
use super::watermarks::{Target, Watermarks};
use super::{
    Applier, ApplierRequest, UnappliedRecord, Wal, WalEpoch, WalInner, WalPosition, WalQueue, WriterState,
    failure, file, frame,
};
use crate::home::Home;
use crate::store::StoreError;

/// The name of the WAL's file in the home folder.
const FILE_NAME: &str = "daybook";

/// Largest number of WAL files kept in quarantine.
const MAX_ASIDE: usize = 100;

/// Records that an earlier daemon left for the vault.
#[derive(Debug, Clone)]
pub(crate) struct UnappliedRecords {
    pub(crate) records: Vec<UnappliedRecord>,
    /// The newest record that the vault has applied at least, if the WAL belongs to it.
    pub(crate) base: u64,
    /// The newest record for the vault behind a frame that cannot be read. It may come from an earlier pass over the file.
    pub(crate) stray: u64,
}

impl Wal {
    /// The path of the WAL of `home`.
    pub(crate) fn path(home: &Home) -> PathBuf {
        home.root().join(FILE_NAME)
    }

    /// Reads the epoch and the records in the WAL of `home`, if it can be read. Changes nothing.
    pub(crate) fn peek(home: &Home) -> Option<(WalEpoch, Vec<UnappliedRecord>)> {
        let scan = frame::scan(&file::read(&Self::path(home)).ok()?);
        scan.begun.map(|(epoch, _)| (epoch, scan.records))
    }

    /// Quarantines the WAL of `home`: moves it to a name that no start reads. The caller holds the lock.
    pub(crate) fn put_aside(home: &Home) -> Result<Option<PathBuf>, StoreError> {
        let path = Self::path(home);
        let failed = |error: std::io::Error| StoreError::from(failure(&path, &error));
        if !path.try_exists().map_err(failed)? {
            return Ok(None);
        }
        let names = (1..=MAX_ASIDE).map(|n| home.root().join(format!("{FILE_NAME}.aside-{n}")));
        let Some(aside) = names.into_iter().find(|name| !name.exists()) else {
            return Err(failed(std::io::Error::other("there are too many quarantined files already")));
        };
        file::move_to(&path, &aside).map_err(failed)?;
        Ok(Some(aside))
    }

    /// Opens the WAL of `home`, whose lock the caller holds. `known` is how far the ledger has applied it; none after a clean
    /// shutdown. Returns the records that the ledger has not applied yet.
    pub(crate) fn open(
        home: &Home,
        known: Option<WalPosition>,
    ) -> Result<(Self, Vec<UnappliedRecord>), StoreError> {
        let path = Self::path(home);
        let failed = |error: std::io::Error| StoreError::from(failure(&path, &error));
        let damaged = |what: &str| StoreError::WriteAheadLog { path: path.clone(), what: what.to_owned() };
        let is_missing = !std::fs::metadata(&path).is_ok_and(|found| found.len() > 0);
        if known.is_some() && is_missing {
            return Err(damaged("it is missing, and the records acknowledged last may exist only there"));
        }
        let scan = frame::scan(&file::read(&path).map_err(failed)?);
        if scan.foreign {
            return Err(damaged("another version wrote it: start and stop that version once"));
        }
        let applied = match (known, scan.begun) {
            (None, None) if scan.blank => 0,
            (None, _) => return Err(damaged("it holds records that this log never had")),
            (Some(known), Some((epoch, _))) if known.epoch != epoch => {
                return Err(damaged("it belongs to another log"));
            }
            (Some(known), Some((_, base))) if known.applied < base.ledger => {
                return Err(damaged("it continues from a newer state than the log has"));
            }
            (Some(known), _)
                if scan.has_lost(known.epoch, known.applied, |record| !record.ledger.is_empty()) =>
            {
                return Err(damaged("a frame in it cannot be read, and newer frames follow it"));
            }
            (Some(known), _) => known.applied,
        };
        let last = scan.records.last().map_or(applied, |last| last.number.max(applied));
        let unapplied = known.and_then(|known| unapplied_for_vault(&scan, known.epoch));
        let epoch = match (known, &unapplied) {
            (Some(known), Some(_)) => known.epoch,
            _ => WalEpoch::generate().map_err(failed)?,
        };
        let file = WalFile::open(&path).map_err(failed)?;
        let sent = CheckpointBase { ledger: last, vault: last };
        let marks = Watermarks::default();
        marks.begin_at(last);
        let queue =
            WalQueue { waiting: VecDeque::new(), leading: false, next: last + 1, unapplied, closed: false };
        let shared = WalInner {
            path,
            epoch,
            queue: Mutex::new(queue),
            writer_state: Mutex::new(WriterState { file, sent, base: sent, sync_requested: false }),
            marks,
            ledger: Mutex::default(),
            vault: Mutex::default(),
            failure: OnceLock::new(),
            flusher: Flusher::default(),
        };
        let for_ledger = |record: &UnappliedRecord| record.number > applied && !record.ledger.is_empty();
        Ok((Self(Arc::new(shared)), scan.records.into_iter().filter(for_ledger).collect()))
    }

    pub(crate) fn epoch(&self) -> WalEpoch {
        self.0.epoch
    }

    pub(crate) fn file(&self) -> &Path {
        &self.0.path
    }

    /// Attaches the writer of a database: from now on it is asked to sync before a rewind.
    pub(crate) fn attach(&self, target: Target, ask: impl Fn(ApplierRequest) + Send + Sync + 'static) {
        *self.applier(target) = Applier::There(Box::new(ask));
    }

    /// Detaches the writer of a database: it gets no further records and syncs what it has by itself.
    pub(crate) fn detach(&self, target: Target) {
        *self.applier(target) = Applier::Gone;
    }

    /// The records that an earlier daemon left for the vault. Until [`Self::begin`], nothing is written to the WAL.
    pub(crate) fn unapplied_for_vault(&self) -> Option<UnappliedRecords> {
        self.queue().unapplied.clone()
    }

    /// Starts writing: everything that was left is applied and on disk in both databases, the vault up to `vault`. A sequence
    /// number that a database has seen is not given out again.
    pub(crate) fn begin(&self, vault: u64) -> Result<(), StoreError> {
        let mut queue = self.queue();
        let mut state = self.writer_state();
        let last = vault.max(queue.next - 1);
        self.0.marks.begin_at(last);
        queue.next = last + 1;
        state.sent.vault = vault;
        state.mark_rewound();
        state.file.write_clean_marker().map_err(|error| self.broken(&error))?;
        queue.unapplied = None;
        Ok(())
    }

    /// Closes the WAL: no further records are accepted. Returns true after a clean shutdown: everything is on disk in the
    /// databases and the WAL is marked clean. Otherwise the next start recovers the rest from it.
    pub(crate) fn close(&self) -> bool {
        self.queue().closed = true;
        self.flush();
        if self.queue().unapplied.is_some() || self.0.failure.get().is_some() {
            return false;
        }
        let mut state = self.writer_state();
        self.sync_databases(&state).is_ok() && state.file.write_clean_marker().is_ok()
    }
}

fn unapplied_for_vault(scan: &frame::ScanResult, epoch: WalEpoch) -> Option<UnappliedRecords> {
    let has_vault_part = |record: &&UnappliedRecord| !record.vault.is_empty();
    let records: Vec<UnappliedRecord> = scan.records.iter().filter(has_vault_part).cloned().collect();
    let strays = scan.strays.iter().filter(|(of, _)| *of == epoch).map(|(_, record)| record);
    let stray = strays.filter(has_vault_part).map(|record| record.number).max().unwrap_or(0);
    let base = scan.begun.map_or(0, |(_, base)| base.vault);
    let is_there = !records.is_empty() || stray > 0;
    is_there.then_some(UnappliedRecords { records, base, stray })
}
