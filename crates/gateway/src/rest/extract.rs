//! Extractors of the REST routes: the caller, the body and the query, with Tribune's error sentences.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::bearer::bearer;
use crate::connection_limit::ConnectionSlot;
use crate::decode;
use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::principal::Principal;
use crate::proxy::PassScope;

/// Extracts a caller who may decide from the token in the header: the operator or an approver.
pub(super) struct Decider(pub(super) Principal);

impl FromRequestParts<Arc<Gateway>> for Decider {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, ApiError> {
        match bearer(parts.headers.get(AUTHORIZATION))? {
            Some(token) => gateway.check_token(token, &parts.extensions).map(Self),
            None => Err(ApiError::unauthorized()),
        }
    }
}

/// Extracts the operator from the token in the header.
pub(super) struct Operator(pub(super) Principal);

impl FromRequestParts<Arc<Gateway>> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, ApiError> {
        let Decider(who) = Decider::from_request_parts(parts, gateway).await?;
        who.operator()?;
        Ok(Self(who))
    }
}

/// Extracts the caller of the Gate API: the operator, or an agent with a gate pass.
pub(super) struct GateCaller(pub(super) Principal);

impl FromRequestParts<Arc<Gateway>> for GateCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, ApiError> {
        let token = bearer(parts.headers.get(AUTHORIZATION))?.ok_or_else(ApiError::unauthorized)?;
        if let Some(id) = gateway.api.proxy.token_holder(token, PassScope::Gate) {
            let who = Principal::GatePass { id };
            if let Some(slot) = parts.extensions.get::<Arc<ConnectionSlot>>() {
                slot.is_of(who.tier());
            }
            return Ok(Self(who));
        }
        let who = gateway.check_token(token, &parts.extensions)?;
        who.operator()?;
        Ok(Self(who))
    }
}

/// Extracts a JSON body, with the error sentences of [`crate::decode`].
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Gateway>> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, ApiError> {
        if !is_json(&request) {
            return Err(ApiError::params("the body is JSON: send `Content-Type: application/json`"));
        }
        let read =
            tokio::time::timeout(gateway.limits.body_time(), Bytes::from_request(request, gateway)).await;
        let late = || {
            ApiError::new(
                "invalid_request",
                "the body did not arrive within gateway.idleSeconds, or within a minute",
            )
        };
        let body = read.map_err(|_| late())?.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                ApiError::new("too_large", "the body is larger than gateway.maxMessageBytes")
            }
            _ => ApiError::new("invalid_request", "the body did not arrive as a whole: send it again"),
        })?;
        let text = std::str::from_utf8(&body).map_err(|_| ApiError::params("the body is not UTF-8"))?;
        decode::json(text, "the body").map(Self)
    }
}

fn is_json(request: &Request) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Extracts a query, with the error sentences of [`crate::decode`].
pub(super) struct UrlQuery<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Gateway>> for UrlQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Gateway>) -> Result<Self, ApiError> {
        decode::query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}
