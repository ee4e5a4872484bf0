//! `/v1/sessions`: sessions, their turns and their events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Body, Operator, UrlQuery};
use super::{Answer, App};
use crate::api_types::{
    Cancelled, ErrorBody, Forgotten, History, Newest, SessionInfo, SessionInit, SessionList, SessionPage,
    TurnContent, TurnResult, Turns,
};
use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::schema::Event;

/// Events read from a session in one batch.
const EVENTS_AT_ONCE: usize = 64;

pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::new()
        .routes(routes!(session_list, session_init))
        .routes(routes!(session_status))
        .routes(routes!(session_cancel))
        .routes(routes!(session_close))
        .routes(routes!(session_forget))
        .routes(routes!(session_turns, turn_run))
        .routes(routes!(session_history))
        .routes(routes!(session_events))
}

/// Sessions, ordered by key.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(SessionList), responses((status = 200, description = "a page of sessions", body = SessionPage), (status = "default", description = "an error", body = ErrorBody)))]
async fn session_list(
    State(app): App,
    Operator(who): Operator,
    UrlQuery(list): UrlQuery<SessionList>,
) -> Answer<SessionPage> {
    app.api.session_list(&who, list).await.map(Json)
}

/// Opens a session, or finds it open.
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = SessionInit, responses((status = 200, description = "the session", body = SessionInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn session_init(
    State(app): App,
    Operator(who): Operator,
    Body(init): Body<SessionInit>,
) -> Answer<SessionInfo> {
    app.api.session_init(&who, init).await.map(Json)
}

/// One session.
#[utoipa::path(get, path = "/v1/sessions/{key}", tag = "sessions", params(("key" = String, Path, description = "session key")), responses((status = 200, description = "the session", body = SessionInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn session_status(
    State(app): App,
    Operator(who): Operator,
    Path(key): Path<String>,
) -> Answer<SessionInfo> {
    app.api.session_status(&who, &key).await.map(Json)
}

/// Cancels the running turn.
#[utoipa::path(post, path = "/v1/sessions/{key}/cancel", tag = "sessions", params(("key" = String, Path, description = "session key")), responses((status = 200, description = "whether a turn was running", body = Cancelled), (status = "default", description = "an error", body = ErrorBody)))]
async fn session_cancel(
    State(app): App,
    Operator(who): Operator,
    Path(key): Path<String>,
) -> Answer<Cancelled> {
    app.api.session_cancel(&who, &key).await.map(Json)
}

/// Closes a session: ends its turn and refuses queued turns.
#[utoipa::path(post, path = "/v1/sessions/{key}/close", tag = "sessions", params(("key" = String, Path, description = "session key")), responses((status = 200, description = "the session", body = SessionInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn session_close(
    State(app): App,
    Operator(who): Operator,
    Path(key): Path<String>,
) -> Answer<SessionInfo> {
    app.api.session_close(&who, &key).await.map(Json)
}

/// Closes a session and shreds its content. The ledger still verifies.
#[utoipa::path(delete, path = "/v1/sessions/{key}/content", tag = "sessions", params(("key" = String, Path, description = "session key")), responses((status = 200, description = "the entry that records it", body = Forgotten), (status = "default", description = "an error", body = ErrorBody)))]
async fn session_forget(
    State(app): App,
    Operator(who): Operator,
    Path(key): Path<String>,
) -> Answer<Forgotten> {
    app.api.session_forget(&who, &key).await.map(Json)
}

/// The newest turns of a session, oldest first.
#[utoipa::path(get, path = "/v1/sessions/{key}/turns", tag = "sessions", params(("key" = String, Path, description = "session key"), Newest), responses((status = 200, description = "the turns", body = Turns), (status = "default", description = "an error", body = ErrorBody)))]
async fn session_turns(
    State(app): App,
    Operator(who): Operator,
    Path(key): Path<String>,
    UrlQuery(newest): UrlQuery<Newest>,
) -> Answer<Turns> {
    app.api.session_turns(&who, &key, newest.limit).await.map(Json)
}

/// A turn to run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TurnPost {
    input: TurnContent,
    /// Answer at the turn's end. With `false`: answer when the input is durable.
    #[serde(default = "yes")]
    wait: bool,
}

const fn yes() -> bool {
    true
}

/// Runs a turn. Its events are at `/v1/sessions/{key}/events`.
#[utoipa::path(post, path = "/v1/sessions/{key}/turns", tag = "sessions", params(("key" = String, Path, description = "session key")), request_body = TurnPost, responses((status = 200, description = "the turn; with `wait` false, without its end", body = TurnResult), (status = "default", description = "an error", body = ErrorBody)))]
async fn turn_run(
    State(app): App,
    Operator(who): Operator,
    Path(key): Path<String>,
    Body(turn): Body<TurnPost>,
) -> Answer<TurnResult> {
    let (key, ticket) = app.api.turn_run(&who, &key, turn.input.content).await?;
    app.api.turn_result(key, ticket, turn.wait).await.map(Json)
}

/// The newest messages of a session, oldest first, with their content unless it was shredded.
#[utoipa::path(get, path = "/v1/sessions/{key}/history", tag = "sessions", params(("key" = String, Path, description = "session key"), Newest), responses((status = 200, description = "the messages", body = History), (status = "default", description = "an error", body = ErrorBody)))]
async fn session_history(
    State(app): App,
    Operator(who): Operator,
    Path(key): Path<String>,
    UrlQuery(newest): UrlQuery<Newest>,
) -> Answer<History> {
    app.api.session_history(&who, &key, newest.limit).await.map(Json)
}

/// Where to start following.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct After {
    /// The last `seq` that was received; without it, from the oldest event that is kept. A `Last-Event-ID` header has
    /// precedence.
    after: Option<u64>,
}

/// A session's events as they come, as server-sent events.
///
/// A client that lost the connection resumes with `Last-Event-ID`, and receives every event exactly once. The stream ends
/// when the session is closed.
#[utoipa::path(get, path = "/v1/sessions/{key}/events", tag = "sessions", params(("key" = String, Path, description = "session key"), ("Last-Event-ID" = Option<u64>, Header, description = "the last `seq` that was received"), After), responses((status = 200, description = "`id` is the `seq`, `data` an Event as JSON", body = Event, content_type = "text/event-stream"), (status = "default", description = "an error", body = ErrorBody)))]
async fn session_events(
    State(app): App,
    Operator(who): Operator,
    Path(key): Path<String>,
    UrlQuery(asked): UrlQuery<After>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let last = match headers.get("last-event-id") {
        None => asked.after,
        Some(id) => {
            let seq = id.to_str().ok().and_then(|id| id.parse().ok());
            Some(seq.ok_or_else(|| ApiError::params("Last-Event-ID is the number of an event"))?)
        }
    };
    let (_, subscription) = app.api.subscribe(&who, &key, last).await?;
    let stopping = app.stopping.clone();
    let events = stream::unfold(Some((subscription, stopping)), |state| async {
        let (mut subscription, stopping) = state?;
        let events = tokio::select! {
            events = subscription.next(EVENTS_AT_ONCE) => events.ok().filter(|events| !events.is_empty())?,
            () = stopping.cancelled() => return None,
        };
        let frames: Vec<Result<Sse, Infallible>> = events
            .iter()
            .map(|event| Ok(Sse::default().id(event.seq.to_string()).data(&event.json)))
            .collect();
        Some((stream::iter(frames), Some((subscription, stopping))))
    });
    Ok(axum::response::Sse::new(events.flatten()).keep_alive(KeepAlive::default()).into_response())
}
