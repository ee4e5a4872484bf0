//! The payload of entries about who may decide or act: approvers and agents that were added, changed or removed. Decides
//! nothing; the lists themselves are files of the registry.

use serde::{Deserialize, Serialize};

/// The entity id of these entries.
pub const DECIDERS_ENTITY: &str = "roster:deciders";

/// The author of changes that were found in a file when the daemon started.
pub const BY_FILE: &str = "file";

/// One approver or agent, as its list has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decider {
    pub kind: DeciderKind,
    pub id: String,
    /// The roles of an approver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// A hash of its whole line, so that a change of a token, a key or a mandate is seen.
    pub fingerprint: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeciderKind {
    Approver,
    Agent,
}

impl DeciderKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approver => "approver",
            Self::Agent => "agent",
        }
    }
}

/// One change of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeciderChange {
    pub change: ChangeKind,
    pub by: String,
    #[serde(flatten)]
    pub decider: Decider,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    Changed,
    Removed,
    /// The list could not be written: the change before this entry did not happen.
    Failed,
}

impl ChangeKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Failed => "failed",
        }
    }
}
