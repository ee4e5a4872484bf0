//! An entry as canonical text, written and read without building a JSON tree.
//!
//! The members of an entry stand in a fixed order, so the text without `cid` and `proof` (what the CID covers) is the
//! line with two pieces cut out. The store keeps the members in columns and puts the line together again.

use std::borrow::Cow;

use super::{Draft, EntryQuality, LedgerEntry, Timestamp};
use crate::cid::{Cid, EntryHasher};
use crate::envelope::Envelope;
use crate::jcs::scan::{self, Member, NotCanonical, unescape};
use crate::jcs::{self, JcsError};
use crate::limits::{MAX_AUDIENCE, MAX_ENTRY_BYTES, MAX_ID_BYTES, MAX_PARENTS, MAX_TAG_BYTES, MAX_TAGS};
use crate::proof::{Attestation, AttestationKey, Proof};

/// The members of an entry in canonical order.
const MEMBERS: [&str; 14] = [
    "actor",
    "attested_by",
    "cid",
    "entity_id",
    "envelope",
    "parents",
    "payload",
    "proof",
    "quality",
    "seq",
    "source",
    "tags",
    "target",
    "timestamp",
];

/// Why a value is not an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("the entry has {bytes} bytes; the limit is {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error(transparent)]
    NotCanonical(#[from] NotCanonical),
    #[error("`{0}` is not a field of an entry, or stands where another is missing")]
    UnknownField(String),
    #[error("`{0}` is missing")]
    MissingField(&'static str),
    #[error("`{field}`: {what}")]
    Bad { field: &'static str, what: String },
    #[error("`payload`: {0}")]
    Payload(JcsError),
}

fn bad(field: &'static str, what: impl ToString) -> FieldError {
    FieldError::Bad { field, what: what.to_string() }
}

/// An entry whose members are canonical text already: what the store keeps, and what a line is made of.
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

/// An entry that is checked, canonical and hashed as far as its place allows. Placing it is cheap, and cannot fail.
#[derive(Debug, Clone)]
pub struct Unplaced {
    entry: EntryText,
    /// Everything before the place went through it.
    head: EntryHasher,
    /// Everything behind the place.
    tail: Vec<u8>,
    bytes: usize,
}

impl Unplaced {
    /// Checks and canonicalises `draft`.
    pub fn new(draft: &Draft) -> Result<Self, FieldError> {
        let entry = EntryText::without_place(draft)?;
        let (mut text, mut tail) = (Vec::with_capacity(entry.payload.len() + 512), Vec::with_capacity(256));
        entry.write_head(&mut text, Cover::Hashed);
        entry.write_tail(&mut tail);
        let bytes = text.len() + LONGEST_PLACE + tail.len();
        if bytes > MAX_ENTRY_BYTES {
            return Err(FieldError::TooLarge { bytes, limit: MAX_ENTRY_BYTES });
        }
        let mut head = EntryHasher::new();
        head.update(&text);
        Ok(Self { entry, head, tail, bytes })
    }

    pub fn entry(&self) -> &EntryText {
        &self.entry
    }

    /// Bytes of the hashed text at most.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the entry its place in its entity's history, and with it its name.
    pub fn place(mut self, seq: u64) -> EntryText {
        self.head.update(seq.to_string().as_bytes());
        self.head.update(&self.tail);
        self.entry.seq = seq;
        self.entry.cid = self.head.finish();
        self.entry
    }
}

impl EntryText {
    /// Gives `draft` its place in its entity's history and its name. An attestation it owes is still to be added.
    pub fn seal(draft: &Draft, seq: u64) -> Result<Self, FieldError> {
        Ok(Unplaced::new(draft)?.place(seq))
    }

    fn without_place(draft: &Draft) -> Result<Self, FieldError> {
        check_id("entity_id", &draft.entity_id)?;
        check_id("target", &draft.target)?;
        check_id("source", &draft.source)?;
        check_id("actor", &draft.actor)?;
        check_parents(&draft.parents)?;
        check_tags(draft.tags.iter().map(String::as_str))?;
        if let Some(envelope) = &draft.envelope {
            check_envelope(envelope)?;
        }
        let mut payload = Vec::with_capacity(512);
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

    /// Adds the attestation this entry owes.
    pub fn attest(&mut self, key: &ed25519_dalek::SigningKey) -> Result<(), FieldError> {
        self.proof = Some(canonical("proof", &Proof::Attestation(Attestation::sign(&self.cid, key)))?);
        Ok(())
    }

    /// The CID that the members, as they are now, have.
    pub fn compute_cid(&self) -> Cid {
        let mut text = Vec::with_capacity(self.payload.len() + 512);
        self.write(&mut text, Cover::Hashed);
        Cid::of_entry(&[&text])
    }

    /// Appends the canonical line, without a newline.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        self.write(out, Cover::Whole);
    }

    fn write(&self, out: &mut Vec<u8>, cover: Cover) {
        self.write_head(out, cover);
        out.extend_from_slice(self.seq.to_string().as_bytes());
        self.write_tail(out);
    }

    /// Everything before the value of `seq`.
    fn write_head(&self, out: &mut Vec<u8>, cover: Cover) {
        string(out, r#"{"actor":"#, &self.actor);
        match &self.attested_by {
            None => raw(out, r#","attested_by":"#, "null"),
            Some(key) => string(out, r#","attested_by":"#, &key.to_string()),
        }
        if cover == Cover::Whole {
            out.extend_from_slice(br#","cid":""#);
            out.extend_from_slice(&self.cid.to_text());
            out.push(b'"');
        }
        string(out, r#","entity_id":"#, &self.entity_id);
        raw(out, r#","envelope":"#, self.envelope.as_deref().unwrap_or("null"));
        raw(out, r#","parents":"#, &self.parents);
        raw(out, r#","payload":"#, &self.payload);
        if cover == Cover::Whole {
            raw(out, r#","proof":"#, self.proof.as_deref().unwrap_or("null"));
        }
        raw(out, r#","quality":""#, self.quality.as_str());
        out.extend_from_slice(br#"","seq":"#);
    }

    /// Everything behind the value of `seq`.
    fn write_tail(&self, out: &mut Vec<u8>) {
        string(out, r#","source":"#, &self.source);
        raw(out, r#","tags":"#, &self.tags);
        string(out, r#","target":"#, &self.target);
        raw(out, r#","timestamp":""#, &self.timestamp.to_string());
        out.extend_from_slice(b"\"}");
    }

    /// The CIDs in `parents`. It is canonical, so what does not read as a CID is not there.
    pub fn parent_cids(&self) -> Vec<Cid> {
        read_parents(&self.parents).unwrap_or_default()
    }

    /// The entry with its members parsed.
    pub fn to_entry(&self) -> Result<LedgerEntry, FieldError> {
        let mut line = Vec::with_capacity(1024);
        self.write_line(&mut line);
        EntryRef::read(&line)?.to_entry()
    }
}

/// Appends a member whose value is canonical JSON already.
fn raw(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value.as_bytes());
}

/// Appends a member whose value is a string.
fn string(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    jcs::write_string(value, out);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cover {
    /// Every member.
    Whole,
    /// What the CID is computed over.
    Hashed,
}

/// An entry read from its canonical line, borrowing from it. Every field was checked, but the CID was not yet.
#[derive(Debug, Clone)]
pub struct EntryRef<'a> {
    line: &'a [u8],
    members: Vec<Member>,
    pub cid: Cid,
    pub quality: EntryQuality,
    pub seq: u64,
    pub attested_by: Option<AttestationKey>,
    pub proof: Proof,
    pub parents: Vec<Cid>,
    /// Canonical and still escaped: equal texts are equal ids.
    pub entity_id: &'a str,
}

impl<'a> EntryRef<'a> {
    /// Reads one canonical line, without its newline.
    pub fn read(line: &'a [u8]) -> Result<Self, FieldError> {
        if line.len() > MAX_ENTRY_BYTES + PROOF_ROOM {
            return Err(FieldError::TooLarge { bytes: line.len(), limit: MAX_ENTRY_BYTES });
        }
        let text = std::str::from_utf8(line)
            .map_err(|error| NotCanonical { at: error.valid_up_to(), what: "it is not UTF-8" })?;
        let members = scan::object(text)?;
        for (i, name) in MEMBERS.into_iter().enumerate() {
            match members.get(i).map(|member| &line[member.key.clone()]) {
                Some(key) if key == name.as_bytes() => {}
                Some(key) if MEMBERS.iter().all(|known| known.as_bytes() != key) => {
                    return Err(FieldError::UnknownField(String::from_utf8_lossy(key).into_owned()));
                }
                _ => return Err(FieldError::MissingField(name)),
            }
        }
        if let Some(extra) = members.get(MEMBERS.len()) {
            let key = String::from_utf8_lossy(&line[extra.key.clone()]).into_owned();
            return Err(FieldError::UnknownField(key));
        }
        let start = |i: usize| members[i].start();
        let hashed = line.len() - (start(3) - start(2)) - (start(8) - start(7));
        if hashed > MAX_ENTRY_BYTES {
            return Err(FieldError::TooLarge { bytes: hashed, limit: MAX_ENTRY_BYTES });
        }
        let value = |i: usize| &text[members[i].value.clone()];

        check_quoted_id("actor", unquote("actor", value(0))?)?;
        let attested_by = match value(1) {
            "null" => None,
            key => Some(unquote("attested_by", key)?.parse().map_err(|error| bad("attested_by", error))?),
        };
        let cid = Cid::from_text(unquote("cid", value(2))?.as_bytes()).map_err(|error| bad("cid", error))?;
        let entity_id = unquote("entity_id", value(3))?;
        check_quoted_id("entity_id", entity_id)?;
        if value(4) != "null" {
            check_envelope(&typed::<Envelope>("envelope", value(4))?)?;
        }
        let parents = read_parents(value(5))?;
        if !value(6).starts_with('{') {
            return Err(bad("payload", "it must be an object"));
        }
        let proof = match value(7) {
            "null" => Proof::Null,
            proof => typed("proof", proof)?,
        };
        let quality = unquote("quality", value(8))?.parse().map_err(|error| bad("quality", error))?;
        let seq = value(9).parse().map_err(|_| bad("seq", "it must be a whole number from 0"))?;
        check_quoted_id("source", unquote("source", value(10))?)?;
        read_tags(value(11))?;
        check_quoted_id("target", unquote("target", value(12))?)?;
        Timestamp::check(unquote("timestamp", value(13))?).map_err(|error| bad("timestamp", error))?;
        Ok(Self { line, cid, quality, seq, attested_by, proof, parents, entity_id, members })
    }

    /// The CID that the line has, whatever it claims.
    pub fn compute_cid(&self) -> Cid {
        // `cid` is member 2 and `proof` member 7; neither is first or last, so each is cut together with the comma
        // after it.
        let start = |i: usize| self.members[i].start();
        Cid::of_entry(&[&self.line[..start(2)], &self.line[start(3)..start(7)], &self.line[start(8)..]])
    }

    /// The payload's canonical text.
    pub fn payload(&self) -> &'a [u8] {
        &self.line[self.members[6].value.clone()]
    }

    /// The entry with every member parsed.
    pub fn to_entry(&self) -> Result<LedgerEntry, FieldError> {
        serde_json::from_slice(self.line).map_err(|error| bad("line", error))
    }
}

/// Digits of the largest place.
const LONGEST_PLACE: usize = 16;

/// Room for `cid` and `proof`, which the entry limit does not count: 80 bytes of CID and a signature, generously.
const PROOF_ROOM: usize = 64 * 1024;

/// What stands between the quotes of a canonical JSON string.
fn unquote<'t>(field: &'static str, value: &'t str) -> Result<&'t str, FieldError> {
    value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or_else(|| bad(field, "it must be a string"))
}

fn typed<'t, T: serde::Deserialize<'t>>(field: &'static str, json: &'t str) -> Result<T, FieldError> {
    serde_json::from_str(json).map_err(|error| bad(field, error))
}

fn canonical(field: &'static str, value: &impl serde::Serialize) -> Result<String, FieldError> {
    let value = serde_json::to_value(value).map_err(|error| bad(field, error))?;
    let text = jcs::to_vec(&value).map_err(|error| bad(field, error))?;
    String::from_utf8(text).map_err(|error| bad(field, error))
}

/// The canonical JSON array of these strings.
fn array(items: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut out = vec![b'['];
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

fn read_parents(json: &str) -> Result<Vec<Cid>, FieldError> {
    let inner = json
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .ok_or_else(|| bad("parents", "it must be an array"))?;
    let parents = match inner {
        "" => Vec::new(),
        inner => inner
            .split(',')
            .map(|item| {
                Cid::from_text(unquote("parents", item)?.as_bytes()).map_err(|error| bad("parents", error))
            })
            .collect::<Result<_, _>>()?,
    };
    check_parents(&parents)?;
    Ok(parents)
}

/// Checks the tags in a canonical array; only one with escapes has to be taken apart.
fn read_tags(json: &str) -> Result<(), FieldError> {
    let inner = json
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .ok_or_else(|| bad("tags", "it must be an array"))?;
    if inner.is_empty() {
        return Ok(());
    }
    if inner.contains('\\') {
        return check_tags(typed::<Vec<String>>("tags", json)?.iter().map(String::as_str));
    }
    // Without escapes, quotes stand only around the items, so `","` stands only between two of them.
    let items = unquote("tags", inner)?;
    if items.split("\",\"").any(|item| item.contains('"')) {
        return Err(bad("tags", "each must be a string"));
    }
    check_tags(items.split("\",\"").collect::<Vec<_>>().into_iter())
}

fn check_id(field: &'static str, id: &str) -> Result<(), FieldError> {
    match id.len() {
        0 => Err(bad(field, "it is empty")),
        // It is shown in tables and log lines.
        _ if has_control(id) => Err(bad(field, "it has a control character")),
        1..=MAX_ID_BYTES => Ok(()),
        bytes => Err(bad(field, format_args!("it has {bytes} bytes; the limit is {MAX_ID_BYTES}"))),
    }
}

/// The same for an id as it stands in canonical text.
fn check_quoted_id(field: &'static str, inner: &str) -> Result<(), FieldError> {
    check_id(field, &unescape(inner))
}

fn has_control(text: &str) -> bool {
    // C1 controls begin with 0xC2; without that byte only ASCII has to be looked at.
    let suspicious =
        text.bytes().fold(false, |found, byte| found | (byte < 0x20) | (byte == 0x7F) | (byte == 0xC2));
    suspicious && text.chars().any(char::is_control)
}

fn check_parents(parents: &[Cid]) -> Result<(), FieldError> {
    if parents.len() > MAX_PARENTS {
        return Err(bad("parents", format_args!("there are {}; the limit is {MAX_PARENTS}", parents.len())));
    }
    match parents.iter().enumerate().find(|(i, parent)| parents[..*i].contains(parent)) {
        Some((_, twice)) => Err(bad("parents", format_args!("{twice} stands there twice"))),
        None => Ok(()),
    }
}

fn check_tags<'t>(tags: impl ExactSizeIterator<Item = &'t str>) -> Result<(), FieldError> {
    if tags.len() > MAX_TAGS {
        return Err(bad("tags", format_args!("there are {}; the limit is {MAX_TAGS}", tags.len())));
    }
    for tag in tags {
        if has_control(tag) {
            return Err(bad("tags", "a tag has a control character"));
        }
        if tag.is_empty() || tag.len() > MAX_TAG_BYTES {
            return Err(bad(
                "tags",
                format_args!("a tag has 1 to {MAX_TAG_BYTES} bytes, this one {}", tag.len()),
            ));
        }
    }
    Ok(())
}

fn check_envelope(envelope: &Envelope) -> Result<(), FieldError> {
    if envelope.audience.len() > MAX_AUDIENCE {
        return Err(bad(
            "envelope",
            format_args!("its audience is {}; the limit is {MAX_AUDIENCE}", envelope.audience.len()),
        ));
    }
    Ok(())
}

impl LedgerEntry {
    /// The canonical members of this entry. Its CID is taken as it is.
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
        let mut text = EntryText::without_place(&draft)?;
        text.seq = self.seq;
        text.cid = self.cid;
        text.proof = match &self.proof {
            Proof::Null => None,
            proof => Some(canonical("proof", proof)?),
        };
        Ok(text)
    }
}
