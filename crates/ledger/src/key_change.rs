//! The history of the log's signing key, recorded in the log itself. Entry 0 names the first key, and the old key
//! attests each change. A verifier that trusts any one key of the history can derive all others.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::entry::{Draft, EntryQuality, EntryRef, Timestamp};
use crate::note::VerifierKey;

/// The payload of a `key_change` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The key that signed until now; `None` in entry 0.
    pub old: Option<VerifierKey>,
    pub new: VerifierKey,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyChangePayload {
    old: Option<String>,
    new: String,
}

/// Why a `key_change` entry does not continue the key history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyChangeError {
    #[error("its payload does not name an old and a new key: {0}")]
    Payload(String),
    #[error("the first entry of a log must name its first key")]
    MissingFirstKey,
    #[error("it names a first key, but the log has one already")]
    SecondFirstKey,
    #[error("it replaces the key {named}, but {in_force} was in force")]
    NotInForce { named: String, in_force: String },
    #[error("it names the log `{found}`, which is `{origin}`")]
    NameChanged { origin: String, found: String },
    #[error("it must be attested by {0}")]
    NotAttested(String),
}

impl KeyChange {
    /// The entity of key changes.
    pub const ENTITY: &'static str = "tribune:ledger";

    /// The entry to append. It requires the attestation of [`Self::attester`].
    pub fn draft(&self, timestamp: Timestamp, actor: &str) -> Draft {
        let mut payload = Map::new();
        payload.insert("old".into(), self.old.as_ref().map_or(Value::Null, |key| key.to_string().into()));
        payload.insert("new".into(), self.new.to_string().into());
        Draft {
            entity_id: Self::ENTITY.into(),
            target: self.new.name().into(),
            quality: EntryQuality::KeyChange,
            timestamp,
            source: Self::ENTITY.into(),
            actor: actor.into(),
            parents: Vec::new(),
            tags: Vec::new(),
            payload,
            attested_by: Some(self.attester().attestation_key()),
            envelope: None,
        }
    }

    /// The key that must attest the change: the old key, or the first key itself.
    pub fn attester(&self) -> &VerifierKey {
        self.old.as_ref().unwrap_or(&self.new)
    }

    /// Reads the payload of a `key_change` entry.
    pub fn read(payload: &[u8]) -> Result<Self, KeyChangeError> {
        let wire: KeyChangePayload =
            serde_json::from_slice(payload).map_err(|error| KeyChangeError::Payload(error.to_string()))?;
        let key = |text: String| {
            text.parse::<VerifierKey>().map_err(|error| KeyChangeError::Payload(error.to_string()))
        };
        Ok(Self { old: wire.old.map(key).transpose()?, new: key(wire.new)? })
    }
}

/// The keys of a log so far, each with the index of the entry that put it in force. Used by the verifier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyHistory {
    keys: Vec<(u64, VerifierKey)>,
}

impl KeyHistory {
    /// Applies the entry at `index`, whose CID and proof were checked.
    pub fn apply(&mut self, index: u64, entry: &EntryRef<'_>) -> Result<(), KeyChangeError> {
        if entry.quality != EntryQuality::KeyChange {
            return if self.keys.is_empty() { Err(KeyChangeError::MissingFirstKey) } else { Ok(()) };
        }
        let change = KeyChange::read(entry.payload())?;
        match (self.current(), &change.old) {
            (None, None) => {}
            (None, Some(_)) => return Err(KeyChangeError::MissingFirstKey),
            (Some(_), None) => return Err(KeyChangeError::SecondFirstKey),
            (Some(current), Some(old)) => {
                if current != old {
                    let (named, in_force) = (old.to_string(), current.to_string());
                    return Err(KeyChangeError::NotInForce { named, in_force });
                }
                if current.name() != change.new.name() {
                    let (origin, found) = (current.name().to_owned(), change.new.name().to_owned());
                    return Err(KeyChangeError::NameChanged { origin, found });
                }
            }
        }
        if entry.attested_by != Some(change.attester().attestation_key()) {
            return Err(KeyChangeError::NotAttested(change.attester().to_string()));
        }
        self.keys.push((index, change.new));
        Ok(())
    }

    /// The key in force now.
    pub fn current(&self) -> Option<&VerifierKey> {
        self.keys.last().map(|(_, key)| key)
    }

    /// The key that signs checkpoints of `size` entries.
    pub fn at_size(&self, size: u64) -> Option<&VerifierKey> {
        self.keys.iter().rev().find(|(index, _)| *index < size).map(|(_, key)| key)
    }

    pub fn contains(&self, key: &VerifierKey) -> bool {
        self.keys.iter().any(|(_, known)| known == key)
    }
}
