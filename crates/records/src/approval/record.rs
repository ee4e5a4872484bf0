//! The payloads of entries of quality `approval`: approvals, grants and the freeze of the daemon. The views read the same
//! types back.

use serde::{Deserialize, Serialize};
use tribune_constitution::labels::Labels;
use tribune_ledger::commitment::Commitment;

use super::call_roots::CallRoots;
use super::grant::Grant;

/// The entity id for decisions about one approval. The request itself is in its session's history.
pub fn approval_entity(id: &str) -> String {
    format!("approval:{id}")
}

/// The entity id for the events of a grant.
pub fn grant_entity(id: &str) -> String {
    format!("grant:{id}")
}

/// The entity id for lifting the denials of a session.
pub fn denials_entity(session: &str) -> String {
    format!("denials:{session}")
}

/// The entity id for freezing and resuming the daemon.
pub const FREEZE_ENTITY: &str = "gate:freeze";

/// One event of the approval inbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ApprovalRecord {
    /// A call waits for a decision.
    Requested(Requested),
    /// One of several people who must agree did.
    Voted {
        id: String,
        by: String,
    },
    /// A person decided.
    Decided(Decided),
    /// No decision was made in time: the call is denied.
    Expired {
        id: String,
    },
    /// The caller does not wait any more.
    Withdrawn {
        id: String,
    },
    /// Calls like an approved one need no approval for a while.
    Granted(Grant),
    Revoked {
        id: String,
        by: String,
    },
    /// The owner spoke in a session: what was denied there before may be asked again.
    DenialsLifted {
        session: String,
    },
    /// The daemon is frozen: turns and calls are stopped.
    Frozen {
        by: String,
    },
    Resumed {
        by: String,
    },
}

/// A call that waits for a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Requested {
    pub id: String,
    pub session: String,
    pub agent: String,
    pub tool: String,
    pub call_id: String,
    /// CID of the call's entry.
    pub call: String,
    /// CID of the verdict that requires approval.
    pub verdict: String,
    /// Digest of the action that would run.
    pub digest: String,
    /// The commitment under which the vault has the action.
    pub action: Commitment,
    /// The rules that require approval.
    pub rules: Vec<String>,
    pub reason: String,
    pub risk: String,
    /// The labels of the session's context.
    pub labels: Labels,
    /// The roles that may decide; if empty, any approver may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// How many people must agree.
    pub needs: u32,
    pub expires_at: String,
    pub runner: CallRunner,
    /// What decides what would run and is not part of the digest, in words. Such a call is allowed once or not at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_bound: Vec<String>,
    /// The approval that no longer matched when the call was about to run; `changed` names the parts that differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    #[serde(flatten)]
    pub roots: CallRoots,
}

/// Who executes a call once it is allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallRunner {
    /// This daemon.
    #[default]
    Host,
    /// The caller, which is another harness.
    Caller,
    /// The agent itself, in its turn.
    Agent,
}

impl CallRunner {
    pub fn is_host(&self) -> bool {
        *self == Self::Host
    }
}

/// A person's decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    pub id: String,
    pub decision: DecisionKind,
    pub by: String,
    /// The reason that the person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The grant that results from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// The commitment under which the vault has the text that replaces the call's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Commitment>,
}

/// The kinds of decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    AllowOnce,
    /// Allows this call and calls like it while the session is open.
    AllowSession,
    /// Allows this call and calls like it until a time.
    AllowUntil,
    /// Allows this call and every call that a pattern covers.
    AllowPattern,
    Deny,
    /// Denies the call, ends the turn, and stops the session until its owner speaks in it again.
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

/// The state of an approval.
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
