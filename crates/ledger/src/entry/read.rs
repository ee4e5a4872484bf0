//! Reads an entry from its canonical line: checks every field and allocates only what is needed.

use super::bounds::{FieldError, bad, check_envelope, check_id, check_parents, check_tags};
use super::{EntryQuality, LedgerEntry, Timestamp};
use crate::cid::Cid;
use crate::envelope::Envelope;
use crate::jcs::scan::{self, MemberSpan, NotCanonical, unescape};
use crate::limits::MAX_ENTRY_BYTES;
use crate::proof::{AttestationKey, Proof};

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

/// An entry that borrows from its canonical line. Every field was checked, except that the CID matches the content.
#[derive(Debug, Clone)]
pub struct EntryRef<'a> {
    line: &'a [u8],
    members: Vec<MemberSpan>,
    pub cid: Cid,
    pub quality: EntryQuality,
    pub seq: u64,
    pub attested_by: Option<AttestationKey>,
    pub proof: Proof,
    pub parents: Vec<Cid>,
    /// Canonical and still escaped; equal texts are equal ids.
    pub entity_id: &'a str,
}

impl<'a> EntryRef<'a> {
    /// Reads one canonical line, without its newline.
    pub fn read(line: &'a [u8]) -> Result<Self, FieldError> {
        if line.len() > MAX_ENTRY_BYTES + MAX_CID_AND_PROOF_BYTES {
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

    /// The CID of the content of the line, which may differ from the one it claims.
    pub fn compute_cid(&self) -> Cid {
        // `cid` is member 2 and `proof` is member 7. Neither is first or last, so each is removed with the comma after
        // it.
        let start = |i: usize| self.members[i].start();
        Cid::of_entry(&[&self.line[..start(2)], &self.line[start(3)..start(7)], &self.line[start(8)..]])
    }

    /// The payload's canonical text.
    pub fn payload(&self) -> &'a [u8] {
        &self.line[self.members[6].value.clone()]
    }

    /// Parses all members.
    pub fn to_entry(&self) -> Result<LedgerEntry, FieldError> {
        serde_json::from_slice(self.line).map_err(|error| bad("line", error))
    }
}

/// The most bytes of `cid` and `proof`, which the entry limit does not count.
const MAX_CID_AND_PROOF_BYTES: usize = 64 * 1024;

/// The text between the quotes of a canonical JSON string.
fn unquote<'t>(field: &'static str, value: &'t str) -> Result<&'t str, FieldError> {
    value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or_else(|| bad(field, "it must be a string"))
}

fn typed<'t, T: serde::Deserialize<'t>>(field: &'static str, json: &'t str) -> Result<T, FieldError> {
    serde_json::from_str(json).map_err(|error| bad(field, error))
}

pub(super) fn read_parents(json: &str) -> Result<Vec<Cid>, FieldError> {
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

/// Checks the tags in a canonical array. Only an array with escapes needs parsing.
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
    // Without escapes, quotes occur only around items, so `","` occurs only between two of them.
    let items = unquote("tags", inner)?;
    if items.split("\",\"").any(|item| item.contains('"')) {
        return Err(bad("tags", "each must be a string"));
    }
    check_tags(items.split("\",\"").collect::<Vec<_>>().into_iter())
}

/// Checks an id in its escaped form.
fn check_quoted_id(field: &'static str, inner: &str) -> Result<(), FieldError> {
    check_id(field, &unescape(inner))
}
