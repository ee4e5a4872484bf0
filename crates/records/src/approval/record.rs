//! What the log tells of approvals, grants and the stop of everything: the payloads of entries of quality `approval`.
//! The views read the same types back.

use serde::{Deserialize, Serialize};
use tribune_constitution::labels::Labels;
use tribune_ledger::commitment::Commitment;

use super::grant::Grant;

/// Where decisions about one approval are written; the request itself stands in its session's history.
pub fn approval_entity(id: &str) -> String {
    format!("approval:{id}")
}

/// Where a grant's life is written.
pub fn grant_entity(id: &str) -> String {
    format!("grant:{id}")
}

/// Where it is written that everything was stopped, and that it goes on.
pub const FREEZE_ENTITY: &str = "gate:freeze";

/// One line of the inbox's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ApprovalRecord {
    /// A call waits for a person.
    Requested(Requested),
    /// One of several who must agree did.
    Voted {
        id: String,
        by: String,
    },
    /// A person decided.
    Decided(Decided),
    /// Nobody decided in time: the call is refused.
    Expired {
        id: String,
    },
    /// Whoever asked does not wait any more.
    Withdrawn {
        id: String,
    },
    /// Calls like one that was approved need not ask for a while.
    Granted(Grant),
    Revoked {
        id: String,
        by: String,
    },
    /// Everything is stopped.
    Frozen {
        by: String,
    },
    Resumed {
        by: String,
    },
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Requested {
    pub id: String,
    pub session: String,
    pub agent: String,
    pub tool: String,
    pub call_id: String,
    /// CID of the call's entry.
    pub call: String,
    /// CID of the verdict that asks.
    pub verdict: String,
    /// Digest of the action that would run.
    pub digest: String,
    /// The vault has the action itself under this.
    pub action: Commitment,
    /// Which rules asked, and why.
    pub rules: Vec<String>,
    pub reason: String,
    pub risk: String,
    /// What the session's context had taken in.
    pub labels: Labels,
    /// Any of these may decide; empty: any approver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// How many people must agree.
    pub needs: u32,
    pub expires_at: String,
    pub runner: CallRunner,
    /// The approval that no longer fitted when the call was about to run, and which parts had changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The folder that the call's path is in, or else the one that the session works in, if it is not its agent's own workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Further folders that the session has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<String>,
}

/// Who carries a call out once it is allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallRunner {
    /// This daemon.
    #[default]
    Host,
    /// Whoever asked.
    Caller,
    /// The agent, with its own hands, in its turn.
    Agent,
}

impl CallRunner {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    pub fn is_host(&self) -> bool {
        *self == Self::Host
    }
}

/// What a person decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    pub id: String,
    pub decision: DecisionKind,
    pub by: String,
    /// The decider's own words, for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The grant that came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// The vault has the words that the decider put in place of the call's own under this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Commitment>,
}

/// The decisions there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    AllowOnce,
    /// This and calls like it, as long as the session is open.
    AllowSession,
    /// This and calls like it, until a time.
    AllowUntil,
    /// This and whatever a pattern covers.
    AllowPattern,
    Deny,
    /// And the turn ends.
    DenyStop,
}

impl DecisionKind {
    pub const ALL: [Self; 6] = [
        Self::AllowOnce,
        Self::AllowSession,
        Self::AllowUntil,
        Self::AllowPattern,
        Self::Deny,
        Self::DenyStop,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow_once",
            Self::AllowSession => "allow_session",
            Self::AllowUntil => "allow_until",
            Self::AllowPattern => "allow_pattern",
            Self::Deny => "deny",
            Self::DenyStop => "deny_stop",
        }
    }

    pub const fn allows(self) -> bool {
        match self {
            Self::AllowOnce | Self::AllowSession | Self::AllowUntil | Self::AllowPattern => true,
            Self::Deny | Self::DenyStop => false,
        }
    }
}

/// Where an approval stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    Pending,
    Allowed,
    Denied,
    Expired,
    Withdrawn,
}

impl ApprovalState {
    pub const ALL: [Self; 5] = [Self::Pending, Self::Allowed, Self::Denied, Self::Expired, Self::Withdrawn];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}
