//! Write-ahead log with group commit, shared by the ledger and the vault.
//!
//! A record becomes durable here first, with the parts for both databases in one record and one sync for all records that
//! were queued meanwhile; then its callers continue. The writer thread of each database applies the records in the same
//! order, and readers in this process wait until it has. At startup, records that the log holds and a database does not
//! are applied before anything else.
//!
//! Group commit: the first waiter becomes the leader and flushes every queued record in its own thread, because a sync
//! takes less time than waking another thread. Every waiter tries to become the leader, so no waiter depends on a task
//! that is not scheduled. On a slow disk a background thread does it, so that threads which run tasks
//! do not block on the disk.

mod file;
mod flusher;
mod frame;
pub(crate) mod permits;
mod recovery;
mod watermarks;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use self::recovery::UnappliedRecords;
pub(crate) use self::watermarks::{ReadPoint, Target};

use self::file::WalFile;
use self::flusher::Flusher;
use self::frame::CheckpointBase;
use self::watermarks::Watermarks;
use crate::store::StoreError;

/// Largest record that goes through the WAL, in bytes. A larger one goes to the databases directly, each with a sync of
/// its own.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// Bytes in a frame after which no further record is added.
const FRAME_BYTES: usize = 1 << 20;

/// How long a lazy record waits for the next batch before its waiter flushes inline.
const LAZY_FLUSH_DELAY: Duration = Duration::from_millis(1);

/// Identifies one incarnation of the WAL. A database stores the epoch whose records it has applied; each start begins a
/// new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalEpoch(pub(crate) [u8; 16]);

impl WalEpoch {
    pub(crate) fn generate() -> std::io::Result<Self> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self(id))
    }
}

/// How far a database has applied the WAL. A database without one was closed cleanly and does not need the WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalPosition {
    pub(crate) epoch: WalEpoch,
    /// The newest record that it has applied.
    pub(crate) applied: u64,
}

/// One record as recovery reads it at startup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnappliedRecord {
    pub(crate) number: u64,
    pub(crate) ledger: Vec<u8>,
    pub(crate) vault: Vec<u8>,
}

/// The part of a record for one database: its encoding in the WAL, and the closure that sends it to the database's
/// writer once it has a sequence number.
pub struct WalPart {
    pub(crate) bytes: Vec<u8>,
    pub(crate) send: Box<dyn FnOnce(u64) + Send>,
}

impl std::fmt::Debug for WalPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WalPart")
    }
}

/// One record: the parts for both databases, written atomically.
#[derive(Debug, Default)]
pub struct WalRecord {
    pub ledger: Option<WalPart>,
    pub vault: Option<WalPart>,
}

/// Why the WAL accepts no further records.
#[derive(Debug, Clone)]
enum WalFailure {
    Full(PathBuf),
    Io {
        path: PathBuf,
        what: String,
    },
    /// A database could not apply an acknowledged record.
    Elsewhere(String),
}

/// The write-ahead log of a home; clones share it.
#[derive(Debug, Clone)]
pub struct Wal(Arc<WalInner>);

#[derive(Debug)]
struct WalInner {
    path: PathBuf,
    epoch: WalEpoch,
    queue: Mutex<WalQueue>,
    writer_state: Mutex<WriterState>,
    marks: Watermarks,
    ledger: Mutex<Applier>,
    vault: Mutex<Applier>,
    failure: OnceLock<WalFailure>,
    /// Flushes records that have no waiter.
    flusher: Flusher,
}

/// What the WAL asks of the writer of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApplierRequest {
    /// Sync what it has applied.
    Sync,
    /// Commit without waiting for more: a reader waits.
    Commit,
}

/// The writer of a database, as the WAL reaches it.
#[derive(Default)]
enum Applier {
    /// No writer is attached yet.
    #[default]
    Unattached,
    /// A writer that takes requests.
    There(Box<dyn Fn(ApplierRequest) + Send + Sync>),
    /// The writer has ended and has synced everything.
    Gone,
}

impl std::fmt::Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Applier")
    }
}

/// Records that are not written yet.
#[derive(Debug)]
struct WalQueue {
    waiting: VecDeque<QueuedRecord>,
    /// A leader is flushing.
    leading: bool,
    next: u64,
    /// Records that an earlier daemon left for the vault. They must be applied before anything overwrites them.
    unapplied: Option<UnappliedRecords>,
    /// No further records are accepted.
    closed: bool,
}

struct QueuedRecord {
    number: u64,
    record: WalRecord,
    /// Overwrite the whole WAL once everything in it is applied.
    zero_fill: bool,
}

impl std::fmt::Debug for QueuedRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QueuedRecord({})", self.number)
    }
}

/// What the leader works with.
#[derive(Debug)]
struct WriterState {
    file: WalFile,
    /// The newest record sent to each database's writer.
    sent: CheckpointBase,
    /// The newest record that each database had on disk when the WAL was last rewound.
    base: CheckpointBase,
    /// The databases were asked to sync since the last rewind.
    sync_requested: bool,
}

impl Wal {
    /// Whether a record of this size goes through the WAL.
    pub fn fits(&self, bytes: usize) -> bool {
        bytes <= MAX_RECORD_BYTES && self.queue().unapplied.is_none()
    }

    /// Writes a record. It is durable when this returns.
    pub(crate) async fn write(&self, record: WalRecord) -> Result<(), StoreError> {
        self.flush_or_zero_fill(record, false).await
    }

    /// Overwrites the WAL with zeros once everything in it is applied.
    pub(crate) async fn zero_fill(&self) -> Result<(), StoreError> {
        if self.queue().unapplied.is_none() {
            self.flush_or_zero_fill(WalRecord::default(), true).await
        } else {
            Ok(())
        }
    }

    async fn flush_or_zero_fill(&self, record: WalRecord, zero_fill: bool) -> Result<(), StoreError> {
        let number = self.enqueue(record, zero_fill)?;
        self.wait_durable_async(number).await
    }

    /// Waits until every record with a sequence number is durable, or the WAL has failed.
    pub async fn wait_all_durable(&self) {
        // The next write returns the error.
        let _ = self.wait_durable_async(self.newest()).await;
    }

    /// Waits until this record is durable. On a fast disk the caller becomes the leader if there is none.
    pub async fn wait_durable_async(&self, number: u64) -> Result<(), StoreError> {
        if self.0.flusher.disk_is_slow() && self.wake_flusher() {
            return self.completion(number).await;
        }
        loop {
            let completed = self.0.marks.completion();
            tokio::pin!(completed);
            // From here on no notification is missed.
            completed.as_mut().enable();
            if let Some(written) = self.0.marks.is_durable(number) {
                return if written { Ok(()) } else { Err(self.refusal()) };
            }
            if !self.flush_as_leader() {
                completed.await;
            }
        }
    }

    /// Waits until every record is durable, or the WAL has failed. For threads outside an async runtime.
    pub(crate) fn flush(&self) {
        self.flush_to(self.newest());
    }

    /// Waits until this record is durable, or the WAL has failed. For threads outside an async runtime.
    pub(crate) fn flush_to(&self, number: u64) {
        loop {
            let seen = self.0.marks.frames();
            if self.0.marks.is_durable(number).is_some() {
                return;
            }
            if !self.flush_as_leader() {
                self.0.marks.wait_written(number, seen);
            }
        }
    }

    /// The sequence number of the newest record.
    pub(crate) fn newest(&self) -> u64 {
        self.queue().next - 1
    }

    /// Waits until this record is durable: flushed with the next batch, or inline after 1 ms.
    pub async fn wait_or_flush(&self, number: u64) -> Result<(), StoreError> {
        tokio::select! {
            biased;
            written = self.completion(number) => written,
            () = tokio::time::sleep(LAZY_FLUSH_DELAY) => self.wait_durable_async(number).await,
        }
    }

    async fn completion(&self, number: u64) -> Result<(), StoreError> {
        loop {
            let completed = self.0.marks.completion();
            tokio::pin!(completed);
            completed.as_mut().enable();
            if let Some(written) = self.0.marks.is_durable(number) {
                return if written { Ok(()) } else { Err(self.refusal()) };
            }
            completed.await;
        }
    }

    /// Queues a record without flushing it: it is written before every later record, or when a caller waits for it. Returns
    /// its sequence number.
    pub fn enqueue_lazy(&self, record: WalRecord) -> Result<u64, StoreError> {
        self.enqueue(record, false)
    }

    /// The newest records and direct requests of both databases.
    pub(crate) fn read_point(&self) -> ReadPoint {
        self.0.marks.read_point()
    }

    /// Waits until readers of this database see everything that was written so far. If the WAL has failed, they see what was
    /// applied until then.
    pub(crate) fn wait_applied(&self, target: Target) {
        self.wait_applied_to(target, self.read_point());
    }

    /// Waits until readers of this database see everything up to `point`.
    pub(crate) fn wait_applied_to(&self, target: Target, point: ReadPoint) {
        loop {
            let seen = self.0.marks.frames();
            if self.0.marks.is_applied(target, point) {
                return;
            }
            if !self.flush_as_leader() {
                self.request(target, ApplierRequest::Commit);
                self.0.marks.wait_applied(target, point, seen);
            }
        }
    }

    /// Gives a record its sequence number and queues it.
    fn enqueue(&self, record: WalRecord, zero_fill: bool) -> Result<u64, StoreError> {
        let mut queue = self.queue();
        if queue.closed || self.0.failure.get().is_some() {
            return Err(self.refusal());
        }
        let number = queue.next;
        queue.next += 1;
        for (target, part) in [(Target::Ledger, &record.ledger), (Target::Vault, &record.vault)] {
            if part.is_some() {
                self.0.marks.mark_taken(target, number);
            }
        }
        queue.waiting.push_back(QueuedRecord { number, record, zero_fill });
        Ok(number)
    }

    /// Becomes the leader and flushes one frame of queued records. False if there is a leader already, or nothing is queued.
    fn flush_as_leader(&self) -> bool {
        let waiting: Vec<QueuedRecord> = {
            let mut queue = self.queue();
            if queue.leading || queue.waiting.is_empty() {
                return false;
            }
            queue.leading = true;
            let mut bytes = 0;
            let full = |waiting: &QueuedRecord| {
                bytes += waiting.record.bytes();
                bytes >= FRAME_BYTES
            };
            let take = queue.waiting.iter().position(full).map_or(queue.waiting.len(), |last| last + 1);
            queue.waiting.drain(..take).collect()
        };
        let last = waiting.last().map_or(0, |last| last.number);
        let written = self.write_frame(waiting);
        let mut queue = self.queue();
        queue.leading = false;
        if let Err(failure) = &written {
            let _ = self.0.failure.set(failure.clone());
            // No record is accepted from here on, and no caller is left waiting.
            queue.waiting.clear();
        }
        drop(queue);
        match written {
            Ok(()) => self.0.marks.mark_durable(last),
            Err(_) => self.0.marks.fail(),
        }
        true
    }

    /// Writes a frame and syncs it.
    fn write_frame(&self, waiting: Vec<QueuedRecord>) -> Result<(), WalFailure> {
        let first = waiting.first().map_or(0, |first| first.number);
        let count = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
        let mut frame =
            frame::begin(waiting.len(), waiting.iter().map(|waiting| waiting.record.bytes()).sum());
        let (mut parts, mut zero_fill) = (Vec::with_capacity(2 * waiting.len()), false);
        for QueuedRecord { number, record, zero_fill: is_zero_fill } in waiting {
            let bytes = |part| Option::as_ref(part).map_or(&[][..], |part: &WalPart| &part.bytes);
            frame::push(&mut frame, bytes(&record.ledger), bytes(&record.vault));
            parts.extend(record.ledger.map(|part| (Target::Ledger, number, part.send)));
            parts.extend(record.vault.map(|part| (Target::Vault, number, part.send)));
            zero_fill |= is_zero_fill;
        }
        let mut state = self.writer_state();
        let state = &mut *state;
        if !state.file.has_room(frame.len()) {
            self.sync_databases(state)?;
            state.file.rewind();
            state.mark_rewound();
        }
        frame::finish(&mut frame, &self.0.epoch, state.base, first, count);
        // The database writers work in parallel with the disk; they commit once the frame is durable.
        for (target, number, send) in parts {
            match target {
                Target::Ledger => state.sent.ledger = number,
                Target::Vault => state.sent.vault = number,
            }
            send(number);
        }
        let failed = |error: std::io::Error| failure(&self.0.path, &error);
        let began = Instant::now();
        state.file.write(&frame).map_err(failed)?;
        self.0.flusher.record_latency(began.elapsed());
        if zero_fill {
            // The database writers wait for this before they commit.
            self.0.marks.mark_durable(first + u64::from(count) - 1);
            self.sync_databases(state)?;
            state.file.zero_fill().map_err(failed)?;
            state.mark_rewound();
        } else if state.file.is_half_full() && !std::mem::replace(&mut state.sync_requested, true) {
            // Sync early, so that little is left to sync when the file is full.
            self.request_syncs();
        }
        Ok(())
    }

    /// Syncs both databases: every record that was sent to a writer is on disk in its database when this returns.
    fn sync_databases(&self, state: &WriterState) -> Result<(), WalFailure> {
        self.request_syncs();
        for (target, number) in [(Target::Ledger, state.sent.ledger), (Target::Vault, state.sent.vault)] {
            let unattached = matches!(*self.applier(target), Applier::Unattached);
            if !unattached && !self.0.marks.wait_synced(target, number) {
                let why = "a database could not be written";
                return Err(self.0.failure.get().cloned().unwrap_or(WalFailure::Elsewhere(why.to_owned())));
            }
        }
        Ok(())
    }

    fn request_syncs(&self) {
        for target in [Target::Ledger, Target::Vault] {
            self.request(target, ApplierRequest::Sync);
        }
    }

    /// Sends a request to the writer of this database.
    pub(crate) fn request(&self, target: Target, what: ApplierRequest) {
        if let Applier::There(request) = &*self.applier(target) {
            request(what);
        }
    }

    /// Waits until this record is durable. False if it could not be written.
    pub(crate) fn wait_durable(&self, number: u64) -> bool {
        self.0.marks.wait_durable(number)
    }

    /// Counts a request that is sent to this database without the WAL.
    pub(crate) fn mark_bypassed(&self, target: Target) {
        self.0.marks.mark_bypassed(target);
    }

    /// Readers of this database see every record up to `number`, and `bypassed` more requests that bypassed the WAL.
    pub(crate) fn mark_applied(&self, target: Target, number: Option<u64>, bypassed: usize) {
        self.0.marks.mark_applied(target, number, bypassed);
    }

    /// Everything that this database has applied is on disk.
    pub(crate) fn mark_synced(&self, target: Target) {
        self.0.marks.mark_synced(target);
    }

    /// A database failed: nothing is acknowledged from here on.
    pub(crate) fn fail(&self, why: &StoreError) {
        let _ = self.0.failure.set(WalFailure::Elsewhere(why.to_string()));
        self.0.marks.fail();
    }

    /// Waits until the WAL has failed. Returns the error that every record gets from then on.
    pub(crate) async fn wait_failed(&self) -> StoreError {
        self.0.marks.wait_failed().await;
        self.refusal()
    }

    /// The error for a record that is not accepted: why the WAL failed, or that it is closed.
    pub(crate) fn refusal(&self) -> StoreError {
        self.0.failure.get().cloned().map_or(StoreError::Closed, StoreError::from)
    }

    /// Why the WAL failed, as a sentence, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.failure.get().cloned().map(|failure| StoreError::from(failure).to_string())
    }

    fn broken(&self, error: &std::io::Error) -> StoreError {
        let _ = self.0.failure.set(failure(&self.0.path, error));
        self.0.marks.fail();
        self.refusal()
    }

    fn queue(&self) -> MutexGuard<'_, WalQueue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer_state(&self) -> MutexGuard<'_, WriterState> {
        self.0.writer_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn applier(&self, target: Target) -> MutexGuard<'_, Applier> {
        let applier = match target {
            Target::Ledger => &self.0.ledger,
            Target::Vault => &self.0.vault,
        };
        applier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriterState {
    /// Notes a rewind: everything that was written is on disk in the databases.
    const fn mark_rewound(&mut self) {
        self.base = self.sent;
        self.sync_requested = false;
    }
}

impl WalRecord {
    fn bytes(&self) -> usize {
        let bytes = |part: &Option<WalPart>| part.as_ref().map_or(0, |part| part.bytes.len());
        bytes(&self.ledger) + bytes(&self.vault)
    }
}

fn failure(path: &std::path::Path, error: &std::io::Error) -> WalFailure {
    let path = path.to_owned();
    match error.kind() {
        std::io::ErrorKind::StorageFull => WalFailure::Full(path),
        _ if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
            WalFailure::Io { path, what: "disk I/O error".to_owned() }
        }
        _ => WalFailure::Io { path, what: error.to_string() },
    }
}

impl From<WalFailure> for StoreError {
    fn from(failure: WalFailure) -> Self {
        match failure {
            WalFailure::Full(path) => Self::DiskFull(path),
            WalFailure::Io { path, what } => Self::Io { path, what },
            WalFailure::Elsewhere(why) => Self::ReadOnly(why),
        }
    }
}
