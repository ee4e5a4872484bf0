//! What people want to happen to a call that waits, and what came of it.

use tribune_ledger::Timestamp;
use tribune_ledger::commitment::Commitment;

use super::record::{ApprovalState, DecisionKind, Requested};

/// How an approval ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// `text` stands in place of the call's own words.
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
    /// What it asked for came about without it.
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

    /// For the model that asked.
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

/// What came of a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionOutcome {
    pub requested: Requested,
    pub state: ApprovalState,
    /// How many more must agree.
    pub missing: u32,
    pub grant: Option<String>,
    /// Nobody waited any more: whoever runs the daemon's calls has to take it from here.
    pub is_orphan: bool,
}

/// What a person wants to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRequest {
    pub decision: DecisionKind,
    pub until: Option<Timestamp>,
    pub pattern: Option<String>,
    pub reason: Option<String>,
    /// Other words for a draft, and what the log knows them by.
    pub text: Option<(String, Commitment)>,
}
