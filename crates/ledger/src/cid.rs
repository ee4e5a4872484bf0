//! Content ids (CIDs): the id of an object is a hash of its content.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The kind of object that is hashed. Each kind has its own BLAKE3 key-derivation context, so that a hash of one kind
/// is never valid for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// A ledger entry without `cid` and `proof`.
    Entry,
    /// A salted commitment to content.
    Commitment,
    /// A constitution with its mandates.
    Constitution,
    /// The id of a session in the ledger.
    Session,
    /// The exact action that a person approves.
    Action,
    /// The id of an approval.
    Approval,
}

impl Domain {
    /// The context string; it is part of the format and never changes.
    pub const fn context(self) -> &'static str {
        match self {
            Self::Entry => "tribune 2026 ledger entry v1",
            Self::Commitment => "tribune 2026 content commitment v1",
            Self::Constitution => "tribune 2026 constitution bundle v1",
            Self::Session => "tribune 2026 session id v1",
            Self::Action => "tribune 2026 action digest v1",
            Self::Approval => "tribune 2026 approval id v1",
        }
    }

    /// BLAKE3 in key-derivation mode over the concatenated `parts`.
    pub fn hash(self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = self.hasher();
        for part in parts {
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// A hasher with the context already derived, because deriving it costs as much as hashing a short entry.
    fn hasher(self) -> blake3::Hasher {
        static ENTRY: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key(Domain::Entry.context()));
        static COMMITMENT: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key(Domain::Commitment.context()));
        static CONSTITUTION: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key(Domain::Constitution.context()));
        static SESSION: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key(Domain::Session.context()));
        match self {
            Self::Entry => ENTRY.clone(),
            Self::Commitment => COMMITMENT.clone(),
            Self::Constitution => CONSTITUTION.clone(),
            Self::Session => SESSION.clone(),
            // These are rare, so their context is derived each time.
            Self::Action | Self::Approval => blake3::Hasher::new_derive_key(self.context()),
        }
    }
}

/// Computes a CID incrementally. It may move between threads.
#[derive(Clone)]
pub struct EntryHasher(Box<blake3::Hasher>);

impl EntryHasher {
    pub fn new() -> Self {
        Self(Box::new(Domain::Entry.hasher()))
    }

    pub fn update(&mut self, text: &[u8]) {
        self.0.update(text);
    }

    pub fn finish(&self) -> Cid {
        Cid(*self.0.finalize().as_bytes())
    }
}

impl Default for EntryHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for EntryHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntryHasher(…)")
    }
}

/// The id of a ledger entry: `b3:` and 64 lowercase hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid([u8; 32]);

/// Hashes CIDs for hash tables. CIDs are hashes already; a random key keeps an attacker who searches for CIDs from
/// choosing their slots.
#[derive(Debug, Clone)]
pub struct CidBuildHasher(u64);

impl Default for CidBuildHasher {
    fn default() -> Self {
        Self(std::hash::RandomState::new().hash_one(0_u8))
    }
}

impl BuildHasher for CidBuildHasher {
    type Hasher = CidHasher;

    fn build_hasher(&self) -> CidHasher {
        CidHasher(self.0)
    }
}

/// See [`CidBuildHasher`].
#[derive(Debug)]
pub struct CidHasher(u64);

impl Hasher for CidHasher {
    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.as_chunks::<8>().0 {
            let product = u128::from(self.0 ^ u64::from_le_bytes(*word)) * 0x9E37_79B9_7F4A_7C15;
            self.0 = (product >> 64) as u64 ^ product as u64;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A text that is not a CID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a CID is `b3:` followed by 64 lowercase hex digits")]
pub struct NotACid;

impl Cid {
    /// Length of the text form.
    pub const TEXT_BYTES: usize = 67;

    /// The CID of an entry, from its canonical form without `cid` and `proof`, in parts.
    pub fn of_entry(canonical: &[&[u8]]) -> Self {
        Self(Domain::Entry.hash(canonical))
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 16 of the 32 bytes.
    pub(crate) fn first_half(&self) -> u128 {
        u128::from_le_bytes(*self.0.first_chunk().unwrap_or(&[0; 16]))
    }

    /// Reads the text form without going through `str`.
    pub fn from_text(text: &[u8]) -> Result<Self, NotACid> {
        let hex = text.strip_prefix(b"b3:").ok_or(NotACid)?;
        hex32(hex).map(Self).ok_or(NotACid)
    }

    /// The text form, without allocation.
    pub fn to_text(self) -> [u8; Self::TEXT_BYTES] {
        let mut text = [0; Self::TEXT_BYTES];
        text[..3].copy_from_slice(b"b3:");
        for (pair, byte) in text[3..].chunks_exact_mut(2).zip(self.0) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        text
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The value of each byte as a lowercase hex digit, or 255.
const DIGITS: [u8; 256] = {
    let mut digits = [255; 256];
    let mut i = 0;
    while i < 16 {
        digits[HEX[i] as usize] = i as u8;
        i += 1;
    }
    digits
};

/// Decodes exactly 64 lowercase hex digits.
pub(crate) fn hex32(hex: &[u8]) -> Option<[u8; 32]> {
    let (pairs, []) = hex.as_chunks::<2>() else { return None };
    let pairs: &[[u8; 2]; 32] = pairs.try_into().ok()?;
    let mut wrong = 0;
    let bytes = pairs.map(|[high, low]| {
        let (high, low) = (DIGITS[usize::from(high)], DIGITS[usize::from(low)]);
        wrong |= high | low;
        high << 4 | low
    });
    (wrong < 16).then_some(bytes)
}

/// Encodes bytes as lowercase hex.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
    text
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b3:{}", to_hex(&self.0))
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Cid {
    type Err = NotACid;

    fn from_str(text: &str) -> Result<Self, NotACid> {
        Self::from_text(text.as_bytes())
    }
}

impl Serialize for Cid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_is_strict() {
        let cid = Cid::of_entry(&[b"{}"]);
        let text = cid.to_string();
        assert_eq!(text.as_bytes(), cid.to_text());
        assert_eq!(text.parse(), Ok(cid));
        for bad in [
            "",
            "b3:",
            &text[1..],
            &text[..66],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replacen("b3:", "b2:", 1),
            &format!(" {text}"),
        ] {
            assert_eq!(bad.parse::<Cid>(), Err(NotACid), "{bad:?}");
        }
    }

    #[test]
    fn domains_never_share_a_hash() {
        let kinds = [Domain::Entry, Domain::Commitment, Domain::Constitution, Domain::Session];
        for (i, kind) in kinds.into_iter().enumerate() {
            assert_eq!(kind.hash(&[b"sa", b"me"]), kind.hash(&[b"same"]));
            assert_eq!(kind.hash(&[b"same"]), blake3::derive_key(kind.context(), b"same"));
            for other in &kinds[..i] {
                assert_ne!(kind.hash(&[b"same"]), other.hash(&[b"same"]));
            }
        }
    }
}
