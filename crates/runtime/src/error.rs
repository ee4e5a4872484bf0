//! The error of a turn or a session.

/// The reason for which a turn or a session could not go on. The message may be shown to the peer; it holds no content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuntimeError {
    pub kind: ErrorKind,
    pub message: String,
}

impl RuntimeError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// One word for programs, such as `interrupted`.
    pub fn code(&self) -> &str {
        self.kind.as_str()
    }
}

macro_rules! error_kinds {
    ($($variant:ident => $code:literal),+ $(,)?) => {
        /// The kind of an error. Its code is part of the wire format.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum ErrorKind {
            $($variant,)+
            /// A model provider's code, or one that a script chose (`fail CODE`).
            Other(Box<str>),
        }

        impl ErrorKind {
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $code,)+
                    Self::Other(code) => code,
                }
            }

            /// The kind with this code, for codes that come from a provider, a script or the vault.
            pub fn from_code(code: &str) -> Self {
                match code {
                    $($code => Self::$variant,)+
                    other => Self::Other(other.into()),
                }
            }
        }

        #[cfg(test)]
        const KINDS: &[ErrorKind] = &[$(ErrorKind::$variant),+];
    };
}

error_kinds! {
    AgentEnded => "agent_ended",
    AgentFailed => "agent_failed",
    AgentPrompt => "agent_prompt",
    AgentProtocol => "agent_protocol",
    AgentRefused => "agent_refused",
    AgentSilent => "agent_silent",
    BackendPanicked => "backend_panicked",
    BadScript => "bad_script",
    Busy => "busy",
    Cancelled => "cancelled",
    Conflict => "conflict",
    Draining => "draining",
    EndedEarly => "ended_early",
    Frozen => "frozen",
    Internal => "internal",
    InvalidParams => "invalid_params",
    MaxRounds => "max_rounds",
    NoMandate => "no_mandate",
    NoModel => "no_model",
    NoPrice => "no_price",
    NoProfile => "no_profile",
    NotFound => "not_found",
    NotInstalled => "not_installed",
    NotStarted => "not_started",
    OverBudget => "over_budget",
    ProviderDisabled => "provider_disabled",
    Refused => "refused",
    Repeating => "repeating",
    Sandbox => "sandbox",
    SpendLimit => "spend_limit",
    Storage => "storage",
    TooLarge => "too_large",
    TooLong => "too_long",
    TurnLimit => "turn_limit",
    Unexpected => "unexpected",
    Ungoverned => "ungoverned",
    UnknownModel => "unknown_model",
    UnknownProvider => "unknown_provider",
    UnreadableConversation => "unreadable_conversation",
    Unsupported => "unsupported",
    Untried => "untried",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_the_kind_of_its_code() {
        for kind in KINDS {
            assert_eq!(ErrorKind::from_code(kind.as_str()), *kind);
        }
        assert_eq!(ErrorKind::from_code("overloaded").as_str(), "overloaded");
    }
}
