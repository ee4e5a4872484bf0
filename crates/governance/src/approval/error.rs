//! Why a decision was rejected.

use tribune_records::approval::approver::NotEntitled;
use tribune_records::approval::decision::GrantError;
use tribune_records::approval::record::ApprovalState;
use tribune_storage::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    #[error("there is no approval `{0}`: `tribune approvals list` shows what waits")]
    Unknown(String),
    #[error("the approval `{id}` is not open any more: it is {}", .state.as_str())]
    Over { id: String, state: ApprovalState },
    #[error("someone else is deciding `{0}` right now: try again")]
    Racing(String),
    #[error("you agreed to `{0}` before: someone else has to agree too")]
    VotedBefore(String),
    #[error(transparent)]
    NotEntitled(#[from] NotEntitled),
    #[error("there is no grant `{0}`: `tribune approvals grants` lists them")]
    UnknownGrant(String),
    #[error("{0}")]
    InvalidDecision(String),
    #[error(transparent)]
    Grant(#[from] GrantError),
    #[error("the reason is too long: keep it to {} characters", super::inbox::MAX_REASON_CHARS)]
    LongReason,
    #[error("everything is stopped: nothing can be allowed before `tribune resume`")]
    Frozen,
    #[error("the daemon is stopping: decide again when it is back")]
    Stopping,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ApprovalError {
    /// Machine-readable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) | Self::UnknownGrant(_) => "not_found",
            Self::Over { .. } | Self::Racing(_) | Self::VotedBefore(_) | Self::Frozen => "conflict",
            Self::NotEntitled(_) => "forbidden",
            Self::InvalidDecision(_) | Self::Grant(_) | Self::LongReason => "invalid_params",
            Self::Stopping => "draining",
            Self::Store(_) => "storage",
        }
    }
}
