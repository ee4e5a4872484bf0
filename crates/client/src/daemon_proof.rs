//! The proof of a daemon that it knows a token, which its owner asks for before it sends the token.
//!
//! The key is the hash of the token, which the daemon has, and which is never sent. The proof is over a nonce of the client and
//! the address that the daemon listens on, so that a program which relays it from another address is found out.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// What the text of a proof begins with.
const PROOF: &str = "tribune/daemon-auth/v1";

/// What the text begins with whose keyed hash tells the daemon which token is meant.
const HINT: &str = "tribune/daemon-auth/v1/hint";

/// Digits of the hint: enough to tell the tokens of one daemon apart.
const HINT_DIGITS: usize = 16;

/// A request for a proof.
pub(super) struct ProofRequest {
    key: [u8; 32],
    nonce: String,
}

impl ProofRequest {
    /// `None` if the system gives no random bytes.
    pub(super) fn new(token: &str) -> Option<Self> {
        let mut nonce = [0_u8; 32];
        getrandom::fill(&mut nonce).ok()?;
        let nonce = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Self { key: *blake3::hash(token.as_bytes()).as_bytes(), nonce })
    }

    /// The params of `auth.daemon`.
    pub(super) fn params(&self) -> Value {
        let hint = blake3::keyed_hash(&self.key, HINT.as_bytes()).to_hex();
        json!({ "nonce": self.nonce, "token_hint": hint[..HINT_DIGITS] })
    }

    /// Whether the answer proves that the daemon which listens on `address` knows the token.
    pub(super) fn is_proven(&self, answer: &Value, address: SocketAddr) -> bool {
        let text = format!("{PROOF}\n{address}\n{}\n", self.nonce);
        let proof = answer["proof"].as_str().and_then(|proof| blake3::Hash::from_hex(proof).ok());
        // Hashes are compared in constant time.
        proof.is_some_and(|proof| proof == blake3::keyed_hash(&self.key, text.as_bytes()))
    }
}
