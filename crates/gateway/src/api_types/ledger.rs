//! Entries of the ledger, checkpoints and notes.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_storage::store::StoredEntry;
use utoipa::ToSchema;

use crate::schema;

/// `ledger.tail`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LedgerTail {
    /// Only entries of this entity.
    pub(crate) entity_id: Option<String>,
    /// Only entries of this kind.
    pub(crate) quality: Option<String>,
    /// At most this many; 100 if not given, at most 1,000.
    pub(crate) limit: Option<usize>,
}

/// `ledger.entry` and `ledger.prove`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EntryName {
    /// Its index in the log, its CID, or the CID's first digits.
    pub(crate) entry: String,
}

/// An entry and its index in the log.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct EntryInfo {
    pub(crate) index: u64,
    #[schema(value_type = schema::Entry)]
    pub(crate) entry: Value,
}

impl EntryInfo {
    pub(crate) fn new(stored: &StoredEntry) -> Self {
        let mut line = Vec::new();
        stored.entry.write_line(&mut line);
        Self { index: stored.index, entry: serde_json::from_slice(&line).unwrap_or(Value::Null) }
    }
}

/// Entries, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Entries {
    pub(crate) entries: Vec<EntryInfo>,
}

/// The newest signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct CheckpointInfo {
    pub(crate) origin: String,
    pub(crate) size: u64,
    pub(crate) root: String,
    /// The signed note.
    pub(crate) note: String,
}

/// `ledger.note`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteWrite {
    /// 1 to 100 notes of 1 to 8,192 bytes.
    pub(crate) texts: Vec<String>,
    /// The entity whose history they belong to; not a session.
    pub(crate) entity: String,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// CIDs. If empty, `after_head` decides.
    #[serde(default)]
    pub(crate) parents: Vec<String>,
    /// Without parents: use the entity's newest entry as the parent.
    #[serde(default)]
    pub(crate) after_head: bool,
}

/// Where the notes were written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct NotesWritten {
    pub(crate) written: Vec<Written>,
}

/// Where an entry was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Written {
    pub(crate) index: u64,
    pub(crate) cid: String,
    pub(crate) seq: u64,
}
