//! How an entry's content is sealed for its audience. The entry commits to the ciphertext; the content key is wrapped
//! for each member. Only the type lives here: sealing and opening belong to the vault.

use serde::{Deserialize, Serialize};

use crate::cid::Cid;

/// A sealed payload and who can open it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    pub scheme: Scheme,
    /// Which content key of the session; it rises when a member leaves, so that later entries are closed to them.
    pub epoch: u32,
    /// Hash of the ciphertext, which is stored elsewhere and can be erased without touching the entry.
    pub ciphertext: Cid,
    /// The content key, wrapped once per member.
    pub audience: Vec<WrappedKey>,
}

/// Cipher and key wrapping, as one closed choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheme {
    #[serde(rename = "xchacha20poly1305+x25519")]
    XChaCha20Poly1305X25519,
}

/// The content key for one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrappedKey {
    /// The member's X25519 public key, base64.
    pub recipient: String,
    /// Ephemeral public key and the wrapped content key, base64.
    pub wrapped: String,
}
