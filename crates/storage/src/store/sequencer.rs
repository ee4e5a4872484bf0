//! The sequencer: assigns entries their positions, and commits them with their views and a signed checkpoint in one
//! transaction.
//!
//! A caller gets its reply when its entries have a position and are on disk, in the WAL or else in the database. If they are
//! in the WAL, the transaction stays open while more requests wait, because the fixed cost of a commit equals that of many
//! entries. If the transaction fails, the next start applies the same entries at the same positions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::{CachedStatement, Connection};
use tokio::sync::oneshot;
use tribune_ledger::entry::{EntryRef, EntryText};
use tribune_ledger::key_change::KeyChange;
use tribune_ledger::{Checkpoint, Cid, Ed25519Signer, NoteSigner, Timestamp};

use super::checkpointer::Checkpointer;
use super::connection::Access;
use super::error::StoreError;
use super::sqlite_wal::SqliteWal;
use super::views::{EntityBatch, Views};
use super::writer::{WriteOp, WriteRequest};
use super::{connection, rows, wal_codec, writer};
use crate::wal::{Target, UnappliedRecord, Wal, WalEpoch};

/// Bytes that a commit writes beside its entries: the pages of the checkpoint, the entities and the tree's right edge.
const COMMIT_OVERHEAD: u64 = 32 << 10;

/// Approximate size of an entry without its payload, in bytes.
const ENTRY_OVERHEAD: usize = 512;

/// The position of an appended entry. A value of this type proves that the entry is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub cid: Cid,
    /// Position in the log.
    pub index: u64,
    /// Position in its entity's history.
    pub seq: u64,
}

/// Assigns positions to entries and writes them. All its state is in the database too; on any error it is discarded.
pub(super) struct Sequencer {
    path: PathBuf,
    // Declared before the connection, so that it is dropped first: the last connection to close cleans up the database's
    // side files, and the checkpointer may have one of its own.
    checkpointer: Checkpointer,
    connection: Connection,
    log: SqliteWal,
    wal: Wal,
    head: LogHead,
    /// What the open transaction has written so far.
    open: Option<OpenTransaction>,
}

/// A transaction that is not committed yet.
struct OpenTransaction {
    entities: EntityBatch,
    since: Instant,
    /// The number of entries in the log before it.
    before: u64,
    /// The newest WAL record in it.
    applied: Option<u64>,
    /// Requests in it that bypassed the WAL.
    bypassed: usize,
}

/// The end of the log: its derived state, and the signer of its checkpoints.
struct LogHead {
    signer: Box<dyn NoteSigner>,
    views: Views,
    /// Approximate bytes of the entries in the current commit.
    bytes: u64,
}

impl Sequencer {
    pub(super) fn new(
        path: PathBuf,
        connection: Connection,
        signer: Box<dyn NoteSigner>,
        views: Views,
        wal: Wal,
    ) -> Self {
        let database = path.clone();
        let checkpointer = Checkpointer::new(move || connection::open(&database, Access::Write));
        let (log, head) = (SqliteWal::of(&path), LogHead { signer, views, bytes: 0 });
        Self { path, checkpointer, connection, log, wal, head, open: None }
    }

    /// Starts a log: the first entry names the first key.
    pub(super) fn begin(&mut self, genesis: EntryText) -> Result<(), StoreError> {
        let (request, receipt) = writer::request(WriteOp::Sealed(Box::new(genesis)));
        self.wal.mark_bypassed(Target::Ledger);
        self.write(vec![request])?;
        self.commit()?;
        receipt.answer.blocking_recv().map_err(|_| StoreError::Closed)?.map(drop)
    }

    /// Binds the database to this WAL epoch; it has applied everything up to `number`.
    pub(super) fn bind_wal(&mut self, epoch: WalEpoch, number: u64) -> Result<(), StoreError> {
        self.set_epoch(Some(epoch), number)
    }

    /// Notes a clean shutdown: the database has applied everything in the WAL and does not need it.
    pub(super) fn unbind_wal(&mut self) -> Result<(), StoreError> {
        self.set_epoch(None, 0)
    }

    fn set_epoch(&mut self, epoch: Option<WalEpoch>, number: u64) -> Result<(), StoreError> {
        let known = rusqlite::params![epoch.map(|epoch| epoch.0), number];
        let set = self.connection.execute("UPDATE checkpoint SET book = ?1, posted = ?2", known);
        set.map_err(|error| StoreError::from_sqlite(&self.path, &error))?;
        self.log.sync()
    }

    /// Applies records that the WAL holds and the database does not.
    pub(super) fn apply_unapplied(&mut self, records: Vec<UnappliedRecord>) -> Result<(), StoreError> {
        let path = self.wal.file().to_owned();
        let unusable = |what: String| StoreError::WriteAheadLog { path: path.clone(), what };
        for record in records {
            let number = record.number;
            let unreadable = || unusable(format!("its record {number} cannot be read"));
            let (mut request, _) = writer::request(wal_codec::read(&record.ledger).ok_or_else(unreadable)?);
            request.number = Some(number);
            match self.write(vec![request]).and_then(|()| self.commit()) {
                Err(StoreError::Damaged { what, .. }) => {
                    return Err(unusable(format!("its record {number} does not fit: {what}")));
                }
                committed => committed?,
            }
        }
        self.sync()
    }

    /// Syncs the database: everything that was committed is on disk when this returns.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.log.sync()?;
        self.wal.mark_synced(Target::Ledger);
        Ok(())
    }

    /// Whether the open transaction can take more requests: it has fewer entries than `entries` and is younger than `age`.
    pub(super) fn accepts_more(&self, entries: u64, age: Duration) -> bool {
        let size = self.head.views.size();
        self.open.as_ref().is_some_and(|open| size - open.before < entries && open.since.elapsed() < age)
    }

    /// Writes requests, and replies to those that are durable. An error means that the store cannot go on.
    pub(super) fn write(&mut self, batch: Vec<WriteRequest>) -> Result<(), StoreError> {
        let bypassed = batch.iter().filter(|request| request.number.is_none()).count();
        let mut answers = Vec::with_capacity(batch.len());
        let mut written = self.apply(batch, bypassed, &mut answers);
        if bypassed > 0 {
            // Only the database makes these durable.
            written = written.and_then(|()| self.end());
        }
        for (answer, result) in answers {
            let result = match &written {
                Ok(()) => result,
                // A request that was refused for its own fault keeps its reason.
                Err(error) => result.and_then(|_| Err(self.to_store_error(error))),
            };
            let _ = answer.send(result);
        }
        written.map_err(|error| self.to_store_error(&error))?;
        if bypassed > 0 { self.continue_checkpoint() } else { Ok(()) }
    }

    /// Commits what was written since the last commit. An error means that the store cannot go on.
    pub(super) fn commit(&mut self) -> Result<(), StoreError> {
        if self.open.is_none() {
            return Ok(());
        }
        self.end().map_err(|error| self.to_store_error(&error))?;
        self.continue_checkpoint()
    }

    fn continue_checkpoint(&mut self) -> Result<(), StoreError> {
        self.checkpointer.wrote(std::mem::take(&mut self.head.bytes) + COMMIT_OVERHEAD);
        self.checkpointer.advance(&self.connection)
    }

    fn to_store_error(&self, error: &WriteError) -> StoreError {
        match error {
            WriteError::Sqlite(error) => StoreError::from_sqlite(&self.path, error),
            WriteError::Signer(what) => StoreError::Io { path: self.path.clone(), what: what.clone() },
            WriteError::Log(what) => StoreError::Io { path: self.path.clone(), what: what.clone() },
            WriteError::Wal => self.wal.refusal(),
            WriteError::Acknowledged(what) => {
                StoreError::Damaged { path: self.path.clone(), what: what.clone() }
            }
        }
    }

    /// Assigns positions to entries and inserts them. Returns when the WAL records among them are durable.
    fn apply(
        &mut self,
        batch: Vec<WriteRequest>,
        bypassed: usize,
        answers: &mut Vec<CommitReply>,
    ) -> Result<(), WriteError> {
        let newest = batch.iter().filter_map(|request| request.number).max();
        // Replies are collected before anything can fail, so that an error reaches every caller in the batch.
        let mut work = Vec::with_capacity(batch.len());
        for request in batch {
            answers.push((request.answer, Ok(Vec::new())));
            // A caller that assigned the positions itself was acknowledged when its entries were in the WAL.
            let acknowledged = request.number.is_some() && matches!(request.work, WriteOp::Placed(_));
            work.push((request.work, acknowledged));
        }
        let Self { connection, head, wal, open, .. } = self;
        let open = match open {
            Some(open) => open,
            None => {
                connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
                open.insert(OpenTransaction {
                    entities: EntityBatch::default(),
                    since: Instant::now(),
                    before: head.views.size(),
                    applied: None,
                    bypassed: 0,
                })
            }
        };
        open.applied = open.applied.max(newest);
        open.bypassed += bypassed;
        let insert = connection.prepare_cached(rows::INSERT)?;
        let mut rows = CommitRows { connection, insert, entities: &mut open.entities };
        for ((work, acknowledged), (_, result)) in work.into_iter().zip(answers.iter_mut()) {
            *result = head.apply(work, &mut rows)?;
            if let (true, Err(refused)) = (acknowledged, &*result) {
                return Err(WriteError::Acknowledged(refused.to_string()));
            }
        }
        // Nothing that could still be lost is acknowledged or becomes visible to readers.
        match newest {
            Some(newest) if !wal.wait_durable(newest) => Err(WriteError::Wal),
            _ => Ok(()),
        }
    }

    /// Commits the open transaction; readers see what it wrote.
    fn end(&mut self) -> Result<(), WriteError> {
        let Some(OpenTransaction { entities, before, applied, bypassed, .. }) = self.open.take() else {
            return Ok(());
        };
        let Self { connection, head, .. } = self;
        let grown = head.views.size() != before;
        if grown {
            entities.flush(connection)?;
            head.sign_checkpoint(connection)?;
        }
        if let Some(applied) = applied {
            connection.prepare_cached("UPDATE checkpoint SET posted = ?1")?.execute([applied])?;
        }
        let end = if grown || applied.is_some() { "COMMIT" } else { "ROLLBACK" };
        connection.prepare_cached(end)?.execute([])?;
        if bypassed > 0 {
            self.log.sync()?;
        }
        self.wal.mark_applied(Target::Ledger, applied, bypassed);
        if bypassed > 0 {
            self.wal.mark_synced(Target::Ledger);
        }
        Ok(())
    }
}

/// The handles through which a transaction writes.
struct CommitRows<'c> {
    connection: &'c Connection,
    insert: CachedStatement<'c>,
    entities: &'c mut EntityBatch,
}

impl LogHead {
    /// Writes one request's entries, or returns why it is refused. Nothing of a refused request is written.
    fn apply(
        &mut self,
        work: WriteOp,
        rows: &mut CommitRows<'_>,
    ) -> rusqlite::Result<Result<Vec<Appended>, StoreError>> {
        match work {
            WriteOp::Drafts(drafts) => {
                for draft in &drafts {
                    if let Some(parent) = self.missing_parent(draft.entry(), rows)? {
                        return Ok(Err(StoreError::NoSuchParent(parent)));
                    }
                }
                let mut appended = Vec::with_capacity(drafts.len());
                for draft in drafts {
                    self.bytes += draft.bytes() as u64;
                    let entity_id = draft.entry().entity_id.clone();
                    appended.push(self.insert(rows, entity_id, |seq| draft.assign_seq(seq))?);
                }
                Ok(Ok(appended))
            }
            WriteOp::Placed(entries) => self.apply_placed(entries, rows),
            WriteOp::Sealed(entry) => self.apply_sealed(*entry, rows),
            WriteOp::Rotate { to, entry } => {
                let applied = self.apply_sealed(*entry, rows)?;
                if applied.is_ok() {
                    self.signer = to;
                }
                Ok(applied)
            }
            // The writer thread handles these itself.
            WriteOp::Sync | WriteOp::Commit | WriteOp::Stop { .. } => Ok(Ok(Vec::new())),
        }
    }

    /// Applies entries whose positions and CIDs the caller assigned. The positions are checked; the CIDs were computed in this
    /// process.
    fn apply_placed(
        &mut self,
        entries: Vec<EntryText>,
        rows: &mut CommitRows<'_>,
    ) -> rusqlite::Result<Result<Vec<Appended>, StoreError>> {
        let mut ahead: HashMap<&str, u64> = HashMap::new();
        for (n, entry) in entries.iter().enumerate() {
            let next = rows.entities.state(rows.connection, &entry.entity_id)?.next_seq;
            let expected = ahead.entry(&entry.entity_id).or_insert(next);
            if entry.seq != *expected {
                return Ok(Err(StoreError::OutOfTurn { expected: *expected, found: entry.seq }));
            }
            *expected += 1;
            for parent in entry.parent_cids() {
                let along = entries[..n].iter().any(|earlier| earlier.cid == parent);
                if !along && !self.views.contains(rows.connection, &parent)? {
                    return Ok(Err(StoreError::NoSuchParent(parent)));
                }
            }
        }
        let mut appended = Vec::with_capacity(entries.len());
        for entry in entries {
            self.bytes += (entry.payload.len() + ENTRY_OVERHEAD) as u64;
            appended.push(self.insert(rows, entry.entity_id.clone(), |_| entry)?);
        }
        Ok(Ok(appended))
    }

    fn apply_sealed(
        &mut self,
        entry: EntryText,
        rows: &mut CommitRows<'_>,
    ) -> rusqlite::Result<Result<Vec<Appended>, StoreError>> {
        let expected = rows.entities.state(rows.connection, &entry.entity_id)?.next_seq;
        if let Err(refused) = check_sealed(&entry, expected) {
            return Ok(Err(refused));
        }
        if let Some(parent) = self.missing_parent(&entry, rows)? {
            return Ok(Err(StoreError::NoSuchParent(parent)));
        }
        self.bytes += entry.payload.len() as u64;
        Ok(Ok(vec![self.insert(rows, entry.entity_id.clone(), |_| entry)?]))
    }

    /// Writes the entry that `place` makes from its entity's next sequence number.
    fn insert(
        &mut self,
        rows: &mut CommitRows<'_>,
        entity_id: String,
        place: impl FnOnce(u64) -> EntryText,
    ) -> rusqlite::Result<Appended> {
        let index = self.views.size();
        let state = rows.entities.state(rows.connection, &entity_id)?;
        let entry = place(state.next_seq);
        rows::insert(&mut rows.insert, index, state.last_index, &entry)?;
        state.advance(index, entry.cid);
        self.views.apply(rows.connection, &entry)?;
        Ok(Appended { cid: entry.cid, index, seq: entry.seq })
    }

    /// The first parent that is not in the log.
    fn missing_parent(&self, entry: &EntryText, rows: &CommitRows<'_>) -> rusqlite::Result<Option<Cid>> {
        if entry.parents == "[]" {
            return Ok(None);
        }
        for parent in entry.parent_cids() {
            if !self.views.contains(rows.connection, &parent)? {
                return Ok(Some(parent));
            }
        }
        Ok(None)
    }

    fn sign_checkpoint(&self, connection: &Connection) -> Result<(), WriteError> {
        let origin = self.signer.verifier_key().name().to_owned();
        let checkpoint = Checkpoint { origin, size: self.views.size(), root: self.views.root() };
        let note = checkpoint.sign(&*self.signer).map_err(|error| WriteError::Signer(error.to_string()))?;
        let mut replace = connection.prepare_cached(
            "INSERT INTO checkpoint (id, note) VALUES (0, ?1) ON CONFLICT DO UPDATE SET note = ?1",
        )?;
        replace.execute([note])?;
        Ok(())
    }
}

type CommitReply = (oneshot::Sender<Result<Vec<Appended>, StoreError>>, Result<Vec<Appended>, StoreError>);

enum WriteError {
    Sqlite(rusqlite::Error),
    Signer(String),
    Log(String),
    /// The WAL failed before the record was durable.
    Wal,
    /// An acknowledged record cannot be applied.
    Acknowledged(String),
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        Self::Log(match error {
            StoreError::Io { what, .. } => what,
            other => other.to_string(),
        })
    }
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Checks that an entry whose author assigned its position may stand at `expected`.
fn check_sealed(entry: &EntryText, expected: u64) -> Result<(), StoreError> {
    if entry.seq != expected {
        return Err(StoreError::OutOfTurn { expected, found: entry.seq });
    }
    let mut line = Vec::new();
    entry.write_line(&mut line);
    let read = EntryRef::read(&line)?;
    read.proof.check(read.attested_by.as_ref(), &read.cid)?;
    if read.compute_cid() == read.cid { Ok(()) } else { Err(StoreError::WrongCid) }
}

/// The entry for a change of key, at position `seq` and attested by `old`.
pub(super) fn key_change_entry(
    change: &KeyChange,
    seq: u64,
    at: Timestamp,
    old: &Ed25519Signer,
) -> Result<EntryText, StoreError> {
    let mut entry = EntryText::seal(&change.draft(at, "operator"), seq)?;
    entry.attest(old.signing_key())?;
    Ok(entry)
}
