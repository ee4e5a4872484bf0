//! The one hand that writes a session's history: entries to the ledger, words and events to the vault.
//!
//! Whatever belongs together is put on a [`Page`]; a page is written as a whole, to both at once, and its events may be
//! seen once it is. The journal places its entries itself, so that it knows their CIDs before they are on disk.

use std::sync::Arc;

use serde::Serialize;
use tribune_ledger::commitment::Commitment;
use tribune_ledger::entry::EntryText;
use tribune_ledger::{Cid, Draft, EntryQuality, LedgerEntry};
use tribune_records::ledger_payloads::payload;
use tribune_runtime::{EventKind, Handle, RuntimeEvent};
use tribune_storage::clock::Clock;
use tribune_storage::store::{LedgerWriter, StoreError};
use tribune_storage::vault::{Conversation, SessionVault, StoredEvent, Vault, VaultBatch, VaultPart};

use crate::gate::PolicyContext;

/// A session's history, open for writing.
pub struct SessionWriter {
    pub(super) handle: Handle,
    ledger: LedgerWriter,
    vault: Arc<Vault>,
    clock: Arc<dyn Clock>,
    session: SessionVault,
    next_entry: u64,
    /// The newest turn.
    pub(super) prev_turn: Option<Cid>,
    /// What the gate looks at: mandates, and what the session has taken in.
    pub(super) standing: PolicyContext,
    /// Set when a page could not be written: what is on disk is not known, and nothing more is written through this.
    broken: bool,
}

/// Who writes into the daybook.
#[derive(Clone, Copy)]
pub(super) enum FlushMode {
    /// Whoever waits for it.
    Own,
    /// The same, in the middle of a turn: more follows soon.
    Midway,
    /// A thread that is there for it: it takes a moment longer, and whoever waits can do something else.
    Scribe,
    /// Whoever writes next; after a moment, whoever waits for it.
    Next,
}

impl FlushMode {
    /// Whether another page follows soon, so that those who post may wait for it.
    const fn more_soon(self) -> bool {
        !matches!(self, Self::Own)
    }
}

/// A page that has its place and is not durable yet.
#[must_use = "its events may be seen when it is durable"]
pub(super) struct PendingWrite {
    hand: FlushMode,
    /// In the daybook; without one it is durable.
    number: Option<u64>,
    events: Vec<RuntimeEvent>,
}

/// What is written together.
#[derive(Default)]
pub(super) struct WriteBatch {
    batch: VaultBatch,
    entries: Vec<EntryText>,
    events: Vec<RuntimeEvent>,
}

/// Where a journal goes on.
pub(super) struct SessionCursor {
    pub(super) handle: Handle,
    pub(super) next_entry: u64,
    pub(super) prev_turn: Option<Cid>,
    pub(super) standing: PolicyContext,
}

/// A page that is durable.
#[derive(Debug)]
pub struct Durable {
    // INVARIANT: every entry of the session before this place is on disk.
    next_entry: u64,
    pub(super) events: Vec<RuntimeEvent>,
}

impl Durable {
    /// Whether the entry at this place of the session's history is on disk.
    pub(crate) const fn reaches(&self, place: u64) -> bool {
        place < self.next_entry
    }
}

/// An entry to be, without what the journal knows by itself.
pub(super) struct EntryDraft<'a, P> {
    pub(super) quality: EntryQuality,
    pub(super) target: &'a str,
    pub(super) parents: Vec<Cid>,
    pub(super) record: &'a P,
}

impl WriteBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.entries.is_empty() && self.events.is_empty()
    }
}

impl SessionWriter {
    pub(super) async fn open(
        ledger: LedgerWriter,
        vault: Arc<Vault>,
        clock: Arc<dyn Clock>,
        position: SessionCursor,
    ) -> Result<Self, StoreError> {
        let SessionCursor { handle, next_entry, prev_turn, standing } = position;
        let session = vault.session(&handle.session_id, next_entry).await?;
        Ok(Self { handle, ledger, vault, clock, session, next_entry, prev_turn, standing, broken: false })
    }

    pub(super) fn now(&self) -> tribune_ledger::Timestamp {
        self.clock.now()
    }

    /// The newest event that is stored.
    pub(super) const fn last_event(&self) -> Option<&StoredEvent> {
        self.session.last_event.as_ref()
    }

    pub const fn next_event(&self) -> u64 {
        self.session.next_event
    }

    pub(super) const fn is_broken(&self) -> bool {
        self.broken
    }

    /// What was said in the session until now, for a turn that goes on with it.
    pub(super) fn conversation(&self) -> Conversation {
        self.vault.conversation(&self.session)
    }

    pub(super) fn page(&self) -> WriteBatch {
        WriteBatch { batch: VaultBatch::new(&self.session), ..WriteBatch::default() }
    }

    /// Puts content on the page; returns what the ledger may know of it.
    pub(super) fn content(&self, page: &mut WriteBatch, text: &[u8]) -> Result<Commitment, StoreError> {
        page.batch.content(&self.session, text).map_err(|error| StoreError::Sealing(error.to_string()))
    }

    /// Puts an entry on the page and gives it its place.
    pub(super) fn entry<P: Serialize>(
        &mut self,
        page: &mut WriteBatch,
        line: EntryDraft<'_, P>,
    ) -> Result<LedgerEntry, StoreError> {
        let key = self.handle.key.as_str();
        let draft = Draft {
            entity_id: key.to_owned(),
            target: line.target.to_owned(),
            quality: line.quality,
            timestamp: self.clock.now(),
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
        page.entries.push(text);
        Ok(entry)
    }

    /// Puts an event on the page and gives it its number.
    pub(super) fn event(&mut self, page: &mut WriteBatch, kind: EventKind) {
        let seq = self.session.next_event;
        self.session.next_event += 1;
        page.events.push(RuntimeEvent { seq, kind });
    }

    /// Lets go of events that are older than the newest `kept`.
    pub(super) const fn drop_old_events(&self, page: &mut WriteBatch, kept: u64) {
        if self.session.next_event > kept + 1 {
            page.batch.drop_events_below(self.session.next_event - kept);
        }
    }

    /// Writes the page. Its events come back when everything on it is durable.
    pub(super) async fn write(&mut self, page: WriteBatch) -> Result<Durable, StoreError> {
        let page = self.submit(FlushMode::Own, page).await?;
        self.wait_durable(page).await
    }

    /// Gives the page its place before whatever is handed in later.
    pub(super) async fn submit(
        &mut self,
        hand: FlushMode,
        page: WriteBatch,
    ) -> Result<PendingWrite, StoreError> {
        if self.broken {
            return Err(StoreError::Closed);
        }
        // Until it is written, nobody knows what is on disk; a page that is given up half-way leaves the mark set.
        self.broken = true;
        let WriteBatch { mut batch, entries, events } = page;
        let after_entry = self.next_entry.saturating_sub(1);
        for event in &events {
            let json =
                serde_json::to_string(event).map_err(|error| StoreError::Sealing(error.to_string()))?;
            let event = StoredEvent { seq: event.seq, json };
            batch
                .event(&self.session, &event, after_entry)
                .map_err(|error| StoreError::Sealing(error.to_string()))?;
        }
        if !batch.is_empty() {
            batch.take_key(&mut self.session);
        }
        let number = self.append_to_wal(hand, batch, entries).await?;
        Ok(PendingWrite { hand, number, events })
    }

    /// Waits until the page is durable.
    pub(super) async fn wait_durable(&mut self, page: PendingWrite) -> Result<Durable, StoreError> {
        let PendingWrite { hand, number, events } = page;
        let book = self.ledger.daybook();
        match (number, hand) {
            (None, _) => {}
            (Some(number), FlushMode::Own | FlushMode::Midway) => book.wait_durable_async(number).await?,
            (Some(number), FlushMode::Scribe) => book.wait_flushed_in_background(number).await?,
            (Some(number), FlushMode::Next) => book.wait_or_flush(number).await?,
        }
        self.broken = false;
        Ok(Durable { next_entry: self.next_entry, events })
    }

    /// Has words and entries made durable: together, in the daybook, or past it if they are too large. Returns their number
    /// there; without one they are durable.
    async fn append_to_wal(
        &self,
        hand: FlushMode,
        batch: VaultBatch,
        entries: Vec<EntryText>,
    ) -> Result<Option<u64>, StoreError> {
        let words = match batch.is_empty() {
            true => None,
            false => Some(self.vault.part(batch, hand.more_soon()).await?),
        };
        let bytes = words.as_ref().map_or(0, VaultPart::bytes);
        let book = self.ledger.daybook();
        if !book.fits(bytes + entries.iter().map(|entry| entry.payload.len()).sum::<usize>()) {
            book.written().await;
            let words = words.map(VaultPart::past_the_book).transpose()?;
            if !entries.is_empty() {
                self.ledger.append_placed(entries).await?;
            }
            if let Some(receipt) = words {
                receipt.await.map_err(|_| StoreError::Closed)??;
            }
            return Ok(None);
        }
        let ledger = match entries.is_empty() {
            true => None,
            false => Some(self.ledger.encode_for_wal(entries, hand.more_soon()).await?),
        };
        let vault = words.map(VaultPart::into_part);
        if ledger.is_none() && vault.is_none() {
            return Ok(None);
        }
        let page = tribune_storage::wal::WalRecord { ledger, vault };
        match hand {
            FlushMode::Own | FlushMode::Midway | FlushMode::Next => book.enqueue_lazy(page),
            FlushMode::Scribe => book.enqueue_background(page),
        }
        .map(Some)
    }
}
