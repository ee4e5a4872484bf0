//! The single writer of the ledger: a handle for callers, a bounded queue, and the thread that drains it. The commit itself
//! is in [`super::sequencer`].

use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tribune_ledger::entry::{EntryText, UnsequencedEntry};
use tribune_ledger::key_change::KeyChange;
use tribune_ledger::limits::MAX_ENTRY_BYTES;
use tribune_ledger::{Draft, Ed25519Signer, EntryQuality, NoteSigner};

use super::error::StoreError;
use super::sequencer::{Appended, Sequencer};
use super::wal_codec;
use crate::wal::permits::{Permit, QueuePermits};
use crate::wal::{ApplierRequest, Target, Wal, WalPart, WalRecord};

/// Largest number of queued requests; the next caller waits for a permit.
const QUEUE: usize = 512;

/// Largest number of entries in one batch.
const MAX_BATCH: usize = 512;

/// How long a commit stays open for more requests, and for how many entries. Readers wait for it.
const LONGEST_COMMIT: Duration = Duration::from_millis(2);
const LARGEST_COMMIT: u64 = 512;

/// The same bounds after a large batch, so that one commit holds several batches of a caller that writes much.
const LONGEST_BULK_COMMIT: Duration = Duration::from_millis(5);
const LARGEST_BULK_COMMIT: u64 = 1024;

/// Entries in a large batch: more than one session writes at a time.
const BULK: usize = 32;

/// How long a request may take through the WAL to this thread: about one sync.
const WAL_LATENCY: Duration = Duration::from_millis(1);

/// Largest size of the entries in one request, in bytes: four entries of the largest size. Together with [`QUEUE`] it bounds
/// the memory of queued requests; only a flood of the largest requests comes near.
const MAX_REQUEST_BYTES: usize = 4 * MAX_ENTRY_BYTES;

/// A handle for appending; clones share the queue.
#[derive(Debug, Clone)]
pub struct LedgerWriter {
    permits: QueuePermits,
    queue: std_mpsc::Sender<WriteRequest>,
    failure: Arc<OnceLock<String>>,
    wal: Wal,
}

/// A pending append.
#[derive(Debug)]
#[must_use = "an entry is durable only once its receipt says so"]
pub struct Receipt {
    pub(super) answer: oneshot::Receiver<Result<Vec<Appended>, StoreError>>,
    /// Its sequence number in the WAL, if it went there.
    number: Option<u64>,
}

impl Receipt {
    /// A receipt for entries that have their positions already.
    fn answered(appended: Vec<Appended>) -> Self {
        let (answer, receipt) = oneshot::channel();
        // The receiver is alive, so this does not fail.
        let _ = answer.send(Ok(appended));
        Self { answer: receipt, number: None }
    }
}

/// An operation of the writer.
pub(super) enum WriteOp {
    /// Appends entries; the writer assigns their positions.
    Drafts(Vec<UnsequencedEntry>),
    /// Appends entries whose positions the single writer of their histories assigned, in order.
    Placed(Vec<EntryText>),
    /// Appends an entry that the caller positioned and attested. It is refused if the position is not the next one.
    Sealed(Box<EntryText>),
    /// Rotates the log's key to another signer.
    Rotate { to: Box<dyn NoteSigner>, entry: Box<EntryText> },
    /// Syncs the database with every earlier request.
    Sync,
    /// Commits every earlier request.
    Commit,
    /// Ends the writer after every earlier request. After a clean shutdown the database does not need the WAL.
    Stop { clean: bool },
}

/// One caller's request, and the channel for its reply.
pub(super) struct WriteRequest {
    pub(super) work: WriteOp,
    /// Its sequence number in the WAL. Without one it is durable when the database is synced.
    pub(super) number: Option<u64>,
    /// The caller sends more soon and does not wait for this commit.
    pub(super) more_follows: bool,
    /// The permit that it holds while it is queued.
    pub(super) permit: Option<Permit>,
    pub(super) answer: oneshot::Sender<Result<Vec<Appended>, StoreError>>,
}

impl std::fmt::Debug for WriteRequest {
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
        let (mut request, receipt, bytes) = drafts_request(drafts)?;
        request.permit = Some(self.permits.enter().await);
        match self.wal_or_direct(request, bytes) {
            WalPlacement::Wal(page) => self.wal.write(page).await?,
            WalPlacement::Database(request) => {
                self.wal.wait_all_durable().await;
                self.send_direct(request)?;
            }
        }
        receipt.answer.await.map_err(|_| self.closed())?
    }

    /// Appends one entry that others follow; returns when it is durable, which is before it has its position.
    pub async fn append_early(&self, draft: &Draft) -> Result<Receipt, StoreError> {
        let (mut request, receipt, bytes) = drafts_request(std::slice::from_ref(draft))?;
        request.more_follows = true;
        request.permit = Some(self.permits.enter().await);
        match self.wal_or_direct(request, bytes) {
            WalPlacement::Wal(page) => self.wal.write(page).await.map(|()| receipt),
            WalPlacement::Database(request) => {
                self.wal.wait_all_durable().await;
                self.send_direct(request)?;
                let appended = receipt.answer.await.map_err(|_| self.closed())??;
                Ok(Receipt::answered(appended))
            }
        }
    }

    /// Waits for the position of an entry that [`Self::append_early`] appended. Cancelling the wait loses nothing.
    pub async fn append_with_position(&self, receipt: &mut Receipt) -> Result<Appended, StoreError> {
        if receipt.answer.is_empty() {
            self.wal.request(Target::Ledger, ApplierRequest::Commit);
        }
        let appended = (&mut receipt.answer).await.map_err(|_| self.closed())??;
        appended.first().copied().ok_or(StoreError::Closed)
    }

    /// The same outside an async runtime: this thread waits for the writer's next commit.
    pub fn append_with_position_blocking(&self, receipt: &mut Receipt) -> Result<Appended, StoreError> {
        self.wal.wait_applied(Target::Ledger);
        let appended = receipt.answer.try_recv().map_err(|_| self.closed())??;
        appended.first().copied().ok_or(StoreError::Closed)
    }

    /// Encodes entries for the WAL whose positions the single writer of their histories assigned. That writer knows their
    /// CIDs beforehand, so that one may be the parent of the next.
    pub async fn encode_for_wal(
        &self,
        entries: Vec<EntryText>,
        more_follows: bool,
    ) -> Result<WalPart, StoreError> {
        let bytes = wal_codec::placed(&entries);
        let (mut request, _) = placed_request(entries)?;
        request.more_follows = more_follows;
        request.permit = Some(self.permits.enter().await);
        Ok(self.part(bytes, request))
    }

    /// Appends such entries without the WAL, all or none.
    pub async fn append_placed(&self, entries: Vec<EntryText>) -> Result<(), StoreError> {
        let (mut request, receipt) = placed_request(entries)?;
        request.permit = Some(self.permits.enter().await);
        self.wal.wait_all_durable().await;
        self.send_direct(request)?;
        receipt.answer.await.map_err(|_| self.closed())?.map(drop)
    }

    /// Queues an entry without waiting for a permit or, unless it is very large, for the disk. Entries that are queued later
    /// come later.
    pub fn submit(&self, draft: &Draft) -> Result<(), StoreError> {
        let (mut request, _, bytes) = drafts_request(std::slice::from_ref(draft))?;
        let full = StoreError::TooMuchAtOnce { what: "requests that wait", limit: QUEUE };
        request.permit = Some(self.permits.try_enter().ok_or(full)?);
        self.enqueue_direct(request, bytes).map(drop)
    }

    /// Queues entries from a thread outside the runtime, waiting only for a permit. [`Self::wait_blocking`] returns their
    /// positions.
    pub fn submit_blocking(&self, drafts: &[Draft]) -> Result<Receipt, StoreError> {
        let (mut request, receipt, bytes) = drafts_request(drafts)?;
        request.permit = Some(self.permits.enter_blocking());
        let number = self.enqueue_direct(request, bytes)?;
        Ok(Receipt { number, ..receipt })
    }

    /// Waits until what [`Self::submit_blocking`] queued is durable and has its positions.
    pub fn wait_blocking(&self, receipt: Receipt) -> Result<Vec<Appended>, StoreError> {
        if let Some(number) = receipt.number {
            self.wal.flush_lazy(number);
        }
        receipt.answer.blocking_recv().map_err(|_| self.closed())?
    }

    /// Appends one entry from outside an async runtime.
    pub fn append_blocking(&self, draft: &Draft) -> Result<Appended, StoreError> {
        let receipt = self.submit_blocking(std::slice::from_ref(draft))?;
        self.wait_blocking(receipt)?.first().copied().ok_or(StoreError::Closed)
    }

    /// Appends an entry that its author positioned and attested. Refused if another entry took the position.
    pub fn append_sealed_blocking(&self, entry: EntryText) -> Result<Appended, StoreError> {
        refuse_reserved(&entry.entity_id, entry.quality)?;
        self.send_blocking(WriteOp::Sealed(Box::new(entry)))
    }

    /// Rotates the log's key to `to`; `entry` is the change, attested by the key in force.
    pub(super) fn rotate_blocking(
        &self,
        to: Ed25519Signer,
        entry: EntryText,
    ) -> Result<Appended, StoreError> {
        self.send_blocking(WriteOp::Rotate { to: Box::new(to), entry: Box::new(entry) })
    }

    fn send_blocking(&self, work: WriteOp) -> Result<Appended, StoreError> {
        let (mut request, receipt) = request(work);
        request.permit = Some(self.permits.enter_blocking());
        self.wal.flush();
        self.send_direct(request)?;
        self.wait_blocking(receipt)?.first().copied().ok_or(StoreError::Closed)
    }

    /// Ends the writer after everything that is queued, even if other handles exist. Callable from any thread.
    pub(super) fn stop(self, clean: bool) {
        let (stop, _) = request(WriteOp::Stop { clean });
        let _ = self.queue.send(stop);
    }

    /// The write-ahead log that this writer applies.
    pub const fn wal(&self) -> &Wal {
        &self.wal
    }

    /// Submits a request without waiting for it. Returns its sequence number in the WAL, if it goes there.
    fn enqueue_direct(&self, request: WriteRequest, bytes: Vec<u8>) -> Result<Option<u64>, StoreError> {
        match self.wal_or_direct(request, bytes) {
            WalPlacement::Wal(page) => self.wal.enqueue_background(page).map(Some),
            WalPlacement::Database(request) => {
                self.wal.flush();
                self.send_direct(request).map(|()| None)
            }
        }
    }

    /// Decides by its encoded size whether a request goes through the WAL or to the database directly.
    fn wal_or_direct(&self, request: WriteRequest, bytes: Vec<u8>) -> WalPlacement {
        if self.wal.fits(bytes.len()) {
            WalPlacement::Wal(WalRecord { ledger: Some(self.part(bytes, request)), vault: None })
        } else {
            WalPlacement::Database(request)
        }
    }

    fn part(&self, bytes: Vec<u8>, request: WriteRequest) -> WalPart {
        let queue = self.queue.clone();
        // If the writer has ended, the store is closed; the caller learns it from its receipt, or from the WAL.
        let send = move |number| drop(queue.send(WriteRequest { number: Some(number), ..request }));
        WalPart { bytes, send: Box::new(send) }
    }

    /// Queues a request for the writer, bypassing the WAL.
    fn send_direct(&self, request: WriteRequest) -> Result<(), StoreError> {
        self.queue.send(request).map_err(|_| self.closed())?;
        self.wal.mark_bypassed(Target::Ledger);
        Ok(())
    }

    /// Why the ledger accepts no further entries, if it has failed.
    pub fn failure(&self) -> Option<String> {
        self.failure.get().cloned().or_else(|| self.wal.failure())
    }

    /// Waits until nothing can be recorded any more, in the ledger or in the vault. Returns why.
    pub async fn wait_failed(&self) -> StoreError {
        self.wal.wait_failed().await
    }

    fn closed(&self) -> StoreError {
        self.failure.get().map_or_else(|| self.wal.refusal(), |why| StoreError::ReadOnly(why.clone()))
    }
}

/// Where a request becomes durable.
enum WalPlacement {
    Wal(WalRecord),
    Database(WriteRequest),
}

/// Refuses entries of the key history. A change of key that the writer does not perform would make the log's next checkpoint
/// worthless, and the newest entry of that history must be one.
fn refuse_reserved(entity_id: &str, quality: EntryQuality) -> Result<(), StoreError> {
    if quality == EntryQuality::KeyChange || entity_id == KeyChange::ENTITY {
        return Err(StoreError::Reserved(KeyChange::ENTITY));
    }
    Ok(())
}

pub(super) fn request(work: WriteOp) -> (WriteRequest, Receipt) {
    let (answer, receipt) = oneshot::channel();
    (
        WriteRequest { work, number: None, more_follows: false, permit: None, answer },
        Receipt { answer: receipt, number: None },
    )
}

fn placed_request(entries: Vec<EntryText>) -> Result<(WriteRequest, Receipt), StoreError> {
    if entries.len() > MAX_BATCH {
        return Err(StoreError::TooMuchAtOnce { what: "entries", limit: MAX_BATCH });
    }
    for entry in &entries {
        refuse_reserved(&entry.entity_id, entry.quality)?;
    }
    Ok(request(WriteOp::Placed(entries)))
}

/// Checks and canonicalises entries in the caller's thread, because all callers share the writer's time. Returns the
/// request's encoding for the WAL too.
fn drafts_request(drafts: &[Draft]) -> Result<(WriteRequest, Receipt, Vec<u8>), StoreError> {
    if drafts.len() > MAX_BATCH {
        return Err(StoreError::TooMuchAtOnce { what: "entries", limit: MAX_BATCH });
    }
    for draft in drafts {
        refuse_reserved(&draft.entity_id, draft.quality)?;
        if let Some(owed) = draft.attested_by {
            return Err(tribune_ledger::proof::ProofError::Missing(owed).into());
        }
    }
    let (entries, bytes) = wal_codec::drafts(drafts)?;
    if entries.iter().map(UnsequencedEntry::bytes).sum::<usize>() > MAX_REQUEST_BYTES {
        return Err(StoreError::TooMuchAtOnce { what: "bytes", limit: MAX_REQUEST_BYTES });
    }
    let (request, receipt) = request(WriteOp::Drafts(entries));
    Ok((request, receipt, bytes))
}

/// Starts the writer's thread over an open database.
pub(super) fn start(sequencer: Sequencer, wal: Wal) -> std::io::Result<(LedgerWriter, JoinHandle<()>)> {
    let (queue, requests) = std_mpsc::channel();
    let failure = Arc::new(OnceLock::new());
    let writer = LedgerWriter {
        permits: QueuePermits::of(QUEUE),
        queue: queue.clone(),
        failure: Arc::clone(&failure),
        wal,
    };
    let (permits, wal) = (writer.permits.clone(), writer.wal.clone());
    let run = WriterRun { sequencer: Some(sequencer), failure, wal, permits };
    let thread =
        std::thread::Builder::new().name("ledger-writer".to_owned()).spawn(move || run.all(&requests))?;
    writer.wal.attach(Target::Ledger, move |ask| {
        let work = match ask {
            ApplierRequest::Sync => WriteOp::Sync,
            ApplierRequest::Commit => WriteOp::Commit,
        };
        drop(queue.send(request(work).0));
    });
    Ok((writer, thread))
}

/// The writer's thread.
struct WriterRun {
    /// Until an error.
    sequencer: Option<Sequencer>,
    failure: Arc<OnceLock<String>>,
    wal: Wal,
    permits: QueuePermits,
}

/// The next request, if one is queued. After many entries it also waits for one that is on its way through the WAL; after
/// few, a reader that waits for them is more likely.
fn next_request(
    behind: usize,
    permits: &QueuePermits,
    requests: &std_mpsc::Receiver<WriteRequest>,
) -> Option<WriteRequest> {
    match requests.try_recv() {
        Ok(next) => Some(next),
        Err(_) if behind < BULK || permits.is_empty() => None,
        Err(_) => requests.recv_timeout(WAL_LATENCY).ok(),
    }
}

/// Requests that are written together, and the first one after them that is not.
struct WriteGroup {
    batch: Vec<WriteRequest>,
    entries: usize,
    held_over: Option<WriteRequest>,
}

/// Collects the queued requests after `first`. After one that announces more, it waits for that.
fn gather(first: WriteRequest, requests: &std_mpsc::Receiver<WriteRequest>) -> WriteGroup {
    let until = Instant::now() + LONGEST_COMMIT;
    let mut gathered = WriteGroup { entries: first.len(), batch: vec![first], held_over: None };
    while gathered.entries < MAX_BATCH {
        let more_follows = gathered.batch.last().is_some_and(|last| last.more_follows);
        let next = match requests.try_recv() {
            Ok(next) => Some(next),
            Err(_) if more_follows => {
                requests.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
            }
            Err(_) => None,
        };
        let Some(next) = next else { break };
        if !next.is_entries() || gathered.entries + next.len() > MAX_BATCH {
            gathered.held_over = Some(next);
            break;
        }
        gathered.entries += next.len();
        gathered.batch.push(next);
    }
    gathered
}

impl WriterRun {
    /// Handles requests until it is stopped.
    fn all(mut self, requests: &std_mpsc::Receiver<WriteRequest>) {
        let mut held_over: Option<WriteRequest> = None;
        while let Some(first) = held_over.take().or_else(|| requests.recv().ok()) {
            match first.work {
                WriteOp::Stop { clean } => {
                    self.sync();
                    return self.finish(clean);
                }
                WriteOp::Sync => self.sync(),
                // Every earlier request is committed.
                WriteOp::Commit => {}
                WriteOp::Drafts(_) | WriteOp::Placed(_) | WriteOp::Sealed(_) | WriteOp::Rotate { .. } => {
                    held_over = self.write(first, requests);
                }
            }
        }
        self.sync();
    }

    /// Writes a request with those after it, and commits unless more is coming. Returns the first that has to wait.
    fn write(
        &mut self,
        first: WriteRequest,
        requests: &std_mpsc::Receiver<WriteRequest>,
    ) -> Option<WriteRequest> {
        let WriteGroup { batch, entries, mut held_over } = gather(first, requests);
        match &mut self.sequencer {
            Some(sequencer) => {
                let written = sequencer.write(batch).and_then(|()| {
                    let (most, longest) = if entries < BULK {
                        (LARGEST_COMMIT, LONGEST_COMMIT)
                    } else {
                        (LARGEST_BULK_COMMIT, LONGEST_BULK_COMMIT)
                    };
                    if sequencer.accepts_more(most, longest) {
                        held_over =
                            held_over.take().or_else(|| next_request(entries, &self.permits, requests));
                        if held_over.as_ref().is_some_and(WriteRequest::is_entries) {
                            return Ok(());
                        }
                    }
                    sequencer.commit()
                });
                self.fail_on_error(written);
            }
            None => {
                for request in batch {
                    let why = self.failure.get().cloned().unwrap_or_default();
                    // A caller that stopped waiting needs no reply.
                    let _ = request.answer.send(Err(StoreError::ReadOnly(why)));
                }
            }
        }
        held_over
    }

    fn sync(&mut self) {
        if let Some(sequencer) = &mut self.sequencer {
            let synced = sequencer.sync();
            self.fail_on_error(synced);
        }
    }

    /// After a clean shutdown, notes that the database has everything in the WAL.
    fn finish(&mut self, clean: bool) {
        if let Some(sequencer) = self.sequencer.as_mut().filter(|_| clean) {
            let finished = sequencer.unbind_wal();
            self.fail_on_error(finished);
        }
    }

    /// After an error, nothing is written through this connection again: the pages of a failed sync may be lost although a
    /// later sync succeeds. Reopening reads what is on disk.
    fn fail_on_error(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            let _ = self.failure.set(error.to_string());
            self.wal.fail(&error);
            self.sequencer = None;
        }
    }
}

impl WriteRequest {
    /// Whether it appends entries, and is not a command to the writer itself.
    const fn is_entries(&self) -> bool {
        !matches!(self.work, WriteOp::Sync | WriteOp::Commit | WriteOp::Stop { .. })
    }

    fn len(&self) -> usize {
        match &self.work {
            WriteOp::Drafts(entries) => entries.len(),
            WriteOp::Placed(entries) => entries.len(),
            WriteOp::Sealed(_) | WriteOp::Rotate { .. } => 1,
            WriteOp::Sync | WriteOp::Commit | WriteOp::Stop { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(more_follows: bool) -> WriteRequest {
        let (mut one, _) = request(WriteOp::Placed(Vec::new()));
        one.more_follows = more_follows;
        one
    }

    fn gathered(behind: Vec<WriteRequest>) -> (usize, bool) {
        let (send, requests) = std_mpsc::channel();
        behind.into_iter().for_each(|one| send.send(one).unwrap());
        let first = requests.recv().unwrap();
        let WriteGroup { batch, held_over, .. } = gather(first, &requests);
        (batch.len(), held_over.is_some())
    }

    #[test]
    fn announced_requests_join_the_batch_and_a_reader_ends_the_wait() {
        assert_eq!(gathered(vec![entry(true), entry(true), entry(false)]), (3, false));
        assert_eq!(gathered(vec![entry(true), request(WriteOp::Commit).0, entry(false)]), (1, true));
        assert_eq!(gathered(vec![entry(true)]), (1, false), "the wait is bounded");
    }
}
