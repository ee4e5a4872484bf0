//! The way to the one writer: a handle for callers, a bounded queue, and the thread that empties it. What a commit does
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

/// Requests waiting at most; the next caller waits for room.
const QUEUE: usize = 512;

/// Entries that are placed together at most.
const MAX_BATCH: usize = 512;

/// How long a commit takes more in, and how many entries: those who read wait for it.
const LONGEST_COMMIT: Duration = Duration::from_millis(2);
const LARGEST_COMMIT: u64 = 512;

/// The same behind whoever writes much, so that several of its batches are in it.
const LONGEST_OF_MANY: Duration = Duration::from_millis(5);
const LARGEST_OF_MANY: u64 = 1024;

/// Entries in one go of whoever writes much: more than a page of a session has.
const MANY: usize = 32;

/// How long a request that somebody makes may take to get here: about a sync.
const ON_ITS_WAY: Duration = Duration::from_millis(1);

/// Bytes of entries in one request at most: four entries of the largest size. With [`QUEUE`] it bounds what can wait in
/// memory; only a flood of the largest requests comes near.
const MAX_REQUEST_BYTES: usize = 4 * MAX_ENTRY_BYTES;

/// A handle for appending; clones share the queue.
#[derive(Debug, Clone)]
pub struct LedgerWriter {
    room: QueuePermits,
    queue: std_mpsc::Sender<WriteRequest>,
    failure: Arc<OnceLock<String>>,
    wal: Wal,
}

/// An append under way.
#[derive(Debug)]
#[must_use = "an entry is durable only once its receipt says so"]
pub struct Receipt {
    pub(super) answer: oneshot::Receiver<Result<Vec<Appended>, StoreError>>,
    /// Its number in the daybook, if it went there.
    number: Option<u64>,
}

impl Receipt {
    /// For what has its place already.
    fn answered(appended: Vec<Appended>) -> Self {
        let (answer, receipt) = oneshot::channel();
        // It is received below, so it arrives.
        let _ = answer.send(Ok(appended));
        Self { answer: receipt, number: None }
    }
}

/// What a request asks for.
pub(super) enum WriteOp {
    /// Placed by the writer.
    Drafts(Vec<UnsequencedEntry>),
    /// Placed by the one who writes these histories, in their order.
    Placed(Vec<EntryText>),
    /// Placed and attested by the caller, who must have guessed the place right.
    Sealed(Box<EntryText>),
    /// The log's key passes to another signer.
    Rotate { to: Box<dyn NoteSigner>, entry: Box<EntryText> },
    /// What was asked before is to be on disk in the database.
    Sync,
    /// What was asked before is to be committed.
    Post,
    /// What was asked before is written; nothing is taken any more. In peace, no book is needed.
    Stop { in_peace: bool },
}

/// One caller's request, and where its answer goes.
pub(super) struct WriteRequest {
    pub(super) work: WriteOp,
    /// Its number in the daybook. Without one it is durable when the database is synced.
    pub(super) number: Option<u64>,
    /// More comes soon, and nobody waits for it to be committed before.
    pub(super) more_soon: bool,
    /// For as long as it waits.
    pub(super) ticket: Option<Permit>,
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
        request.ticket = Some(self.room.enter().await);
        match self.wal_or_direct(request, bytes) {
            WalPlacement::Daybook(page) => self.wal.write(page).await?,
            WalPlacement::Database(request) => {
                self.wal.written().await;
                self.hand_over(request)?;
            }
        }
        receipt.answer.await.map_err(|_| self.closed())?
    }

    /// Appends one entry that is not the last of what is written now; returns when it is durable, which is before it has its
    /// place.
    pub async fn append_early(&self, draft: &Draft) -> Result<Receipt, StoreError> {
        let (mut request, receipt, bytes) = drafts_request(std::slice::from_ref(draft))?;
        request.more_soon = true;
        request.ticket = Some(self.room.enter().await);
        match self.wal_or_direct(request, bytes) {
            WalPlacement::Daybook(page) => self.wal.write(page).await.map(|()| receipt),
            WalPlacement::Database(request) => {
                self.wal.written().await;
                self.hand_over(request)?;
                let appended = receipt.answer.await.map_err(|_| self.closed())??;
                Ok(Receipt::answered(appended))
            }
        }
    }

    /// Where an entry stands that [`Self::append_early`] appended. Nothing is lost if the wait is given up.
    pub async fn append_with_position(&self, receipt: &mut Receipt) -> Result<Appended, StoreError> {
        if receipt.answer.is_empty() {
            self.wal.request(Target::Ledger, ApplierRequest::Post);
        }
        let appended = (&mut receipt.answer).await.map_err(|_| self.closed())??;
        appended.first().copied().ok_or(StoreError::Closed)
    }

    /// The same where nothing can be awaited: this thread waits for the writer's next commit.
    pub fn append_with_position_blocking(&self, receipt: &mut Receipt) -> Result<Appended, StoreError> {
        self.wal.wait_applied(Target::Ledger);
        let appended = receipt.answer.try_recv().map_err(|_| self.closed())??;
        appended.first().copied().ok_or(StoreError::Closed)
    }

    /// Entries that the only writer of their histories placed itself, ready to be written into the daybook. It knows
    /// their CIDs beforehand, so that one may be the parent of the next.
    pub async fn encode_for_wal(
        &self,
        entries: Vec<EntryText>,
        more_soon: bool,
    ) -> Result<WalPart, StoreError> {
        let bytes = wal_codec::placed(&entries);
        let (mut request, _) = placed_request(entries)?;
        request.more_soon = more_soon;
        request.ticket = Some(self.room.enter().await);
        Ok(self.part(bytes, request))
    }

    /// Appends such entries without the daybook, all or none.
    pub async fn append_placed(&self, entries: Vec<EntryText>) -> Result<(), StoreError> {
        let (mut request, receipt) = placed_request(entries)?;
        request.ticket = Some(self.room.enter().await);
        self.wal.written().await;
        self.hand_over(request)?;
        receipt.answer.await.map_err(|_| self.closed())?.map(drop)
    }

    /// Queues an entry without waiting, neither for room nor, unless it is very large, for the disk. Entries that are queued later come later.
    pub fn submit(&self, draft: &Draft) -> Result<(), StoreError> {
        let (mut request, _, bytes) = drafts_request(std::slice::from_ref(draft))?;
        let full = StoreError::TooMuchAtOnce { what: "requests that wait", limit: QUEUE };
        request.ticket = Some(self.room.try_enter().ok_or(full)?);
        self.enqueue_direct(request, bytes).map(drop)
    }

    /// Queues entries from a thread of their own, waiting only for room. [`Self::wait_blocking`] says where they ended up.
    pub fn submit_blocking(&self, drafts: &[Draft]) -> Result<Receipt, StoreError> {
        let (mut request, receipt, bytes) = drafts_request(drafts)?;
        request.ticket = Some(self.room.enter_blocking());
        let number = self.enqueue_direct(request, bytes)?;
        Ok(Receipt { number, ..receipt })
    }

    /// Waits for what [`Self::submit_blocking`] queued.
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

    /// Appends an entry that its author placed and attested. Refused if another entry took the place.
    pub fn append_sealed_blocking(&self, entry: EntryText) -> Result<Appended, StoreError> {
        refuse_reserved(&entry.entity_id, entry.quality)?;
        self.send_blocking(WriteOp::Sealed(Box::new(entry)))
    }

    /// Tells the log that `to` signs from now on; `entry` is the change, attested by the key in force.
    pub(super) fn rotate_blocking(
        &self,
        to: Ed25519Signer,
        entry: EntryText,
    ) -> Result<Appended, StoreError> {
        self.send_blocking(WriteOp::Rotate { to: Box::new(to), entry: Box::new(entry) })
    }

    fn send_blocking(&self, work: WriteOp) -> Result<Appended, StoreError> {
        let (mut request, receipt) = request(work);
        request.ticket = Some(self.room.enter_blocking());
        self.wal.flush();
        self.hand_over(request)?;
        self.wait_blocking(receipt)?.first().copied().ok_or(StoreError::Closed)
    }

    /// Ends the writer behind everything that is queued, whoever still holds a handle. Callable from anywhere.
    pub(super) fn stop(self, in_peace: bool) {
        let (stop, _) = request(WriteOp::Stop { in_peace });
        let _ = self.queue.send(stop);
    }

    /// The book that this writer posts from.
    pub const fn daybook(&self) -> &Wal {
        &self.wal
    }

    /// Has a request carried out, without waiting for it. Returns its number in the daybook.
    fn enqueue_direct(&self, request: WriteRequest, bytes: Vec<u8>) -> Result<Option<u64>, StoreError> {
        match self.wal_or_direct(request, bytes) {
            WalPlacement::Daybook(page) => self.wal.enqueue_background(page).map(Some),
            WalPlacement::Database(request) => {
                self.wal.flush();
                self.hand_over(request).map(|()| None)
            }
        }
    }

    /// Where a request is made durable, which is `bytes` in the book.
    fn wal_or_direct(&self, request: WriteRequest, bytes: Vec<u8>) -> WalPlacement {
        if self.wal.fits(bytes.len()) {
            WalPlacement::Daybook(WalRecord { ledger: Some(self.part(bytes, request)), vault: None })
        } else {
            WalPlacement::Database(request)
        }
    }

    fn part(&self, bytes: Vec<u8>, request: WriteRequest) -> WalPart {
        let queue = self.queue.clone();
        // If the writer is gone, so is the store; the caller is told by its receipt, or by the book.
        let post = move |number| drop(queue.send(WriteRequest { number: Some(number), ..request }));
        WalPart { bytes, post: Box::new(post) }
    }

    /// Queues a request for the writer, past the book.
    fn hand_over(&self, request: WriteRequest) -> Result<(), StoreError> {
        self.queue.send(request).map_err(|_| self.closed())?;
        self.wal.mark_bypassed(Target::Ledger);
        Ok(())
    }

    /// Why nothing can be appended any more, if so.
    pub fn failure(&self) -> Option<String> {
        self.failure.get().cloned().or_else(|| self.wal.failure())
    }

    fn closed(&self) -> StoreError {
        self.failure.get().map_or_else(|| self.wal.refusal(), |why| StoreError::ReadOnly(why.clone()))
    }
}

/// Where something is written first.
enum WalPlacement {
    Daybook(WalRecord),
    Database(WriteRequest),
}

/// A change of key that the writer does not carry out would make the log's next checkpoint worthless, and the newest
/// entry of that history must be one.
fn refuse_reserved(entity_id: &str, quality: EntryQuality) -> Result<(), StoreError> {
    if quality == EntryQuality::KeyChange || entity_id == KeyChange::ENTITY {
        return Err(StoreError::Reserved(KeyChange::ENTITY));
    }
    Ok(())
}

pub(super) fn request(work: WriteOp) -> (WriteRequest, Receipt) {
    let (answer, receipt) = oneshot::channel();
    (
        WriteRequest { work, number: None, more_soon: false, ticket: None, answer },
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

/// Checks and canonicalises in the caller's thread; the writer's time is everybody's. Gives the request's form in the book too.
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
pub(super) fn start(sequencer: Sequencer, daybook: Wal) -> std::io::Result<(LedgerWriter, JoinHandle<()>)> {
    let (queue, requests) = std_mpsc::channel();
    let failure = Arc::new(OnceLock::new());
    let writer = LedgerWriter {
        room: QueuePermits::of(QUEUE),
        queue: queue.clone(),
        failure: Arc::clone(&failure),
        wal: daybook,
    };
    let (room, daybook) = (writer.room.clone(), writer.wal.clone());
    let run = WriterRun { sequencer: Some(sequencer), failure, daybook, room };
    let thread =
        std::thread::Builder::new().name("ledger-writer".to_owned()).spawn(move || run.all(&requests))?;
    writer.wal.attach(Target::Ledger, move |ask| {
        let work = match ask {
            ApplierRequest::Sync => WriteOp::Sync,
            ApplierRequest::Post => WriteOp::Post,
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
    daybook: Wal,
    room: QueuePermits,
}

/// The next request, if one waits; behind many entries also if one is on its way through the book. Behind few, somebody is more
/// likely to wait for them to be read.
fn coming(
    behind: usize,
    room: &QueuePermits,
    requests: &std_mpsc::Receiver<WriteRequest>,
) -> Option<WriteRequest> {
    match requests.try_recv() {
        Ok(next) => Some(next),
        Err(_) if behind < MANY || room.is_empty() => None,
        Err(_) => requests.recv_timeout(ON_ITS_WAY).ok(),
    }
}

/// Requests that are written together, and the first behind them that is not.
struct WriteGroup {
    batch: Vec<WriteRequest>,
    entries: usize,
    held_over: Option<WriteRequest>,
}

/// Takes what waits behind a request. Behind one that more follows soon, that is waited for.
fn gather(first: WriteRequest, requests: &std_mpsc::Receiver<WriteRequest>) -> WriteGroup {
    let until = Instant::now() + LONGEST_COMMIT;
    let mut gathered = WriteGroup { entries: first.len(), batch: vec![first], held_over: None };
    while gathered.entries < MAX_BATCH {
        let more_soon = gathered.batch.last().is_some_and(|last| last.more_soon);
        let next = match requests.try_recv() {
            Ok(next) => Some(next),
            Err(_) if more_soon => {
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
    /// Takes requests until it is told to stop.
    fn all(mut self, requests: &std_mpsc::Receiver<WriteRequest>) {
        let mut held_over: Option<WriteRequest> = None;
        while let Some(first) = held_over.take().or_else(|| requests.recv().ok()) {
            match first.work {
                WriteOp::Stop { in_peace } => {
                    self.sync();
                    return self.leave(in_peace);
                }
                WriteOp::Sync => self.sync(),
                // Whatever came before is committed.
                WriteOp::Post => {}
                WriteOp::Drafts(_) | WriteOp::Placed(_) | WriteOp::Sealed(_) | WriteOp::Rotate { .. } => {
                    held_over = self.write(first, requests);
                }
            }
        }
        self.sync();
    }

    /// Writes a request with those behind it, and commits unless more is coming. Returns the first that has to wait.
    fn write(
        &mut self,
        first: WriteRequest,
        requests: &std_mpsc::Receiver<WriteRequest>,
    ) -> Option<WriteRequest> {
        let WriteGroup { batch, entries, mut held_over } = gather(first, requests);
        match &mut self.sequencer {
            Some(sequencer) => {
                let written = sequencer.write(batch).and_then(|()| {
                    let (most, longest) = if entries < MANY {
                        (LARGEST_COMMIT, LONGEST_COMMIT)
                    } else {
                        (LARGEST_OF_MANY, LONGEST_OF_MANY)
                    };
                    if sequencer.may_go_on(most, longest) {
                        held_over = held_over.take().or_else(|| coming(entries, &self.room, requests));
                        if held_over.as_ref().is_some_and(WriteRequest::is_entries) {
                            return Ok(());
                        }
                    }
                    sequencer.commit()
                });
                self.heed(written);
            }
            None => {
                for request in batch {
                    let why = self.failure.get().cloned().unwrap_or_default();
                    // A caller that stopped waiting needs no answer.
                    let _ = request.answer.send(Err(StoreError::ReadOnly(why)));
                }
            }
        }
        held_over
    }

    fn sync(&mut self) {
        if let Some(sequencer) = &mut self.sequencer {
            let synced = sequencer.sync();
            self.heed(synced);
        }
    }

    /// Nothing is in the book that is not in the database.
    fn leave(&mut self, in_peace: bool) {
        if let Some(sequencer) = self.sequencer.as_mut().filter(|_| in_peace) {
            let left = sequencer.leave();
            self.heed(left);
        }
    }

    /// The pages behind a failed sync may be gone though a later sync succeeds. Nothing is written through this
    /// connection again; opening anew reads what is really there.
    fn heed(&mut self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            let _ = self.failure.set(error.to_string());
            self.daybook.fail(&error);
            self.sequencer = None;
        }
    }
}

impl WriteRequest {
    /// Whether it is for entries, and not for the writer itself.
    const fn is_entries(&self) -> bool {
        !matches!(self.work, WriteOp::Sync | WriteOp::Post | WriteOp::Stop { .. })
    }

    fn len(&self) -> usize {
        match &self.work {
            WriteOp::Drafts(entries) => entries.len(),
            WriteOp::Placed(entries) => entries.len(),
            WriteOp::Sealed(_) | WriteOp::Rotate { .. } => 1,
            WriteOp::Sync | WriteOp::Post | WriteOp::Stop { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(more_soon: bool) -> WriteRequest {
        let (mut one, _) = request(WriteOp::Placed(Vec::new()));
        one.more_soon = more_soon;
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
    fn what_follows_soon_is_written_along_and_whoever_wants_to_read_ends_the_wait() {
        assert_eq!(gathered(vec![entry(true), entry(true), entry(false)]), (3, false));
        assert_eq!(gathered(vec![entry(true), request(WriteOp::Post).0, entry(false)]), (1, true));
        assert_eq!(gathered(vec![entry(true)]), (1, false), "and nothing is waited for without end");
    }
}
