//! Why a request to the agent has no result.

use tribune_runtime::{ErrorKind, RuntimeError};

use super::HANDSHAKE_TIMEOUT;
use crate::codec::ErrorResponse;

/// The reason for which there is no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionFault {
    /// The agent answered with an error.
    Refused(ErrorResponse),
    /// The connection is broken.
    Broken(String),
    TimedOut,
}

impl ConnectionFault {
    /// The error in a sentence that names the request.
    pub(crate) fn into_error(self, method: &str) -> RuntimeError {
        match self {
            Self::Refused(refusal) => RuntimeError::new(
                ErrorKind::AgentRefused,
                format!("the agent refused {method}: {}", refusal.message),
            ),
            Self::Broken(why) => {
                let what =
                    format!("the connection to the agent is broken: {why}; the next turn starts it again");
                RuntimeError::new(ErrorKind::AgentEnded, what)
            }
            Self::TimedOut => {
                let what = format!(
                    "the agent did not answer {method} within {} s: try again",
                    HANDSHAKE_TIMEOUT.as_secs()
                );
                RuntimeError::new(ErrorKind::AgentSilent, what)
            }
        }
    }
}
