//! Salted commitments: the ledger commits to content without revealing it.
//!
//! A plain hash of a short text can be reversed by trying likely texts, even after the text was erased. The salt
//! prevents that once it is destroyed: it is stored with the content, and is erased with it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::cid::{Domain, hex32, to_hex};

/// 32 secret random bytes, drawn separately for each piece of content.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Salt([u8; 32]);

impl Salt {
    /// `bytes` must come from the system's random source.
    pub const fn from_random(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret bytes, for the vault that stores them with the content.
    pub const fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(…)")
    }
}

/// A commitment to a piece of content: `b3c:` and 64 lowercase hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Commitment([u8; 32]);

/// A text that is not a commitment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a commitment is `b3c:` followed by 64 lowercase hex digits")]
pub struct NotACommitment;

impl Commitment {
    /// Commits to `content`. The salt has a fixed length, so the border between salt and content is unambiguous.
    pub fn to(content: &[u8], salt: &Salt) -> Self {
        Self(Domain::Commitment.hash(&[&salt.0, content]))
    }

    /// Whether this is the commitment to `content` with `salt`.
    pub fn opens(&self, content: &[u8], salt: &Salt) -> bool {
        *self == Self::to(content, salt)
    }
}

impl fmt::Display for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b3c:{}", to_hex(&self.0))
    }
}

impl fmt::Debug for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Commitment {
    type Err = NotACommitment;

    fn from_str(text: &str) -> Result<Self, NotACommitment> {
        let hex = text.strip_prefix("b3c:").ok_or(NotACommitment)?;
        hex32(hex.as_bytes()).map(Self).ok_or(NotACommitment)
    }
}

impl Serialize for Commitment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Commitment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt::from_random([7; 32]);
    const OTHER: Salt = Salt::from_random([8; 32]);

    #[test]
    fn commitment_opens_only_with_its_content_and_salt() {
        let commitment = Commitment::to(b"yes", &SALT);
        assert!(commitment.opens(b"yes", &SALT));
        assert!(!commitment.opens(b"no", &SALT));
        assert!(!commitment.opens(b"yes", &OTHER));
        assert_eq!(commitment.to_string().parse(), Ok(commitment));
    }

    #[test]
    fn l5_a_guess_at_the_content_is_not_confirmed_without_the_salt() {
        let logged = Commitment::to(b"yes", &SALT);
        let guesses = [b"yes".as_slice(), b"no", b"y", b"YES"];
        assert!(guesses.iter().all(|guess| Commitment::to(guess, &OTHER) != logged));
        assert!(guesses.iter().all(|guess| Domain::Commitment.hash(&[guess]) != logged.0));
        assert_eq!(format!("{SALT:?}"), "Salt(…)", "the salt never reaches a log");
    }
}
