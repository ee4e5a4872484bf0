//! The decision that a person requests for a pending call, and its outcome.

use tribune_ledger::Timestamp;
use tribune_ledger::commitment::Commitment;

use super::record::{ApprovalState, DecisionKind, Requested};

/// How an approval ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// `text`, if given, replaces the text of the call.
    Allowed {
        by: String,
        text: Option<String>,
    },
    Denied {
        by: String,
        reason: Option<String>,
        stop: bool,
    },
    Expired,
    Withdrawn,
    /// What the call asked for was allowed in another way.
    Answered,
}

impl ApprovalDecision {
    pub const fn state(&self) -> ApprovalState {
        match self {
            Self::Allowed { .. } => ApprovalState::Allowed,
            Self::Denied { .. } => ApprovalState::Denied,
            Self::Expired => ApprovalState::Expired,
            Self::Withdrawn | Self::Answered => ApprovalState::Withdrawn,
        }
    }

    /// The sentence for the model that made the call.
    pub fn sentence(&self) -> String {
        match self {
            Self::Allowed { by, .. } => format!("allowed by {by}"),
            Self::Denied { by, reason: Some(reason), .. } => format!("denied by {by}: {reason}"),
            Self::Denied { by, reason: None, .. } => format!("denied by {by}"),
            Self::Expired => "denied: nobody decided in time".to_owned(),
            Self::Withdrawn => "the call was taken back before anyone decided".to_owned(),
            Self::Answered => "what it asked for was allowed meanwhile".to_owned(),
        }
    }
}

/// The outcome of a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionOutcome {
    pub requested: Requested,
    pub state: ApprovalState,
    /// How many more people must agree.
    pub missing: u32,
    pub grant: Option<String>,
    /// No task waited for the decision any more: the executor of the daemon's calls has to resume the call.
    pub is_orphan: bool,
}

/// The decision that a person requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRequest {
    pub decision: DecisionKind,
    pub until: Option<Timestamp>,
    pub pattern: Option<String>,
    pub reason: Option<String>,
    /// A replacement for the text of a draft, with its commitment in the log.
    pub text: Option<(String, Commitment)>,
}

/// Why a decision cannot result in the grant that it requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GrantError(pub String);

impl GrantError {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}
