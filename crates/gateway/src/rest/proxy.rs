//! `/v1/proxy`: the model proxy over plain HTTP. Authenticates a caller by the token that the SDK sends as its API key; the rest is
//! in [`crate::proxy`].

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::response::Response;
use tribune_records::agents::PrincipalTier;

use crate::bearer::bearer;
use crate::connection_limit::ConnectionSlot;
use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::principal::Principal;
use crate::proxy::{Caller, PassScope};

/// The headers in which the SDKs of Anthropic and Gemini send their keys.
const API_KEYS: [&str; 2] = ["x-api-key", "x-goog-api-key"];

/// Forwards a request to a model provider with the configured key.
///
/// `provider` is the name of a provider in the configuration, `path` a path of its API: `v1/messages`, `v1/messages/count_tokens`
/// and `v1/models` in Anthropic's dialect, `chat/completions`, `responses`, `embeddings` and `models` in OpenAI's, with or without
/// a leading `v1/`, and `v1beta/models/MODEL:generateContent` and similar in Gemini's. Send the operator's token or an agent's pass
/// as `Authorization: Bearer`, `x-api-key` or `x-goog-api-key`. Responses, including streams, are the provider's own; errors have
/// its shape. See docs/guide/proxy.md.
#[utoipa::path(post, path = "/v1/proxy/{provider}/{path}", tag = "proxy", params(("provider" = String, Path, description = "name of a provider"), ("path" = String, Path, description = "path of its API, with its slashes")), request_body(content = Object, description = "as in the provider's API; `model` decides whether the request is allowed", example = json!({ "model": "small", "messages": [{ "role": "user", "content": "Hello." }] })), responses((status = 200, description = "the provider's answer", body = Object, example = json!({ "choices": [{ "message": { "role": "assistant", "content": "Hello." } }] })), (status = "default", description = "an error in the provider's shape", body = Object)))]
pub(super) async fn proxied(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let path = request.uri().path().strip_prefix("/v1/proxy/").unwrap_or_default().to_owned();
    // The path is never decoded: only a literal match with the allowed endpoints counts.
    let (id, rest) = path.split_once('/').unwrap_or((&path, ""));
    gateway.api.proxy.answer(caller(&gateway, &request), id, rest, request).await
}

/// Authenticates a request.
fn caller(gateway: &Gateway, request: &Request) -> Result<Caller, ApiError> {
    let token = token(request.headers())?;
    if let Some(agent) = gateway.api.proxy.token_holder(token, PassScope::Models) {
        if let Some(slot) = request.extensions().get::<Arc<ConnectionSlot>>() {
            slot.is_of(PrincipalTier::Member);
        }
        return Ok(Caller::Agent(agent));
    }
    match gateway.check_token(token, request.extensions())? {
        Principal::Operator => Ok(Caller::Operator),
        Principal::Approver(_) => Err(ApiError::forbidden(
            "an approver cannot use models: use the operator's token or an agent's pass",
        )),
        // An agent proves its key over the WebSocket only. Models cost money, so guests have none.
        Principal::Agent { .. }
        | Principal::GatePass { .. }
        | Principal::Unregistered { .. }
        | Principal::Anonymous { .. } => Err(ApiError::unauthorized()),
    }
}

/// The token in the headers. Two different tokens are rejected.
fn token(headers: &HeaderMap) -> Result<&str, ApiError> {
    let unclear = || ApiError::new("unauthorized", "two tokens were sent: send one, as the SDK's api_key");
    let mut found = None;
    for value in headers.get_all(AUTHORIZATION) {
        let token = bearer(Some(value))?;
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
}
