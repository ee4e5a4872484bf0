//! The way to the one writer: a handle for callers, a bounded queue, and the thread that empties it. What a commit does
//! is in [`super::sequencer`].

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};
use tribune_ledger::entry::{EntryText, Unplaced};
use tribune_ledger::key_change::KeyChange;
use tribune_ledger::limits::MAX_ENTRY_BYTES;
use tribune_ledger::{Draft, Ed25519Signer, EntryQuality, NoteSigner};

use super::error::StoreError;
use super::sequencer::{Appended, Sequencer};

/// Requests waiting at most; the next caller waits for room.
const QUEUE: usize = 512;

/// Entries in one commit at most. More would make the first caller wait for the last without saving syncs.
const MAX_BATCH: usize = 512;

/// Bytes of entries in one request at most: four entries of the largest size. With [`QUEUE`] it bounds what can wait in
/// memory; only a flood of the largest requests comes near.
const MAX_REQUEST_BYTES: usize = 4 * MAX_ENTRY_BYTES;

/// A handle for appending; clones share the queue.
#[derive(Debug, Clone)]
pub struct LedgerWriter {
    queue: mpsc::Sender<Request>,
    failure: Arc<OnceLock<String>>,
}

/// An append under way.
#[derive(Debug)]
#[must_use = "an entry is durable only once its receipt says so"]
pub struct Receipt(pub(super) oneshot::Receiver<Result<Vec<Appended>, StoreError>>);

/// What a request asks for.
pub(super) enum Work {
    /// Placed by the writer.
    Drafts(Vec<Unplaced>),
    /// Placed by the one who writes these histories, in their order.
    Placed(Vec<EntryText>),
    /// Placed and attested by the caller, who must have guessed the place right.
    Sealed(Box<EntryText>),
    /// The log's key passes to another signer.
    Rotate { to: Box<dyn NoteSigner>, entry: Box<EntryText> },
    /// What was asked before is written; nothing is taken any more.
    Stop,
}

/// One caller's request, and where its answer goes.
pub(super) struct Request {
    pub(super) work: Work,
    pub(super) answer: oneshot::Sender<Result<Vec<Appended>, StoreError>>,
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

    /// Appends several entries that the only writer of their histories placed itself, all or none. It knows their CIDs
    /// beforehand, so that one may be the parent of the next.
    pub async fn append_placed(&self, entries: Vec<EntryText>) -> Result<(), StoreError> {
        if entries.len() > MAX_BATCH {
            return Err(StoreError::TooMuchAtOnce { what: "entries", limit: MAX_BATCH });
        }
        for entry in &entries {
            refuse_reserved(&entry.entity_id, entry.quality)?;
        }
        let (request, receipt) = request(Work::Placed(entries));
        self.queue.send(request).await.map_err(|_| self.closed())?;
        receipt.0.await.map_err(|_| self.closed())?.map(drop)
    }

    /// Appends an entry that its author placed and attested. Refused if another entry took the place.
    pub async fn append_sealed(&self, entry: EntryText) -> Result<Appended, StoreError> {
        refuse_reserved(&entry.entity_id, entry.quality)?;
        let (request, receipt) = request(Work::Sealed(Box::new(entry)));
        self.queue.send(request).await.map_err(|_| self.closed())?;
        let appended = receipt.0.await.map_err(|_| self.closed())??;
        appended.first().copied().ok_or(StoreError::Closed)
    }

    /// Queues an entry without waiting, neither for room nor for the disk. Entries that are queued later come later.
    pub fn submit(&self, draft: &Draft) -> Result<(), StoreError> {
        let (request, _) = drafts_request(std::slice::from_ref(draft))?;
        match self.queue.try_send(request) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(StoreError::TooMuchAtOnce { what: "requests that wait", limit: QUEUE })
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(self.closed()),
        }
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
        refuse_reserved(&entry.entity_id, entry.quality)?;
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

    /// Ends the writer behind everything that is queued, whoever still holds a handle. Callable from anywhere.
    pub(super) fn stop(self) {
        let (stop, _) = request(Work::Stop);
        if let Err(mpsc::error::TrySendError::Full(stop)) = self.queue.try_send(stop) {
            // Waiting for room is not allowed in an async runtime, so another thread does it.
            let waiting = std::thread::spawn(move || drop(self.queue.blocking_send(stop)));
            let _ = waiting.join();
        }
    }

    /// Why nothing can be appended any more, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    fn closed(&self) -> StoreError {
        self.failure.get().map_or(StoreError::Closed, |why| StoreError::ReadOnly(why.clone()))
    }
}

/// A change of key that the writer does not carry out would make the log's next checkpoint worthless, and the newest
/// entry of that history must be one.
fn refuse_reserved(entity_id: &str, quality: EntryQuality) -> Result<(), StoreError> {
    if quality == EntryQuality::KeyChange || entity_id == KeyChange::ENTITY {
        return Err(StoreError::Reserved(KeyChange::ENTITY));
    }
    Ok(())
}

pub(super) fn request(work: Work) -> (Request, Receipt) {
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
        refuse_reserved(&draft.entity_id, draft.quality)?;
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
        let Some(sequencer) = alive.as_mut().filter(|_| !matches!(first.work, Work::Stop)) else {
            if matches!(first.work, Work::Stop) {
                return;
            }
            let why = failure.get().cloned().unwrap_or_default();
            // A caller that stopped waiting needs no answer.
            let _ = first.answer.send(Err(StoreError::ReadOnly(why)));
            continue;
        };
        let mut batch = vec![first];
        let mut entries = batch[0].len();
        while entries < MAX_BATCH {
            let Ok(next) = requests.try_recv() else { break };
            if matches!(next.work, Work::Stop) {
                held_over = Some(next);
                break;
            }
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
            Work::Placed(entries) => entries.len(),
            Work::Sealed(_) | Work::Rotate { .. } => 1,
            Work::Stop => 0,
        }
    }
}
