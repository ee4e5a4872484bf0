//! The one writer. A thread takes appends from a bounded queue, commits as many as are waiting in one transaction with
//! their views and a signed checkpoint, and answers each caller after the commit is on disk.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use rusqlite::{CachedStatement, Connection};
use tokio::sync::{mpsc, oneshot};
use tribune_ledger::entry::{EntryRef, EntryText, Unplaced};
use tribune_ledger::key_change::KeyChange;
use tribune_ledger::limits::MAX_ENTRY_BYTES;
use tribune_ledger::{Checkpoint, Cid, Draft, Ed25519Signer, EntryQuality, NoteSigner, Timestamp};

use super::error::StoreError;
use super::rows;
use super::views::{EntityBatch, Views};

/// Requests waiting at most; the next caller waits for room.
const QUEUE: usize = 512;

/// Entries in one commit at most. More would make the first caller wait for the last without saving syncs.
const MAX_BATCH: usize = 512;

/// Bytes of entries in one request at most, which bounds the queue's memory: four entries of the largest size.
const MAX_REQUEST_BYTES: usize = 4 * MAX_ENTRY_BYTES;

/// Bytes written to the write-ahead log before it is copied into the database and begun again. A short log is written
/// over and over in place, which syncs faster than one that grows; a shorter one would be copied too often.
const COPY_BACK_AFTER: u64 = 4 << 20;

/// What a commit writes beside its entries: the pages of the checkpoint, the entities and the tree's edge.
const COMMIT_OVERHEAD: u64 = 32 << 10;

/// Where an entry ended up. To hold one is to know that the entry is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub cid: Cid,
    /// Place in the log.
    pub index: u64,
    /// Place in its entity's history.
    pub seq: u64,
}

/// A handle for appending; clones share the queue.
#[derive(Debug, Clone)]
pub struct LedgerWriter {
    queue: mpsc::Sender<Request>,
    failure: Arc<OnceLock<String>>,
}

/// An append under way.
#[derive(Debug)]
#[must_use = "an entry is durable only once its receipt says so"]
pub struct Receipt(oneshot::Receiver<Result<Vec<Appended>, StoreError>>);

enum Work {
    /// Placed by the writer.
    Drafts(Vec<Unplaced>),
    /// Placed and attested by the caller, who must have guessed the place right.
    Sealed(Box<EntryText>),
    /// The log's key passes to another signer.
    Rotate { to: Box<dyn NoteSigner>, entry: Box<EntryText> },
}

struct Request {
    work: Work,
    answer: oneshot::Sender<Result<Vec<Appended>, StoreError>>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}

impl LedgerWriter {
    /// Appends one entry; returns when it is durable.
    pub async fn append(&self, draft: &Draft) -> Result<Appended, StoreError> {
        let appended = self.append_all(std::slice::from_ref(draft)).await?;
        appended.first().copied().ok_or(StoreError::Closed)
    }

    /// Appends several entries in this order, all or none; returns when they are durable.
    pub async fn append_all(&self, drafts: &[Draft]) -> Result<Vec<Appended>, StoreError> {
        let (request, receipt) = drafts_request(drafts)?;
        self.queue.send(request).await.map_err(|_| self.closed())?;
        receipt.0.await.map_err(|_| self.closed())?
    }

    /// Appends an entry that its author placed and attested. Refused if another entry took the place.
    pub async fn append_sealed(&self, entry: EntryText) -> Result<Appended, StoreError> {
        refuse_key_change(entry.quality)?;
        let (request, receipt) = request(Work::Sealed(Box::new(entry)));
        self.queue.send(request).await.map_err(|_| self.closed())?;
        let appended = receipt.0.await.map_err(|_| self.closed())??;
        appended.first().copied().ok_or(StoreError::Closed)
    }

    /// Queues entries from a thread of their own, waiting only for room in the queue.
    pub fn submit_blocking(&self, drafts: &[Draft]) -> Result<Receipt, StoreError> {
        let (request, receipt) = drafts_request(drafts)?;
        self.queue.blocking_send(request).map_err(|_| self.closed())?;
        Ok(receipt)
    }

    /// Waits for what [`Self::submit_blocking`] queued.
    pub fn wait_blocking(&self, receipt: Receipt) -> Result<Vec<Appended>, StoreError> {
        receipt.0.blocking_recv().map_err(|_| self.closed())?
    }

    /// Appends one entry from outside an async runtime.
    pub fn append_blocking(&self, draft: &Draft) -> Result<Appended, StoreError> {
        let receipt = self.submit_blocking(std::slice::from_ref(draft))?;
        self.wait_blocking(receipt)?.first().copied().ok_or(StoreError::Closed)
    }

    /// Appends a placed and attested entry from outside an async runtime.
    pub fn append_sealed_blocking(&self, entry: EntryText) -> Result<Appended, StoreError> {
        refuse_key_change(entry.quality)?;
        self.send_blocking(Work::Sealed(Box::new(entry)))
    }

    /// Tells the log that `to` signs from now on; `entry` is the change, attested by the key in force.
    pub(super) fn rotate_blocking(
        &self,
        to: Ed25519Signer,
        entry: EntryText,
    ) -> Result<Appended, StoreError> {
        self.send_blocking(Work::Rotate { to: Box::new(to), entry: Box::new(entry) })
    }

    fn send_blocking(&self, work: Work) -> Result<Appended, StoreError> {
        let (request, receipt) = request(work);
        self.queue.blocking_send(request).map_err(|_| self.closed())?;
        self.wait_blocking(receipt)?.first().copied().ok_or(StoreError::Closed)
    }

    /// Why nothing can be appended any more, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    fn closed(&self) -> StoreError {
        self.failure.get().map_or(StoreError::Closed, |why| StoreError::ReadOnly(why.clone()))
    }
}

/// A change of key that the writer does not carry out would make the log's next checkpoint worthless.
fn refuse_key_change(quality: EntryQuality) -> Result<(), StoreError> {
    match quality {
        EntryQuality::KeyChange => Err(StoreError::KeyChange("only a rotation writes that down".to_owned())),
        _ => Ok(()),
    }
}

fn request(work: Work) -> (Request, Receipt) {
    let (answer, receipt) = oneshot::channel();
    (Request { work, answer }, Receipt(receipt))
}

/// Checks and canonicalises in the caller's thread; the writer's time is everybody's.
fn drafts_request(drafts: &[Draft]) -> Result<(Request, Receipt), StoreError> {
    if drafts.len() > MAX_BATCH {
        return Err(StoreError::TooMuchAtOnce { what: "entries", limit: MAX_BATCH });
    }
    let mut bytes = 0;
    let mut entries = Vec::with_capacity(drafts.len());
    for draft in drafts {
        refuse_key_change(draft.quality)?;
        let entry = Unplaced::new(draft)?;
        bytes += entry.bytes();
        if let Some(owed) = draft.attested_by {
            return Err(tribune_ledger::proof::ProofError::Missing(owed).into());
        }
        entries.push(entry);
    }
    if bytes > MAX_REQUEST_BYTES {
        return Err(StoreError::TooMuchAtOnce { what: "bytes", limit: MAX_REQUEST_BYTES });
    }
    Ok(request(Work::Drafts(entries)))
}

/// Starts the writer's thread over an open database.
pub(super) fn start(sequencer: Sequencer) -> std::io::Result<(LedgerWriter, JoinHandle<()>)> {
    let (queue, requests) = mpsc::channel(QUEUE);
    let failure = Arc::new(OnceLock::new());
    let writer = LedgerWriter { queue, failure: Arc::clone(&failure) };
    let thread = std::thread::Builder::new()
        .name("ledger-writer".to_owned())
        .spawn(move || run(sequencer, requests, &failure))?;
    Ok((writer, thread))
}

/// Takes requests until every handle is gone.
fn run(sequencer: Sequencer, mut requests: mpsc::Receiver<Request>, failure: &OnceLock<String>) {
    let mut alive = Some(sequencer);
    let mut held_over: Option<Request> = None;
    while let Some(first) = held_over.take().or_else(|| requests.blocking_recv()) {
        let Some(sequencer) = &mut alive else {
            let why = failure.get().cloned().unwrap_or_default();
            // A caller that stopped waiting needs no answer.
            let _ = first.answer.send(Err(StoreError::ReadOnly(why)));
            continue;
        };
        let mut batch = vec![first];
        let mut entries = batch[0].len();
        while entries < MAX_BATCH {
            let Ok(next) = requests.try_recv() else { break };
            entries += next.len();
            if entries > MAX_BATCH {
                held_over = Some(next);
                break;
            }
            batch.push(next);
        }
        if let Err(error) = sequencer.commit(batch) {
            // The pages behind a failed sync may be gone though a later sync succeeds. Nothing is written through this
            // connection again; opening anew reads what is really there.
            let _ = failure.set(error.to_string());
            alive = None;
        }
    }
}

impl Request {
    fn len(&self) -> usize {
        match &self.work {
            Work::Drafts(entries) => entries.len(),
            Work::Sealed(_) | Work::Rotate { .. } => 1,
        }
    }
}

/// Gives entries their place. Everything it knows is in the database too; on any error it is thrown away.
pub(super) struct Sequencer {
    path: PathBuf,
    connection: Connection,
    edge: Edge,
}

/// Where the log ends, and who signs there.
struct Edge {
    signer: Box<dyn NoteSigner>,
    views: Views,
    /// Bytes written to the write-ahead log since it was last copied back, about.
    since_copy: u64,
}

impl Sequencer {
    pub(super) fn new(
        path: PathBuf,
        connection: Connection,
        signer: Box<dyn NoteSigner>,
        views: Views,
    ) -> Self {
        Self { path, connection, edge: Edge { signer, views, since_copy: 0 } }
    }

    /// Begins a log: the first entry names the first key.
    pub(super) fn begin(&mut self, genesis: EntryText) -> Result<(), StoreError> {
        let (request, receipt) = request(Work::Sealed(Box::new(genesis)));
        self.commit(vec![request])?;
        receipt.0.blocking_recv().map_err(|_| StoreError::Closed)?.map(drop)
    }

    /// Commits a batch and answers it. An error means that the store cannot go on.
    fn commit(&mut self, batch: Vec<Request>) -> Result<(), StoreError> {
        let mut answers = Vec::with_capacity(batch.len());
        match self.write(batch, &mut answers) {
            Ok(()) => {
                for (answer, result) in answers {
                    let _ = answer.send(result);
                }
                self.copy_back()
            }
            Err(error) => {
                for (answer, result) in answers {
                    // What was refused for its own fault keeps its reason.
                    let refused = result.err().unwrap_or_else(|| self.lost(&error));
                    let _ = answer.send(Err(refused));
                }
                Err(self.lost(&error))
            }
        }
    }

    fn lost(&self, error: &WriteError) -> StoreError {
        match error {
            WriteError::Sqlite(error) => StoreError::from_sqlite(&self.path, error),
            WriteError::Signer(what) => StoreError::Io { path: self.path.clone(), what: what.clone() },
        }
    }

    fn write(&mut self, batch: Vec<Request>, answers: &mut Vec<Answer>) -> Result<(), WriteError> {
        let Self { connection, edge, .. } = self;
        let before = edge.views.size();
        // Answers are collected before anything can fail, so that an error reaches everyone in the batch.
        let mut work = Vec::with_capacity(batch.len());
        for request in batch {
            answers.push((request.answer, Ok(Vec::new())));
            work.push(request.work);
        }
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut rows = Rows {
            connection,
            insert: connection.prepare_cached(rows::INSERT)?,
            entities: EntityBatch::default(),
        };
        for (work, (_, result)) in work.into_iter().zip(answers.iter_mut()) {
            *result = edge.apply(work, &mut rows)?;
        }
        let Rows { entities, .. } = rows;
        if edge.views.size() == before {
            connection.execute_batch("ROLLBACK")?;
            return Ok(());
        }
        entities.flush(connection)?;
        edge.sign_checkpoint(connection)?;
        connection.execute_batch("COMMIT")?;
        edge.since_copy += COMMIT_OVERHEAD;
        Ok(())
    }

    /// Copies the write-ahead log into the database when it has grown. Callers have their answers by then.
    fn copy_back(&mut self) -> Result<(), StoreError> {
        if self.edge.since_copy < COPY_BACK_AFTER {
            return Ok(());
        }
        self.edge.since_copy = 0;
        copy_back(&self.connection).map_err(|error| StoreError::from_sqlite(&self.path, &error))
    }
}

/// What a transaction writes through.
struct Rows<'c> {
    connection: &'c Connection,
    insert: CachedStatement<'c>,
    entities: EntityBatch,
}

impl Edge {
    /// Writes one request's entries, or says why it is refused. Nothing of a refused one is written.
    fn apply(
        &mut self,
        work: Work,
        rows: &mut Rows<'_>,
    ) -> rusqlite::Result<Result<Vec<Appended>, StoreError>> {
        match work {
            Work::Drafts(drafts) => {
                for draft in &drafts {
                    if let Some(parent) = self.missing_parent(draft.entry(), rows)? {
                        return Ok(Err(StoreError::NoSuchParent(parent)));
                    }
                }
                let mut appended = Vec::with_capacity(drafts.len());
                for draft in drafts {
                    self.since_copy += draft.bytes() as u64;
                    let entity_id = draft.entry().entity_id.clone();
                    appended.push(self.insert(rows, entity_id, |seq| draft.place(seq))?);
                }
                Ok(Ok(appended))
            }
            Work::Sealed(entry) => self.apply_sealed(*entry, rows),
            Work::Rotate { to, entry } => {
                let applied = self.apply_sealed(*entry, rows)?;
                if applied.is_ok() {
                    self.signer = to;
                }
                Ok(applied)
            }
        }
    }

    fn apply_sealed(
        &mut self,
        entry: EntryText,
        rows: &mut Rows<'_>,
    ) -> rusqlite::Result<Result<Vec<Appended>, StoreError>> {
        let expected = rows.entities.state(rows.connection, &entry.entity_id)?.next_seq;
        if let Err(refused) = check_sealed(&entry, expected) {
            return Ok(Err(refused));
        }
        if let Some(parent) = self.missing_parent(&entry, rows)? {
            return Ok(Err(StoreError::NoSuchParent(parent)));
        }
        self.since_copy += entry.payload.len() as u64;
        Ok(Ok(vec![self.insert(rows, entry.entity_id.clone(), |_| entry)?]))
    }

    /// Writes the entry that `place` makes of its entity's next number.
    fn insert(
        &mut self,
        rows: &mut Rows<'_>,
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
    fn missing_parent(&self, entry: &EntryText, rows: &Rows<'_>) -> rusqlite::Result<Option<Cid>> {
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
        let mut replace =
            connection.prepare_cached("INSERT OR REPLACE INTO checkpoint (id, note) VALUES (0, ?1)")?;
        replace.execute([note])?;
        Ok(())
    }
}

type Answer = (oneshot::Sender<Result<Vec<Appended>, StoreError>>, Result<Vec<Appended>, StoreError>);

/// Copies what the write-ahead log holds into the database, as far as readers allow, and syncs both.
pub(super) fn copy_back(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

enum WriteError {
    Sqlite(rusqlite::Error),
    Signer(String),
}

impl From<rusqlite::Error> for WriteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Whether an entry that its author placed may stand at `expected`.
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

/// The change of key, placed at `seq` and attested by `old`.
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
