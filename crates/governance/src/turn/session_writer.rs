//! The single writer of one session: entries go to the ledger, content and events to the vault.
//!
//! What belongs together is collected in a [`WriteBatch`], which is written as a whole to both. Its events may be shown
//! when it is durable. The writer assigns sequence numbers itself, so that it knows the CIDs of entries before they are
//! on disk.

use serde::Serialize;
use tribune_ledger::commitment::Commitment;
use tribune_ledger::entry::EntryText;
use tribune_ledger::{Cid, Draft, EntryQuality, LedgerEntry};
use tribune_records::ledger_payloads::payload;
use tribune_runtime::{EventKind, Handle, RuntimeEvent};
use tribune_storage::store::StoreError;
use tribune_storage::vault::{Conversation, SessionVault, StoredEvent, VaultBatch, VaultPart};

use crate::gate::PolicyContext;
use crate::storage_handles::StorageHandles;

/// The writer of one session.
pub struct SessionWriter {
    pub(super) handle: Handle,
    storage: StorageHandles,
    session: SessionVault,
    next_entry: u64,
    /// The entry of the newest turn.
    pub(super) prev_turn: Option<Cid>,
    /// The policy context of the session: mandates, and the labels of what it has read.
    pub(super) context: PolicyContext,
    /// Set while a write is not confirmed, and after a failed one: the state on disk is unknown then, and this writer
    /// writes nothing more.
    broken: bool,
}

impl std::fmt::Debug for SessionWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionWriter")
    }
}

/// Who flushes a batch to the write-ahead log.
#[derive(Clone, Copy)]
pub(super) enum FlushMode {
    /// The caller flushes when it waits.
    Inline,
    /// The caller flushes when it waits. More batches of the same turn follow soon.
    InlineMoreFollows,
    /// The background thread flushes. It takes longer, and the caller can do something else meanwhile.
    Background,
    /// The next batch flushes this one too. After 1 ms, the caller flushes.
    WithNext,
}

impl FlushMode {
    /// Whether another batch follows soon, so that the appliers may wait for it.
    const fn more_follows(self) -> bool {
        !matches!(self, Self::Inline)
    }
}

/// A submitted batch: its position is fixed, and it is not durable yet.
#[must_use = "its events may be shown when it is durable"]
pub(super) struct PendingWrite {
    mode: FlushMode,
    /// The number in the write-ahead log. Without one, the batch is durable.
    number: Option<u64>,
    events: Vec<RuntimeEvent>,
}

/// What is written together.
#[derive(Default)]
pub(super) struct WriteBatch {
    content: VaultBatch,
    entries: Vec<EntryText>,
    events: Vec<RuntimeEvent>,
}

/// The position from which a writer continues.
pub(super) struct SessionCursor {
    pub(super) handle: Handle,
    pub(super) next_entry: u64,
    pub(super) prev_turn: Option<Cid>,
    pub(super) context: PolicyContext,
}

/// Proof that a batch is durable.
#[derive(Debug)]
pub struct Durable {
    // INVARIANT: every entry of the session before this sequence number is on disk.
    next_entry: u64,
    pub(super) events: Vec<RuntimeEvent>,
}

impl Durable {
    /// Whether the entry with this sequence number is on disk.
    pub(crate) const fn reaches(&self, seq: u64) -> bool {
        seq < self.next_entry
    }
}

/// An entry before the writer adds the position, the time and the source.
pub(super) struct EntryDraft<'a, P> {
    pub(super) quality: EntryQuality,
    pub(super) target: &'a str,
    pub(super) parents: Vec<Cid>,
    pub(super) record: &'a P,
}

impl WriteBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.content.is_empty() && self.entries.is_empty() && self.events.is_empty()
    }
}

impl SessionWriter {
    pub(super) async fn open(storage: StorageHandles, cursor: SessionCursor) -> Result<Self, StoreError> {
        let SessionCursor { handle, next_entry, prev_turn, context } = cursor;
        let session = storage.vault.session(&handle.session_id, next_entry).await?;
        Ok(Self { handle, storage, session, next_entry, prev_turn, context, broken: false })
    }

    pub(super) fn now(&self) -> tribune_ledger::Timestamp {
        self.storage.clock.now()
    }

    /// The newest stored event.
    pub(super) const fn last_event(&self) -> Option<&StoredEvent> {
        self.session.last_event.as_ref()
    }

    pub const fn next_event(&self) -> u64 {
        self.session.next_event
    }

    pub(super) const fn is_broken(&self) -> bool {
        self.broken
    }

    /// The stored conversation, for a turn that continues it.
    pub(super) fn conversation(&self) -> Conversation {
        self.storage.vault.conversation(&self.session)
    }

    pub(super) fn new_batch(&self) -> WriteBatch {
        WriteBatch { content: VaultBatch::new(&self.session), ..WriteBatch::default() }
    }

    /// Adds content to the batch. Returns its commitment, which is all that the ledger stores of it.
    pub(super) fn content(&self, batch: &mut WriteBatch, text: &[u8]) -> Result<Commitment, StoreError> {
        batch.content.content(&self.session, text).map_err(|error| StoreError::Sealing(error.to_string()))
    }

    /// Adds an entry to the batch and assigns its sequence number.
    pub(super) fn entry<P: Serialize>(
        &mut self,
        batch: &mut WriteBatch,
        line: EntryDraft<'_, P>,
    ) -> Result<LedgerEntry, StoreError> {
        let key = self.handle.key.as_str();
        let draft = Draft {
            entity_id: key.to_owned(),
            target: line.target.to_owned(),
            quality: line.quality,
            timestamp: self.storage.clock.now(),
            source: key.to_owned(),
            actor: self.handle.key.agent().as_str().to_owned(),
            parents: line.parents,
            tags: Vec::new(),
            payload: payload(line.record),
            attested_by: None,
            envelope: None,
        };
        let text = EntryText::seal(&draft, self.next_entry)?;
        let entry = LedgerEntry {
            cid: text.cid,
            entity_id: draft.entity_id,
            seq: text.seq,
            target: draft.target,
            quality: draft.quality,
            timestamp: draft.timestamp,
            source: draft.source,
            actor: draft.actor,
            parents: draft.parents,
            tags: draft.tags,
            payload: draft.payload,
            attested_by: None,
            proof: tribune_ledger::Proof::Null,
            envelope: None,
        };
        self.next_entry += 1;
        batch.entries.push(text);
        Ok(entry)
    }

    /// Adds an event to the batch and assigns its sequence number.
    pub(super) fn event(&mut self, batch: &mut WriteBatch, kind: EventKind) {
        let seq = self.session.next_event;
        self.session.next_event += 1;
        batch.events.push(RuntimeEvent { seq, kind });
    }

    /// Deletes events older than the newest `kept`.
    pub(super) const fn drop_old_events(&self, batch: &mut WriteBatch, kept: u64) {
        if self.session.next_event > kept + 1 {
            batch.content.drop_events_below(self.session.next_event - kept);
        }
    }

    /// Writes the batch. Returns its events when everything in it is durable.
    pub(super) async fn write(&mut self, batch: WriteBatch) -> Result<Durable, StoreError> {
        let pending = self.submit(FlushMode::Inline, batch).await?;
        self.wait_durable(pending).await
    }

    /// Submits the batch: it is written before any batch that is submitted later.
    pub(super) async fn submit(
        &mut self,
        mode: FlushMode,
        batch: WriteBatch,
    ) -> Result<PendingWrite, StoreError> {
        if self.broken {
            return Err(StoreError::Closed);
        }
        // The state on disk is unknown until the write is confirmed. A write that is dropped half-way leaves the mark
        // set.
        self.broken = true;
        let WriteBatch { mut content, entries, events } = batch;
        let after_entry = self.next_entry.saturating_sub(1);
        for event in &events {
            let json =
                serde_json::to_string(event).map_err(|error| StoreError::Sealing(error.to_string()))?;
            let event = StoredEvent { seq: event.seq, json };
            content
                .event(&self.session, &event, after_entry)
                .map_err(|error| StoreError::Sealing(error.to_string()))?;
        }
        if !content.is_empty() {
            content.take_key(&mut self.session);
        }
        let number = self.append_to_wal(mode, content, entries).await?;
        Ok(PendingWrite { mode, number, events })
    }

    /// Waits until the batch is durable.
    pub(super) async fn wait_durable(&mut self, pending: PendingWrite) -> Result<Durable, StoreError> {
        let PendingWrite { mode, number, events } = pending;
        let wal = self.storage.ledger.wal();
        match (number, mode) {
            (None, _) => {}
            (Some(number), FlushMode::Inline | FlushMode::InlineMoreFollows) => {
                wal.wait_durable_async(number).await?
            }
            (Some(number), FlushMode::Background) => wal.wait_flushed_in_background(number).await?,
            (Some(number), FlushMode::WithNext) => wal.wait_or_flush(number).await?,
        }
        self.broken = false;
        Ok(Durable { next_entry: self.next_entry, events })
    }

    /// Appends content and entries to the write-ahead log as one record. Bypasses the log if they are too large for it.
    /// Returns their number in the log; without one they are durable.
    async fn append_to_wal(
        &self,
        mode: FlushMode,
        content: VaultBatch,
        entries: Vec<EntryText>,
    ) -> Result<Option<u64>, StoreError> {
        let content = match content.is_empty() {
            true => None,
            false => Some(self.storage.vault.part(content, mode.more_follows()).await?),
        };
        let bytes = content.as_ref().map_or(0, VaultPart::bytes);
        let wal = self.storage.ledger.wal();
        if !wal.fits(bytes + entries.iter().map(|entry| entry.payload.len()).sum::<usize>()) {
            wal.wait_all_durable().await;
            let content = content.map(VaultPart::bypass_wal).transpose()?;
            if !entries.is_empty() {
                self.storage.ledger.append_placed(entries).await?;
            }
            if let Some(receipt) = content {
                receipt.await.map_err(|_| StoreError::Closed)??;
            }
            return Ok(None);
        }
        let ledger = match entries.is_empty() {
            true => None,
            false => Some(self.storage.ledger.encode_for_wal(entries, mode.more_follows()).await?),
        };
        let vault = content.map(VaultPart::into_part);
        if ledger.is_none() && vault.is_none() {
            return Ok(None);
        }
        let record = tribune_storage::wal::WalRecord { ledger, vault };
        match mode {
            FlushMode::Inline | FlushMode::InlineMoreFollows | FlushMode::WithNext => {
                wal.enqueue_lazy(record)
            }
            FlushMode::Background => wal.enqueue_background(record),
        }
        .map(Some)
    }
}
