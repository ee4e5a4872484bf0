//! Authentication, and the answers that every method can give: errors, and nothing but success.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `auth.token`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthToken {
    pub(crate) token: String,
}

impl fmt::Debug for AuthToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuthToken(…)")
    }
}

/// `auth.challenge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Challenge {
    pub(crate) nonce: String,
    /// The log's name: a signature made for one daemon is invalid at another.
    pub(crate) audience: String,
}

/// `auth.agent`: the signature is Ed25519 over `tribune/agent-auth/v1\nAUDIENCE\nNONCE\nPUBLIC_KEY\n`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthAgent {
    /// `ed25519:` and 64 hex digits.
    pub(crate) public_key: String,
    /// 128 hex digits.
    pub(crate) signature: String,
}

/// `auth.daemon`: asks the daemon to prove that it knows a token, before the token is sent.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthDaemon {
    /// 64 hex digits.
    pub(crate) nonce: String,
    /// The first 16 hex digits of the BLAKE3 hash of `tribune/daemon-auth/v1/hint`, keyed with the BLAKE3 hash of the token.
    pub(crate) token_hint: String,
}

/// The proof of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct DaemonProof {
    /// The address that the daemon listens on, which the proof is about.
    pub(crate) address: String,
    /// The BLAKE3 hash of `tribune/daemon-auth/v1\nADDRESS\nNONCE\n`, keyed with the BLAKE3 hash of the token, in hex.
    pub(crate) proof: String,
}

/// The principal of the connection from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct WhoAmI {
    /// `operator`, `agent`, `stranger` or `anonymous`.
    pub(crate) principal: String,
    pub(crate) agent_id: Option<String>,
    pub(crate) mandate: Option<String>,
}

/// The result of a method that returns nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Done {
    pub(crate) ok: bool,
}

/// An error, in REST.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    pub(crate) error: ErrorInfo,
}

/// A code for programs, a sentence for people.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct ErrorInfo {
    pub(crate) code: String,
    pub(crate) message: String,
}
