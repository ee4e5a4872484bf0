//! The caller of a request, and which model it may use.
//!
//! The operator may use every model. An agent with a proxy token may use only its own model: the one in the roster, or the default
//! model for agents of the native loop. An approver may use none. All other callers are rejected, even if the configuration
//! accepts anonymous callers elsewhere, because model requests cost money.

use tribune_providers::ModelRef;
use tribune_runtime::{AgentId, SessionKey};

use crate::error::{ApiError, shortened};

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    Operator,
    /// Authenticated with a proxy token.
    Agent(AgentId),
    /// On the model socket of a session's sandbox.
    Session(SessionKey),
}

/// The operator's name in the ledger.
pub(super) const OPERATOR: &str = "operator";

impl Caller {
    /// The caller's name in the ledger.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Operator => OPERATOR.to_owned(),
            Self::Agent(id) => id.to_string(),
            Self::Session(key) => key.agent().to_string(),
        }
    }

    /// The agent whose model the caller is restricted to; `None` for the operator, who may use every model.
    pub(super) const fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::Operator => None,
            Self::Agent(id) => Some(id),
            Self::Session(key) => Some(key.agent()),
        }
    }

    /// The session of the caller, if it has one.
    pub(super) fn session(&self) -> Option<String> {
        match self {
            Self::Operator | Self::Agent(_) => None,
            Self::Session(key) => Some(key.to_string()),
        }
    }
}

/// Denies an agent every model except its own. `asked` is `None` for requests that name no model.
pub(super) fn check_model(
    agent: &AgentId,
    given: Option<&ModelRef>,
    provider: &str,
    asked: Option<&str>,
) -> Result<(), ApiError> {
    let Some(given) = given else {
        return Err(ApiError::forbidden(format!(
            "the agent `{agent}` has no model: give it one in the roster as provider:model"
        )));
    };
    if given.provider() == provider && asked == Some(given.model()) {
        return Ok(());
    }
    let asked = asked
        .map_or_else(|| "this endpoint".to_owned(), |model| format!("`{provider}:{}`", shortened(model)));
    Err(ApiError::forbidden(format!("the agent `{agent}` may use only `{given}`, not {asked}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_may_use_only_its_own_model() {
        let agent: AgentId = "writer".parse().unwrap();
        let given: ModelRef = "fake:m".parse().unwrap();
        let may =
            |provider: &str, asked: Option<&str>| check_model(&agent, Some(&given), provider, asked).is_ok();
        assert!(may("fake", Some("m")));
        for (provider, asked) in [
            ("fake", Some("M")),
            ("fake", Some("m2")),
            ("fake", Some("")),
            ("other", Some("m")),
            ("fake", None),
        ] {
            assert!(!may(provider, asked), "{provider} {asked:?}");
        }
        assert!(check_model(&agent, None, "fake", Some("m")).is_err());
    }
}
