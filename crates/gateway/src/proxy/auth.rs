//! Authenticates a caller by the token that the SDK sends as its API key, and decides which model the caller may use.
//!
//! The operator may use every model. An agent with a proxy token may use only its own model: the one in the roster, or the default
//! model for agents of the native loop. An approver may use none. All other callers are rejected, even if the configuration
//! accepts anonymous callers elsewhere, because model requests cost money.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use tribune_providers::ModelRef;
use tribune_runtime::{AgentId, SessionKey};

use crate::api::short;
use crate::connection_limit::{ConnectionSlot, PrincipalTier};
use crate::{ApiError, Gateway, Principal, rest};

/// The headers in which the SDKs of Anthropic and Gemini send their keys.
const API_KEYS: [&str; 2] = ["x-api-key", "x-goog-api-key"];

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
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

/// Authenticates a request.
pub(super) fn caller(gateway: &Gateway, request: &Request) -> Result<Caller, ApiError> {
    let token = token(request.headers())?;
    if let Some(agent) = gateway.api.proxy.passes.holder(token) {
        if let Some(seat) = request.extensions().get::<Arc<ConnectionSlot>>() {
            seat.is_of(PrincipalTier::Member);
        }
        return Ok(Caller::Agent(agent));
    }
    match gateway.check_token(token, request.extensions())? {
        Principal::Operator => Ok(Caller::Operator),
        Principal::Approver(_) => Err(ApiError::forbidden(
            "an approver cannot use models: use the operator's token or an agent's pass",
        )),
        // INVARIANT: only the operator and the approvers have such tokens; keys are proved over the WebSocket only.
        Principal::Agent { .. } | Principal::Stranger { .. } | Principal::Anonymous { .. } => {
            Err(ApiError::unauthorized())
        }
    }
}

/// The token in the headers. Two different tokens are rejected.
fn token(headers: &HeaderMap) -> Result<&str, ApiError> {
    let unclear = || ApiError::new("unauthorized", "two tokens were sent: send one, as the SDK's api_key");
    let mut found = None;
    for value in headers.get_all(AUTHORIZATION) {
        let token = rest::bearer(Some(value))?;
        if found.is_some() && found != token {
            return Err(unclear());
        }
        found = token;
    }
    for value in API_KEYS.iter().flat_map(|name| headers.get_all(*name)) {
        let token = value.to_str().map(str::trim).map_err(|_| ApiError::unauthorized())?;
        if found.is_some_and(|other| other != token) {
            return Err(unclear());
        }
        found = Some(token);
    }
    found.ok_or_else(|| {
        let what =
            "this needs a token: give the SDK the one in run/token, or an agent's pass, as its api_key";
        ApiError::new("unauthorized", what)
    })
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
    let asked =
        asked.map_or_else(|| "this endpoint".to_owned(), |model| format!("`{provider}:{}`", short(model)));
    Err(ApiError::forbidden(format!("the agent `{agent}` may use only `{given}`, not {asked}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(headers: &[(&str, &str)]) -> Result<String, &'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(axum::http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        token(&map).map(str::to_owned).map_err(|error| error.code)
    }

    #[test]
    fn accepts_one_token_in_any_header() {
        let refused = Err("unauthorized");
        assert_eq!(sent(&[("authorization", "Bearer a")]), Ok("a".to_owned()));
        assert_eq!(sent(&[("x-api-key", "a")]), Ok("a".to_owned()));
        assert_eq!(sent(&[("x-goog-api-key", "a")]), Ok("a".to_owned()));
        assert_eq!(sent(&[("x-goog-api-key", "a"), ("x-api-key", "b")]), refused);
        assert_eq!(sent(&[("x-api-key", "a"), ("authorization", "Bearer a")]), Ok("a".to_owned()));
        assert_eq!(sent(&[]), refused);
        assert_eq!(sent(&[("x-api-key", "a"), ("authorization", "Bearer b")]), refused);
        assert_eq!(sent(&[("x-api-key", "a"), ("x-api-key", "b")]), refused);
        assert_eq!(sent(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]), refused);
        assert_eq!(sent(&[("authorization", "Basic a"), ("x-api-key", "a")]), refused);
    }

    #[test]
    fn an_agent_may_use_only_its_own_model() {
        let agent: AgentId = "scribe".parse().unwrap();
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
