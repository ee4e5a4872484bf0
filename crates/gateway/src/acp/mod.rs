//! The Agent Client Protocol (ACP) endpoint for editors: Tribune as an ACP agent, at `/acp`.
//!
//! There are three transports: a WebSocket ([`socket`]), streamable HTTP ([`http`]), and `tribune acp`, which copies the lines of
//! an editor to a WebSocket. A client is authenticated before its first message is read, as on every other endpoint. A client's
//! session is an ordinary Tribune session: it outlives the client, and its permission requests wait in the inbox, where the first
//! answer decides ([`permission`]). The endpoint never uses the client's own files or terminals: Tribune executes what an agent
//! does, under its constitution.

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
use connection::ConnectQuery;
use serde::Deserialize;
use tribune_runtime::{AgentId, SessionKey};

use self::http::HttpConnections;
use crate::bearer::bearer;
use crate::connection_limit::ConnectionSlot;
use crate::decode;
use crate::error::{ApiError, misnamed};
use crate::gateway::Gateway;
use crate::principal::Principal;

/// The path of the endpoint.
const PATH: &str = "/acp";

pub(super) fn router() -> Router<Arc<Gateway>> {
    let endpoint = get(connect).post(http::post_message).delete(http::end_connection);
    Router::new().route(PATH, endpoint.layer(Extension(Arc::new(HttpConnections::default()))))
}

/// The query parameters: the agent of new sessions, and the session to resume.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    agent: Option<String>,
    session: Option<String>,
}

impl Asked {
    /// Parses the query. The error does not repeat an invalid name.
    fn read(RawQuery(query): RawQuery) -> Result<ConnectQuery, ApiError> {
        decode::query::<Self>(query.as_deref().unwrap_or_default())?.checked()
    }

    fn checked(self) -> Result<ConnectQuery, ApiError> {
        let agent = self.agent.map(|id| id.parse::<AgentId>()).transpose();
        let session = self.session.map(|key| key.parse::<SessionKey>()).transpose();
        let refuse = |error| misnamed(&error);
        Ok(ConnectQuery { agent: agent.map_err(refuse)?, session: session.map_err(refuse)? })
    }
}

/// The principal of a request. Extracted before the body is read.
struct Who(Principal);

impl FromRequestParts<Arc<Gateway>> for Who {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, ApiError> {
        principal(gateway, parts).map(Self)
    }
}

/// Authenticates a request. Anonymous callers are accepted only if the configuration allows them.
fn principal(gateway: &Gateway, request: &Parts) -> Result<Principal, ApiError> {
    let who = match bearer(request.headers.get(AUTHORIZATION))? {
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

/// `GET /acp`: a WebSocket, or an event stream of an HTTP connection.
async fn connect(
    Who(who): Who,
    State(gateway): State<Arc<Gateway>>,
    Extension(slot): Extension<Arc<ConnectionSlot>>,
    Extension(connections): Extension<Arc<HttpConnections>>,
    asked: RawQuery,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    match upgrade {
        Ok(upgrade) => match Asked::read(asked) {
            Ok(query) => socket::upgraded(gateway, slot, who, query, upgrade),
            Err(error) => error.into_response(),
        },
        Err(_) => http::open_stream(&connections, &who, &headers),
    }
}
