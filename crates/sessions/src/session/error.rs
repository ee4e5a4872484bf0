//! Session errors, each with a code for programs and a sentence for people.

use tribune_runtime::session::NameError;
use tribune_runtime::{ErrorKind, RuntimeError};
use tribune_storage::store::StoreError;

/// Why a session operation failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("there is no session `{0}`: open it first")]
    NotFound(String),
    #[error("the session `{0}` is closed: open it again")]
    Closed(String),
    #[error("the session `{0}` has as many turns waiting as it may ({1}): wait for one to end, or cancel it")]
    Busy(String, usize),
    #[error(
        "the session `{0}` is reopened each time it is closed: stop the client that reopens it, and try again"
    )]
    Reopened(String),
    #[error("the session `{0}` was used just now: it stays open")]
    InUse(String),
    #[error("the daemon is stopping and takes no new work: try again when it is back")]
    Draining,
    #[error("{0} sessions are open, which is the limit: close some, or raise sessions.maxOpen")]
    TooMany(usize),
    #[error(
        "unregistered callers have {0} sessions open, which is the limit for all of them: close some, or have the operator add you to the roster"
    )]
    TooManyAnonymous(usize),
    #[error(
        "you have {0} sessions open, which is the limit for an unregistered caller: close some, or have the operator add you to the roster"
    )]
    TooManyOfOneCaller(usize),
    #[error(
        "agents that act by themselves have {0} sessions open, which is the limit for all of them: close some, or raise sessions.maxOpen"
    )]
    TooManyOfAgents(usize),
    #[error(
        "callers other than the operator have {0} sessions open, which is the limit for all of them: close some, or raise sessions.maxOpen"
    )]
    TooManyBesideOperator(usize),
    #[error("there is no agent `{0}`: add it with `tribune agents add {0}`")]
    UnknownAgent(String),
    #[error("there is no backend `{0}`: this build has {1}")]
    UnknownBackend(String, String),
    #[error(
        "the session's events end at {head}: nothing comes after {after} yet, so read again from an earlier event"
    )]
    Ahead { after: u64, head: u64 },
    #[error("events up to {} are no longer kept: read on after {}, or ask for the session's history", .oldest - 1, .oldest - 1)]
    Expired { oldest: u64 },
    #[error("{0}")]
    Input(String),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SessionError {
    /// Whether the session can run no turns because its backend or its mandate is gone.
    pub(super) fn is_unserved(&self) -> bool {
        match self {
            Self::UnknownBackend(..) => true,
            Self::Runtime(error) => error.kind == ErrorKind::NoMandate,
            _ => false,
        }
    }

    /// The error code, for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Name(_) | Self::Input(_) => "invalid_params",
            Self::NotFound(_) => "not_found",
            Self::Closed(_) => "session_closed",
            Self::Busy(..) | Self::InUse(_) => "busy",
            Self::Reopened(_) => "conflict",
            Self::Draining => "draining",
            Self::TooMany(_)
            | Self::TooManyAnonymous(_)
            | Self::TooManyOfOneCaller(_)
            | Self::TooManyOfAgents(_)
            | Self::TooManyBesideOperator(_) => "too_many_sessions",
            Self::UnknownAgent(_) => "unknown_agent",
            Self::UnknownBackend(..) => "unknown_backend",
            Self::Ahead { .. } => "ahead",
            Self::Expired { .. } => "expired",
            Self::Runtime(error) => error.code(),
            Self::Store(_) => "storage",
        }
    }
}
