//! Who asks, by the token that the SDK sends as its key, and which model that lets them ask.
//!
//! The operator may ask every model. An agent with a pass may ask the one model that the roster gives it, or that the house
//! gives agents of its own loop. An approver decides and asks no models. Nobody else is let in, whatever the configuration says
//! of anonymous callers: asking costs money.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use tribune_governance::models::Providers;
use tribune_providers::ModelRef;
use tribune_records::agents::RUN_AGENT;
use tribune_registry::{Agents, asks_a_model};
use tribune_runtime::{AgentId, SessionKey};

use crate::api::short;
use crate::connection_limit::{ConnectionSlot, PrincipalTier};
use crate::{ApiError, Gateway, Principal, rest};

/// Where the SDKs of Anthropic and of Gemini put their keys.
const API_KEYS: [&str; 2] = ["x-api-key", "x-goog-api-key"];

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    Operator,
    /// With a pass.
    Agent(AgentId),
    /// On the socket of a session's box.
    Session(SessionKey),
}

/// The operator, as the ledger names it.
pub(super) const OPERATOR: &str = "operator";

impl Caller {
    /// As the ledger names it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Operator => OPERATOR.to_owned(),
            Self::Agent(id) => id.to_string(),
            Self::Session(key) => key.agent().to_string(),
        }
    }

    /// Whose model it may ask, if not every one.
    pub(super) const fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::Operator => None,
            Self::Agent(id) => Some(id),
            Self::Session(key) => Some(key.agent()),
        }
    }

    /// The session that it asks in, if it does in one.
    pub(super) fn session(&self) -> Option<String> {
        match self {
            Self::Operator | Self::Agent(_) => None,
            Self::Session(key) => Some(key.to_string()),
        }
    }
}

/// Who sent this request.
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
        Principal::Approver(_) => Err(ApiError::forbidden("an approver decides, and asks no models")),
        // INVARIANT: tokens are the operator's and the approvers'; keys are proved over the WebSocket alone.
        Principal::Agent { .. } | Principal::Stranger { .. } | Principal::Anonymous { .. } => {
            Err(ApiError::unauthorized())
        }
    }
}

/// The one token that the headers hold.
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

/// Refuses an agent whatever it was not given. `asked` is none for what names no model.
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
    let asked = asked.map_or_else(|| "this".to_owned(), |model| format!("`{provider}:{}`", short(model)));
    Err(ApiError::forbidden(format!("the agent `{agent}` may ask `{given}` and nothing else, not {asked}")))
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
    fn one_token_in_either_place() {
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
    fn an_agent_asks_its_own_model_and_nothing_else() {
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
