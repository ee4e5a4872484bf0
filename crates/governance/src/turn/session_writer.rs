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
use tribune_storage::vault::{Batch, Conversation, Event, SessionVault, Vault, VaultPart};

use crate::gate::Standing;

/// A session's history, open for writing.
pub struct Journal {
    pub(super) handle: Handle,
    ledger: LedgerWriter,
    vault: Arc<Vault>,
    clock: Arc<dyn Clock>,
    session: SessionVault,
    next_entry: u64,
    /// The newest turn.
    pub(super) prev_turn: Option<Cid>,
    /// What the gate looks at: mandates, and what the session has taken in.
    pub(super) standing: Standing,
    /// Set when a page could not be written: what is on disk is not known, and nothing more is written through this.
    broken: bool,
}

/// Who writes into the daybook.
#[derive(Clone, Copy)]
pub(super) enum Hand {
    /// Whoever waits for it.
    Own,
    /// The same, in the middle of a turn: more follows soon.
    Midway,
    /// A thread that is there for it: it takes a moment longer, and whoever waits can do something else.
    Scribe,
    /// Whoever writes next; after a moment, whoever waits for it.
    Next,
}

impl Hand {
    /// Whether another page follows soon, so that those who post may wait for it.
    const fn more_soon(self) -> bool {
        !matches!(self, Self::Own)
    }
}

/// A page that has its place and is not durable yet.
#[must_use = "its events may be seen when it is durable"]
pub(super) struct HandedIn {
    hand: Hand,
    /// In the daybook; without one it is durable.
    number: Option<u64>,
    events: Vec<RuntimeEvent>,
}

/// What is written together.
#[derive(Default)]
pub(super) struct Page {
    batch: Batch,
    entries: Vec<EntryText>,
    events: Vec<RuntimeEvent>,
}

/// Where a journal goes on.
pub(super) struct Position {
    pub(super) handle: Handle,
    pub(super) next_entry: u64,
    pub(super) prev_turn: Option<Cid>,
    pub(super) standing: Standing,
}

/// A page that is durable.
#[derive(Debug)]
pub struct Written {
    // INVARIANT: every entry of the session before this place is on disk.
    next_entry: u64,
    pub(super) events: Vec<RuntimeEvent>,
}

impl Written {
    /// Whether the entry at this place of the session's history is on disk.
    pub(crate) const fn reaches(&self, place: u64) -> bool {
        place < self.next_entry
    }
}

/// An entry to be, without what the journal knows by itself.
pub(super) struct Line<'a, P> {
    pub(super) quality: EntryQuality,
    pub(super) target: &'a str,
    pub(super) parents: Vec<Cid>,
    pub(super) record: &'a P,
}

impl Page {
    pub(super) fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.entries.is_empty() && self.events.is_empty()
    }
}

impl Journal {
    pub(super) async fn open(
        ledger: LedgerWriter,
        vault: Arc<Vault>,
        clock: Arc<dyn Clock>,
        position: Position,
    ) -> Result<Self, StoreError> {
        let Position { handle, next_entry, prev_turn, standing } = position;
        let session = vault.session(&handle.session_id, next_entry).await?;
        Ok(Self { handle, ledger, vault, clock, session, next_entry, prev_turn, standing, broken: false })
    }

    pub(super) fn now(&self) -> tribune_ledger::Timestamp {
        self.clock.now()
    }

    /// The newest event that is stored.
    pub(super) const fn last_event(&self) -> Option<&Event> {
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

    pub(super) fn page(&self) -> Page {
        Page { batch: Batch::new(&self.session), ..Page::default() }
    }

    /// Puts content on the page; returns what the ledger may know of it.
    pub(super) fn content(&self, page: &mut Page, text: &[u8]) -> Result<Commitment, StoreError> {
        page.batch.content(&self.session, text).map_err(|error| StoreError::Sealing(error.to_string()))
    }

    /// Puts an entry on the page and gives it its place.
    pub(super) fn entry<P: Serialize>(
        &mut self,
        page: &mut Page,
        line: Line<'_, P>,
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
    pub(super) fn event(&mut self, page: &mut Page, kind: EventKind) {
        let seq = self.session.next_event;
        self.session.next_event += 1;
        page.events.push(RuntimeEvent { seq, kind });
    }

    /// Lets go of events that are older than the newest `kept`.
    pub(super) const fn drop_old_events(&self, page: &mut Page, kept: u64) {
        if self.session.next_event > kept + 1 {
            page.batch.drop_events_below(self.session.next_event - kept);
        }
    }

    /// Writes the page. Its events come back when everything on it is durable.
    pub(super) async fn write(&mut self, page: Page) -> Result<Written, StoreError> {
        let page = self.hand_in(Hand::Own, page).await?;
        self.written(page).await
    }

    /// Gives the page its place before whatever is handed in later.
    pub(super) async fn hand_in(&mut self, hand: Hand, page: Page) -> Result<HandedIn, StoreError> {
        if self.broken {
            return Err(StoreError::Closed);
        }
        // Until it is written, nobody knows what is on disk; a page that is given up half-way leaves the mark set.
        self.broken = true;
        let Page { mut batch, entries, events } = page;
        let after_entry = self.next_entry.saturating_sub(1);
        for event in &events {
            let json =
                serde_json::to_string(event).map_err(|error| StoreError::Sealing(error.to_string()))?;
            let event = Event { seq: event.seq, json };
            batch
                .event(&self.session, &event, after_entry)
                .map_err(|error| StoreError::Sealing(error.to_string()))?;
        }
        if !batch.is_empty() {
            batch.take_key(&mut self.session);
        }
        let number = self.write_down(hand, batch, entries).await?;
        Ok(HandedIn { hand, number, events })
    }

    /// Waits until the page is durable.
    pub(super) async fn written(&mut self, page: HandedIn) -> Result<Written, StoreError> {
        let HandedIn { hand, number, events } = page;
        let book = self.ledger.daybook();
        match (number, hand) {
            (None, _) => {}
            (Some(number), Hand::Own | Hand::Midway) => book.until_written(number).await?,
            (Some(number), Hand::Scribe) => book.until_told(number).await?,
            (Some(number), Hand::Next) => book.until_along(number).await?,
        }
        self.broken = false;
        Ok(Written { next_entry: self.next_entry, events })
    }

    /// Has words and entries made durable: together, in the daybook, or past it if they are too large. Returns their number
    /// there; without one they are durable.
    async fn write_down(
        &self,
        hand: Hand,
        batch: Batch,
        entries: Vec<EntryText>,
    ) -> Result<Option<u64>, StoreError> {
        let words = match batch.is_empty() {
            true => None,
            false => Some(self.vault.part(batch, hand.more_soon()).await?),
        };
        let bytes = words.as_ref().map_or(0, VaultPart::bytes);
        let book = self.ledger.daybook();
        if !book.takes(bytes + entries.iter().map(|entry| entry.payload.len()).sum::<usize>()) {
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
            false => Some(self.ledger.placed(entries, hand.more_soon()).await?),
        };
        let vault = words.map(VaultPart::into_part);
        if ledger.is_none() && vault.is_none() {
            return Ok(None);
        }
        let page = tribune_storage::wal::Page { ledger, vault };
        match hand {
            Hand::Own | Hand::Midway | Hand::Next => book.write_along(page),
            Hand::Scribe => book.write_soon(page),
        }
        .map(Some)
    }
}
