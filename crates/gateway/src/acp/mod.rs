//! The front door for editors: Tribune as an ACP agent, at `/acp`.
//!
//! One agent for every way in: a WebSocket ([`socket`]), streamable HTTP ([`http`]), and `tribune acp`, which copies the lines
//! of an editor to a WebSocket. Whoever comes has a principal before the first word, as at every other door. A client's session
//! is a session of the house: it lives on when the client goes, and its questions wait in the inbox, where whoever answers first
//! has answered ([`asking`]). Nothing is asked of the client's own files or terminals: what an agent does, the house does, under
//! its law.

mod client_session;
mod connection;
mod content_blocks;
mod cwd;
mod forwarder;
mod http;
mod mcp_servers;
mod options;
mod passthrough;
mod permission;
mod prompt;
mod replay;
mod session_list;
mod sessions;
mod slash_commands;
mod socket;
mod terminals;
mod tool_call_view;
mod update_mapper;
mod wire;

pub(super) use http::Visits;

use std::sync::Arc;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{FromRequestParts, RawQuery, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Router};
use connection::Wishes;
use serde::Deserialize;
use tribune_runtime::{AgentId, SessionKey};

use super::connection_limit::ConnectionSlot;
use super::error::{ApiError, misnamed};
use super::principal::Principal;
use super::{Gateway, decode, rest};

/// Where it is.
const PATH: &str = "/acp";

pub(super) fn router() -> Router<Arc<Gateway>> {
    Router::new().route(PATH, get(came).post(http::posted).delete(http::left))
}

/// What the address may say: whom sessions are with, and which session to take up.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    agent: Option<String>,
    session: Option<String>,
}

impl Asked {
    /// What an address says. A name that is none is not repeated.
    fn read(RawQuery(query): RawQuery) -> Result<Wishes, ApiError> {
        decode::query::<Self>(query.as_deref().unwrap_or_default())?.checked()
    }

    fn checked(self) -> Result<Wishes, ApiError> {
        let agent = self.agent.map(|id| id.parse::<AgentId>()).transpose();
        let session = self.session.map(|key| key.parse::<SessionKey>()).transpose();
        let refuse = |error| misnamed(&error);
        Ok(Wishes { agent: agent.map_err(refuse)?, session: session.map_err(refuse)? })
    }
}

/// Who is at the door: looked at before anything that was sent is read.
struct Who(Principal);

impl FromRequestParts<Arc<Gateway>> for Who {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, ApiError> {
        principal(gateway, parts).map(Self)
    }
}

/// Nobody comes in without being someone.
fn principal(gateway: &Gateway, request: &Parts) -> Result<Principal, ApiError> {
    let who = match rest::bearer(request.headers.get(AUTHORIZATION))? {
        Some(token) => gateway.check_token(token, &request.extensions)?,
        None => gateway.anonymous.clone().ok_or_else(|| {
            ApiError::new(
                "unauthorized",
                "this needs a token: send `Authorization: Bearer TOKEN` with the one in run/token",
            )
        })?,
    };
    match who {
        Principal::Approver(_) => Err(ApiError::forbidden("an approver decides, and has no sessions")),
        who => Ok(who),
    }
}

/// `GET /acp`: a WebSocket, or a stream of events for a connection over HTTP.
async fn came(
    Who(who): Who,
    State(gateway): State<Arc<Gateway>>,
    Extension(seat): Extension<Arc<ConnectionSlot>>,
    asked: RawQuery,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    match upgrade {
        Ok(upgrade) => match Asked::read(asked) {
            Ok(wishes) => socket::upgraded(gateway, seat, who, wishes, upgrade),
            Err(error) => error.into_response(),
        },
        Err(_) => http::listened(&gateway, &who, &headers),
    }
}
