//! The ledger: read entries, prove them, write notes, rotate the signing key.

use std::sync::Arc;

use serde_json::{Map, Value};
use tribune_ledger::bundle::ProofBundle;
use tribune_ledger::tree::prove;
use tribune_ledger::{Checkpoint, Cid, Draft, EntryQuality};
use tribune_records::ledger_payloads::SESSION_ENTITIES;
use tribune_storage::store::{EntryFilter, EntryLookup, Reader, StoreError, StoredEntry};

use super::{Answer, page_limit};
use crate::api::Api;
use crate::api_types::{CheckpointInfo, Entries, EntryInfo, LedgerTail, NoteWrite, NotesWritten, Written};
use crate::error::ApiError;
use crate::principal::Principal;

/// Notes in one request.
const MAX_NOTES: usize = 100;

/// Bytes of one note: a paragraph.
const MAX_NOTE_BYTES: usize = 8 * 1024;

impl Api {
    pub(crate) async fn ledger_tail(&self, who: &Principal, tail: LedgerTail) -> Answer<Entries> {
        who.operator()?;
        let limit = page_limit(tail.limit)?;
        let quality = match tail.quality {
            None => None,
            Some(word) => Some(
                word.parse::<EntryQuality>().map_err(|_| ApiError::params("no entry has this quality"))?,
            ),
        };
        let filter = EntryFilter { entity_id: tail.entity_id, quality };
        let entries = self.readers.read(move |reader| reader.tail(&filter, limit)).await?;
        Ok(Entries { entries: entries.iter().map(EntryInfo::new).collect() })
    }

    pub(crate) async fn ledger_entry(&self, who: &Principal, name: String) -> Answer<EntryInfo> {
        who.operator()?;
        self.readers
            .read(move |reader| Ok(find(reader, &name)?.map(|stored| EntryInfo::new(&stored))))
            .await?
    }

    pub(crate) async fn ledger_checkpoint(&self, who: &Principal) -> Answer<CheckpointInfo> {
        who.operator()?;
        let note = self.readers.read(|reader| reader.checkpoint()).await?;
        let parsed = Checkpoint::parse(&note).map_err(|error| ApiError::new("storage", error.to_string()))?;
        Ok(CheckpointInfo { origin: parsed.origin, size: parsed.size, root: parsed.root.to_string(), note })
    }

    /// A C2SP tlog-proof that an entry is in the log.
    pub(crate) async fn ledger_prove(&self, who: &Principal, name: String) -> Answer<String> {
        who.operator()?;
        self.readers
            .read(move |reader| {
                let stored = match find(reader, &name)? {
                    Ok(stored) => stored,
                    Err(error) => return Ok(Err(error)),
                };
                let checkpoint = reader.checkpoint()?;
                let mut entry = Vec::new();
                stored.entry.write_line(&mut entry);
                let path = match prove::inclusion(reader, stored.index, reader.size()?) {
                    Ok(path) => path,
                    Err(error) => return Ok(Err(ApiError::new("storage", error.to_string()))),
                };
                let bundle = ProofBundle { entry, index: stored.index, path, checkpoint };
                Ok(Ok(bundle.to_string()))
            })
            .await?
    }

    pub(crate) async fn ledger_note(&self, who: &Principal, note: NoteWrite) -> Answer<NotesWritten> {
        who.operator()?;
        self.takes_work()?;
        if note.texts.is_empty() || note.texts.len() > MAX_NOTES {
            return Err(ApiError::params(format!("a request holds 1 to {MAX_NOTES} notes")));
        }
        if note.entity.starts_with(SESSION_ENTITIES) {
            return Err(ApiError::params(format!(
                "entities that begin with `{SESSION_ENTITIES}` are written by their sessions only: name another entity"
            )));
        }
        if let Some(bad) = note.texts.iter().find(|text| text.is_empty() || text.len() > MAX_NOTE_BYTES) {
            return Err(ApiError::params(format!(
                "a note has 1 to {MAX_NOTE_BYTES} bytes; this one has {}",
                bad.len()
            )));
        }
        let mut parents: Vec<Cid> = Vec::with_capacity(note.parents.len());
        for parent in &note.parents {
            let cid = parent
                .parse()
                .map_err(|_| ApiError::params("a parent is not a CID: `b3:` and 64 hex digits"))?;
            parents.push(cid);
        }
        if parents.is_empty() && note.after_head {
            let entity = note.entity.clone();
            let head = self.readers.read(move |reader| reader.head(&entity)).await?;
            parents.extend(head.map(|head| head.entry.cid));
        }
        let clock = &self.sessions.governance().storage.clock;
        let draft = |text: &String| Draft {
            entity_id: note.entity.clone(),
            target: note.entity.clone(),
            quality: EntryQuality::Note,
            timestamp: clock.now(),
            source: note.entity.clone(),
            actor: "operator".to_owned(),
            parents: parents.clone(),
            tags: note.tags.clone(),
            payload: Map::from_iter([("text".to_owned(), Value::from(text.clone()))]),
            attested_by: None,
            envelope: None,
        };
        let drafts: Vec<Draft> = note.texts.iter().map(draft).collect();
        let appended = self.sessions.governance().storage.ledger.append_all(&drafts).await?;
        let written = appended
            .iter()
            .map(|entry| Written { index: entry.index, cid: entry.cid.to_string(), seq: entry.seq })
            .collect();
        Ok(NotesWritten { written })
    }

    /// Rotates the signing key of the log. Returns the new public key and the entry that records the rotation.
    pub(crate) async fn rotate_key(&self, who: &Principal) -> Answer<(String, Written)> {
        who.operator()?;
        self.takes_work()?;
        let store = Arc::clone(&self.store);
        let clock = Arc::clone(&self.sessions.governance().storage.clock);
        let rotated = tokio::task::spawn_blocking(move || store.rotate_key(&*clock)).await;
        let (key, entry) = rotated.map_err(|error| ApiError::new("internal", error.to_string()))??;
        Ok((key.to_string(), Written { index: entry.index, cid: entry.cid.to_string(), seq: entry.seq }))
    }
}

fn find(reader: &Reader, name: &str) -> Result<Answer<StoredEntry>, StoreError> {
    Ok(match reader.lookup(name)? {
        EntryLookup::Found(stored) => Ok(*stored),
        EntryLookup::Nothing(_) => Err(ApiError::new(
            "not_found",
            "there is no such entry: name it by its index, its CID or the CID's first digits",
        )),
        EntryLookup::Several(_) => Err(ApiError::params("several entries match: give more digits")),
    })
}
