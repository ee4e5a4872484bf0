//! The encryption envelope of an entry's content. The entry commits to the ciphertext; the content key is wrapped for
//! each recipient. This module defines the type only: the vault encrypts and decrypts.

use serde::{Deserialize, Serialize};

use crate::cid::Cid;

/// An encrypted payload and its recipients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    pub scheme: Scheme,
    /// Which content key of the session. It increases when a member leaves, so that they cannot read later entries.
    pub epoch: u32,
    /// Hash of the ciphertext, which is stored elsewhere and can be erased without a change of the entry.
    pub ciphertext: Cid,
    /// The content key, wrapped once per recipient.
    pub audience: Vec<WrappedKey>,
}

/// Cipher and key wrapping together; no other combination is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheme {
    #[serde(rename = "xchacha20poly1305+x25519")]
    XChaCha20Poly1305X25519,
}

/// The content key for one recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrappedKey {
    /// The recipient's X25519 public key, base64.
    pub recipient: String,
    /// Ephemeral public key and the wrapped content key, base64.
    pub wrapped: String,
}
