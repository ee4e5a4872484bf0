//! Which texts a prompt consists of, without the texts: hashes, ids and the order. It contains nothing
//! confidential, so any log may store it.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::PromptLayer;
use crate::hash::ConstitutionHash;

/// The prompt of one model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptManifest {
    pub base: BasePromptId,
    pub constitution_hash: ConstitutionHash,
    /// The mandate's name; the constitution's hash covers its text.
    pub mandate: String,
    /// The hash of the operator's text, without blanks at its end.
    pub agent_prompt_sha256: Option<String>,
    /// The id of the channel's policy, which stands for its text.
    pub channel_policy: String,
    pub user_message_sha256: String,
    /// The layers of the prompt, first to last.
    pub order: Vec<PromptLayer>,
}

/// The base prompt, by id and hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BasePromptId {
    pub version_id: String,
    pub sha256: String,
}

/// In lowercase hex digits, over the UTF-8 bytes: the same on every platform.
pub(super) fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
