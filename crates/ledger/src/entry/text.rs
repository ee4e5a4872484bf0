//! Writes an entry as canonical text without building a JSON tree.
//!
//! The members of an entry have a fixed order. So the text that the CID covers, without `cid` and `proof`, is the line
//! with two ranges removed. The store keeps the members in columns and rebuilds the line from them.

use super::bounds::{FieldError, bad, check_envelope, check_id, check_parents, check_tags};
use super::read::{EntryRef, read_parents};
use super::{Draft, EntryQuality, LedgerEntry, Timestamp};
use crate::cid::{Cid, EntryHasher};
use crate::jcs;
use crate::limits::MAX_ENTRY_BYTES;
use crate::proof::{Attestation, AttestationKey, Proof};

/// An entry whose members are canonical text: what the store keeps, and what a line consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryText {
    pub cid: Cid,
    pub entity_id: String,
    pub seq: u64,
    pub target: String,
    pub quality: EntryQuality,
    pub timestamp: Timestamp,
    pub source: String,
    pub actor: String,
    /// JSON array of CIDs.
    pub parents: String,
    /// JSON array of strings.
    pub tags: String,
    /// JSON object.
    pub payload: String,
    pub attested_by: Option<AttestationKey>,
    /// JSON object.
    pub proof: Option<String>,
    /// JSON object.
    pub envelope: Option<String>,
}

/// An entry that is checked, canonical, and hashed up to its `seq`, which is not assigned yet. Assigning it is cheap
/// and cannot fail.
#[derive(Debug, Clone)]
pub struct UnsequencedEntry {
    entry: EntryText,
    /// Has hashed everything before the value of `seq`.
    head: EntryHasher,
    /// Everything after the value of `seq`.
    tail: Box<[u8]>,
    bytes: usize,
}

impl UnsequencedEntry {
    /// Checks and canonicalizes `draft`.
    pub fn new(draft: &Draft) -> Result<Self, FieldError> {
        Self::with_line(draft, &mut Vec::new())
    }

    /// The same, and appends the line to `out`, with zeros for `seq` and CID.
    pub fn with_line(draft: &Draft, out: &mut Vec<u8>) -> Result<Self, FieldError> {
        let entry = EntryText::unsequenced(draft)?;
        out.reserve(entry.payload.len() + BESIDE_PAYLOAD);
        let mut head = EntryHasher::new();
        let mut hashed = 0;
        entry.write_head(out, |piece| {
            head.update(piece);
            hashed += piece.len();
        });
        out.push(b'0');
        let from = out.len();
        entry.write_tail(out);
        let tail: Box<[u8]> = out[from..].into();
        let bytes = hashed + MAX_SEQ_DIGITS + tail.len();
        if bytes > MAX_ENTRY_BYTES {
            return Err(FieldError::TooLarge { bytes, limit: MAX_ENTRY_BYTES });
        }
        Ok(Self { entry, head, tail, bytes })
    }

    pub fn entry(&self) -> &EntryText {
        &self.entry
    }

    /// An upper bound of the bytes of the hashed text.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Assigns `seq`, the position in the history of the entity, and with it the CID.
    pub fn assign_seq(mut self, seq: u64) -> EntryText {
        self.head.update(seq.to_string().as_bytes());
        self.head.update(&self.tail);
        self.entry.seq = seq;
        self.entry.cid = self.head.finish();
        self.entry
    }
}

impl EntryText {
    /// Assigns `seq` and CID to `draft`. If it requires an attestation, the caller adds it afterwards.
    pub fn seal(draft: &Draft, seq: u64) -> Result<Self, FieldError> {
        Ok(UnsequencedEntry::new(draft)?.assign_seq(seq))
    }

    fn unsequenced(draft: &Draft) -> Result<Self, FieldError> {
        check_id("entity_id", &draft.entity_id)?;
        check_id("target", &draft.target)?;
        check_id("source", &draft.source)?;
        check_id("actor", &draft.actor)?;
        check_parents(&draft.parents)?;
        check_tags(draft.tags.iter().map(String::as_str))?;
        if let Some(envelope) = &draft.envelope {
            check_envelope(envelope)?;
        }
        let mut payload = Vec::with_capacity(1024);
        jcs::write_members(&draft.payload, &mut payload).map_err(FieldError::Payload)?;
        Ok(Self {
            cid: Cid::from_bytes([0; 32]),
            entity_id: draft.entity_id.clone(),
            seq: 0,
            target: draft.target.clone(),
            quality: draft.quality,
            timestamp: draft.timestamp,
            source: draft.source.clone(),
            actor: draft.actor.clone(),
            parents: array(draft.parents.iter().map(ToString::to_string)),
            tags: array(draft.tags.iter().map(String::as_str)),
            payload: String::from_utf8(payload).map_err(|error| bad("payload", error))?,
            attested_by: draft.attested_by,
            proof: None,
            envelope: draft.envelope.as_ref().map(|envelope| canonical("envelope", envelope)).transpose()?,
        })
    }

    /// Adds the attestation that this entry requires.
    pub fn attest(&mut self, key: &ed25519_dalek::SigningKey) -> Result<(), FieldError> {
        self.proof = Some(canonical("proof", &Proof::Attestation(Attestation::sign(&self.cid, key)))?);
        Ok(())
    }

    /// The CID of the current members.
    pub fn compute_cid(&self) -> Cid {
        let mut line = Vec::with_capacity(self.payload.len() + BESIDE_PAYLOAD);
        let mut hasher = EntryHasher::new();
        self.write_head(&mut line, |piece| hasher.update(piece));
        let seq_start = line.len();
        self.write_seq(&mut line);
        self.write_tail(&mut line);
        hasher.update(&line[seq_start..]);
        hasher.finish()
    }

    /// Appends the canonical line, without a newline.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        self.write_head(out, |_| ());
        self.write_seq(out);
        self.write_tail(out);
    }

    /// Writes everything before the value of `seq`, and passes each part that the CID covers to `hashed`.
    fn write_head(&self, out: &mut Vec<u8>, mut hashed: impl FnMut(&[u8])) {
        let from = out.len();
        string(out, r#"{"actor":"#, &self.actor);
        match &self.attested_by {
            None => raw(out, r#","attested_by":"#, "null"),
            Some(key) => string(out, r#","attested_by":"#, &key.to_string()),
        }
        hashed(&out[from..]);
        out.extend_from_slice(br#","cid":""#);
        out.extend_from_slice(&self.cid.to_text());
        out.push(b'"');
        let from = out.len();
        string(out, r#","entity_id":"#, &self.entity_id);
        raw(out, r#","envelope":"#, self.envelope.as_deref().unwrap_or("null"));
        raw(out, r#","parents":"#, &self.parents);
        raw(out, r#","payload":"#, &self.payload);
        hashed(&out[from..]);
        raw(out, r#","proof":"#, self.proof.as_deref().unwrap_or("null"));
        let from = out.len();
        raw(out, r#","quality":""#, self.quality.as_str());
        out.extend_from_slice(br#"","seq":"#);
        hashed(&out[from..]);
    }

    fn write_seq(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.seq.to_string().as_bytes());
    }

    /// Writes everything after the value of `seq`.
    fn write_tail(&self, out: &mut Vec<u8>) {
        string(out, r#","source":"#, &self.source);
        raw(out, r#","tags":"#, &self.tags);
        string(out, r#","target":"#, &self.target);
        out.extend_from_slice(br#","timestamp":""#);
        self.timestamp.write(out);
        out.extend_from_slice(b"\"}");
    }

    /// The CIDs in `parents`, which is always a canonical array of CIDs.
    pub fn parent_cids(&self) -> Vec<Cid> {
        read_parents(&self.parents).unwrap_or_default()
    }

    /// Parses all members.
    pub fn to_entry(&self) -> Result<LedgerEntry, FieldError> {
        let mut line = Vec::with_capacity(1024);
        self.write_line(&mut line);
        EntryRef::read(&line)?.to_entry()
    }
}

/// Appends a member whose value is canonical JSON.
fn raw(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value.as_bytes());
}

/// Appends a member whose value is a string.
fn string(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    jcs::write_string(value, out);
}

/// Digits of the largest `seq`.
const MAX_SEQ_DIGITS: usize = 16;

/// About the bytes of a line without its payload. Used to reserve capacity.
const BESIDE_PAYLOAD: usize = 512;

fn canonical(field: &'static str, value: &impl serde::Serialize) -> Result<String, FieldError> {
    let value = serde_json::to_value(value).map_err(|error| bad(field, error))?;
    let text = jcs::to_vec(&value).map_err(|error| bad(field, error))?;
    String::from_utf8(text).map_err(|error| bad(field, error))
}

/// The canonical JSON array of these strings.
fn array(items: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut out = Vec::with_capacity(2 + items.size_hint().0 * (Cid::TEXT_BYTES + 3));
    out.push(b'[');
    for item in items {
        if out.len() > 1 {
            out.push(b',');
        }
        jcs::write_string(item.as_ref(), &mut out);
    }
    out.push(b']');
    // INVARIANT: only whole strings and ASCII were written.
    String::from_utf8(out).unwrap_or_default()
}

impl LedgerEntry {
    /// The canonical members of this entry. The CID is copied and not checked.
    pub fn to_text(&self) -> Result<EntryText, FieldError> {
        let draft = Draft {
            entity_id: self.entity_id.clone(),
            target: self.target.clone(),
            quality: self.quality,
            timestamp: self.timestamp,
            source: self.source.clone(),
            actor: self.actor.clone(),
            parents: self.parents.clone(),
            tags: self.tags.clone(),
            payload: self.payload.clone(),
            attested_by: self.attested_by,
            envelope: self.envelope.clone(),
        };
        let mut text = EntryText::unsequenced(&draft)?;
        text.seq = self.seq;
        text.cid = self.cid;
        text.proof = match &self.proof {
            Proof::Null => None,
            proof => Some(canonical("proof", proof)?),
        };
        Ok(text)
    }
}
