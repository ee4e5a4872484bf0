//! The log's signing key, told by the log itself: entry 0 names the first key, and each change is attested by the key
//! that passes its office on. Who knows any one key of the line can follow it to all the others.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::entry::{Draft, EntryQuality, EntryRef, Timestamp};
use crate::note::VerifierKey;

/// The payload of a `key_change` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The key that signed until now; none at the beginning of the log.
    pub old: Option<VerifierKey>,
    pub new: VerifierKey,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    old: Option<String>,
    new: String,
}

/// Why a `key_change` entry is not a link of the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    #[error("its payload does not name an old and a new key: {0}")]
    Payload(String),
    #[error("the first entry of a log must name its first key")]
    NoBeginning,
    #[error("it begins the log again")]
    SecondBeginning,
    #[error("it passes on {named}, but {in_force} was in force")]
    NotInForce { named: String, in_force: String },
    #[error("it names the log `{found}`, which is `{origin}`")]
    OtherName { origin: String, found: String },
    #[error("it must be attested by {0}")]
    NotAttested(String),
}

impl KeyChange {
    /// The history that key changes belong to.
    pub const ENTITY: &'static str = "tribune:ledger";

    /// The entry to append, owing the attestation of [`Self::attester`].
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

    /// Who must sign the change: the old key, or the first key for itself.
    pub fn attester(&self) -> &VerifierKey {
        self.old.as_ref().unwrap_or(&self.new)
    }

    /// Reads the payload of a `key_change` entry.
    pub fn read(payload: &[u8]) -> Result<Self, KeyFault> {
        let wire: Wire =
            serde_json::from_slice(payload).map_err(|error| KeyFault::Payload(error.to_string()))?;
        let key =
            |text: String| text.parse::<VerifierKey>().map_err(|error| KeyFault::Payload(error.to_string()));
        Ok(Self { old: wire.old.map(key).transpose()?, new: key(wire.new)? })
    }
}

/// The keys of a log so far, each with the index of the entry that put it in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyLine {
    keys: Vec<(u64, VerifierKey)>,
}

impl KeyLine {
    /// Follows the entry at `index`, whose CID and proof were checked.
    pub fn follow(&mut self, index: u64, entry: &EntryRef<'_>) -> Result<(), KeyFault> {
        if entry.quality != EntryQuality::KeyChange {
            return if self.keys.is_empty() { Err(KeyFault::NoBeginning) } else { Ok(()) };
        }
        let change = KeyChange::read(entry.payload())?;
        match (self.current(), &change.old) {
            (None, None) => {}
            (None, Some(_)) => return Err(KeyFault::NoBeginning),
            (Some(_), None) => return Err(KeyFault::SecondBeginning),
            (Some(current), Some(old)) => {
                if current != old {
                    let (named, in_force) = (old.to_string(), current.to_string());
                    return Err(KeyFault::NotInForce { named, in_force });
                }
                if current.name() != change.new.name() {
                    let (origin, found) = (current.name().to_owned(), change.new.name().to_owned());
                    return Err(KeyFault::OtherName { origin, found });
                }
            }
        }
        if entry.attested_by != Some(change.attester().attestation_key()) {
            return Err(KeyFault::NotAttested(change.attester().to_string()));
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
