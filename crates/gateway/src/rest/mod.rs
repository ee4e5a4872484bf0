//! `/v1`: the operations of [`super::api`] over plain HTTP, for the operator's scripts. The OpenAPI document is generated from
//! these functions.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tribune_sessions::canary::ClearMark;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::api_types::{
    AgentAdd, AgentInfo, AgentList, AgentTested, Cancelled, CheckpointInfo, DaemonStatus, Entries, EntryInfo,
    ErrorBody, Forgotten, History, LedgerTail, Newest, NoteWrite, NotesWritten, SessionInfo, SessionInit,
    SessionList, SessionPage, TurnContent, TurnResult, Turns,
};
use super::error::ApiError;
use super::principal::Principal;
use super::schema::Event;
use super::{Gateway, approvals_rest, decode, examples, external_gate, health, providers, workspaces};

/// Events read from a session in one batch.
const EVENTS_AT_ONCE: usize = 64;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tribune",
        description = "The operator's interface to the daemon: the operations of Tribune RPC (docs/guide/rpc.md) over plain HTTP. Requests under /v1 carry `Authorization: Bearer TOKEN` with the token in run/token of the daemon's home. Errors are `{\"error\": {\"code\", \"message\"}}`: a code for programs, a sentence for people. In examples `…` stands for omitted text, and a name in angle brackets for a value."
    ),
    security(("operator" = [])),
    components(schemas(Event)),
    paths(super::proxy::proxied),
    tags(
        (name = "health", description = "Pages for monitoring, without a token"),
        (name = "daemon", description = "The daemon itself"),
        (name = "sessions", description = "Conversations with agents, and their turns"),
        (name = "ledger", description = "The tamper-evident log"),
        (name = "agents", description = "The roster"),
        (name = "workspaces", description = "Changes of sandboxed runs, which people land"),
        (name = "models", description = "The model providers that agents use"),
        (name = "approvals", description = "Calls that wait for a person, and the people who may decide"),
        (name = "gate", description = "Policy decisions for other agent harnesses"),
        (name = "proxy", description = "The models of this instance, for programs with an SDK of their own")
    )
)]
struct Document;

/// The routes, with their OpenAPI document.
pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(health::router())
        .merge(approvals_rest::router())
        .merge(external_gate::router())
        .merge(providers::router())
        .merge(workspaces::router())
        .routes(routes!(status))
        .routes(routes!(session_list, session_init))
        .routes(routes!(session_status))
        .routes(routes!(session_cancel))
        .routes(routes!(session_close))
        .routes(routes!(session_forget))
        .routes(routes!(session_turns, turn_run))
        .routes(routes!(session_history))
        .routes(routes!(session_events))
        .routes(routes!(ledger_tail))
        .routes(routes!(ledger_entry))
        .routes(routes!(ledger_checkpoint))
        .routes(routes!(ledger_proof))
        .routes(routes!(ledger_note))
        .routes(routes!(agent_list, agent_add))
        .routes(routes!(agent_show))
        .routes(routes!(agent_test))
}

/// The OpenAPI document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = router().into_openapi();
    // The version of the interface, not of the program: the document changes only when the interface does.
    document.info.version = "1".to_owned();
    document.info.license = None;
    let components = document.components.get_or_insert_default();
    let token = Http::builder().scheme(HttpAuthScheme::Bearer).description(Some("the token in run/token"));
    components.add_security_scheme("operator", SecurityScheme::Http(token.build()));
    let codes = ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("a code for programs; docs/guide/rpc.md explains each"))
        .enum_values(Some(super::CODES.map(|(code, _, _)| code)));
    if let Some(RefOr::T(Schema::Object(error))) = components.schemas.get_mut("ErrorInfo") {
        error.properties.insert("code".to_owned(), codes.into());
    }
    examples::put_into(&mut document);
    document
}

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

/// The token in an `Authorization` header.
pub(super) fn bearer(header: Option<&axum::http::HeaderValue>) -> Result<Option<&str>, ApiError> {
    let Some(header) = header else { return Ok(None) };
    let malformed = || ApiError::new("unauthorized", "the Authorization header has the form `Bearer TOKEN`");
    let text = header.to_str().map_err(|_| malformed())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(malformed)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(Some(token.trim())) } else { Err(malformed()) }
}

/// Extracts a JSON body, with the error sentences of [`super::decode`].
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Gateway>> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, ApiError> {
        if !is_json(&request) {
            return Err(ApiError::params("the body is JSON: send `Content-Type: application/json`"));
        }
        let read = tokio::time::timeout(gateway.limits.idle, Bytes::from_request(request, gateway)).await;
        let late = || ApiError::new("invalid_request", "the body did not arrive within gateway.idleSeconds");
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

/// Extracts a query, with the error sentences of [`super::decode`].
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Gateway>> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Gateway>) -> Result<Self, ApiError> {
        decode::query(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

type App = State<Arc<Gateway>>;
type Answer<T> = Result<Json<T>, ApiError>;

/// The status of the daemon.
#[utoipa::path(get, path = "/v1/status", tag = "daemon", responses((status = 200, description = "the status", body = DaemonStatus), (status = "default", description = "an error", body = ErrorBody)))]
async fn status(State(app): App, Operator(who): Operator) -> Answer<DaemonStatus> {
    app.api.status(&who).await.map(Json)
}

/// Sessions, ordered by key.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(SessionList), responses((status = 200, description = "a page of sessions", body = SessionPage), (status = "default", description = "an error", body = ErrorBody)))]
async fn session_list(
    State(app): App,
    Operator(who): Operator,
    Asked(list): Asked<SessionList>,
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
    Asked(newest): Asked<Newest>,
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
    Asked(newest): Asked<Newest>,
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
    Asked(asked): Asked<After>,
    headers: axum::http::HeaderMap,
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
    let events = futures_util::StreamExt::flatten(events);
    Ok(axum::response::Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// The newest entries of the ledger, oldest first.
#[utoipa::path(get, path = "/v1/ledger/entries", tag = "ledger", params(LedgerTail), responses((status = 200, description = "the entries", body = Entries), (status = "default", description = "an error", body = ErrorBody)))]
async fn ledger_tail(
    State(app): App,
    Operator(who): Operator,
    Asked(tail): Asked<LedgerTail>,
) -> Answer<Entries> {
    app.api.ledger_tail(&who, tail).await.map(Json)
}

/// One entry, by index, CID or the CID's first digits.
#[utoipa::path(get, path = "/v1/ledger/entries/{entry}", tag = "ledger", params(("entry" = String, Path, description = "index, CID or its first digits")), responses((status = 200, description = "the entry", body = EntryInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn ledger_entry(
    State(app): App,
    Operator(who): Operator,
    Path(entry): Path<String>,
) -> Answer<EntryInfo> {
    app.api.ledger_entry(&who, entry).await.map(Json)
}

/// The newest signed checkpoint.
#[utoipa::path(get, path = "/v1/ledger/checkpoint", tag = "ledger", responses((status = 200, description = "the checkpoint", body = CheckpointInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn ledger_checkpoint(State(app): App, Operator(who): Operator) -> Answer<CheckpointInfo> {
    app.api.ledger_checkpoint(&who).await.map(Json)
}

/// A C2SP tlog-proof that an entry is in the log.
#[utoipa::path(get, path = "/v1/ledger/proofs/{entry}", tag = "ledger", params(("entry" = String, Path, description = "index, CID or its first digits")), responses((status = 200, description = "the proof", body = String, content_type = "text/plain"), (status = "default", description = "an error", body = ErrorBody)))]
async fn ledger_proof(
    State(app): App,
    Operator(who): Operator,
    Path(entry): Path<String>,
) -> Result<String, ApiError> {
    app.api.ledger_prove(&who, entry).await
}

/// Writes notes. Their text is public: everyone who gets an export can read it.
#[utoipa::path(post, path = "/v1/ledger/notes", tag = "ledger", request_body = NoteWrite, responses((status = 200, description = "where the notes were written", body = NotesWritten), (status = "default", description = "an error", body = ErrorBody)))]
async fn ledger_note(
    State(app): App,
    Operator(who): Operator,
    Body(note): Body<NoteWrite>,
) -> Answer<NotesWritten> {
    app.api.ledger_note(&who, note).await.map(Json)
}

/// The roster, and unregistered agents that were seen.
#[utoipa::path(get, path = "/v1/agents", tag = "agents", responses((status = 200, description = "the agents", body = AgentList), (status = "default", description = "an error", body = ErrorBody)))]
async fn agent_list(State(app): App, Operator(who): Operator) -> Answer<AgentList> {
    app.api.agents(&who).await.map(Json)
}

/// Adds an agent to the roster.
#[utoipa::path(post, path = "/v1/agents", tag = "agents", request_body = AgentAdd, responses((status = 200, description = "the agent", body = AgentInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn agent_add(State(app): App, Operator(who): Operator, Body(add): Body<AgentAdd>) -> Answer<AgentInfo> {
    app.api.agent_add(&who, add).await.map(Json)
}

/// Tests whether the gate holds an agent: makes it attempt something harmless that must be refused. Takes seconds.
#[utoipa::path(post, path = "/v1/agents/{agent}/test", tag = "agents", params(("agent" = String, Path, description = "agent id")), responses((status = 200, description = "the result of the test", body = AgentTested), (status = "default", description = "an error", body = ErrorBody)))]
async fn agent_test(
    State(app): App,
    Operator(who): Operator,
    Path(agent): Path<String>,
) -> Answer<AgentTested> {
    app.api.agent_test(&who, &agent, ClearMark::No).await.map(Json)
}

/// One agent.
#[utoipa::path(get, path = "/v1/agents/{agent}", tag = "agents", params(("agent" = String, Path, description = "agent id")), responses((status = 200, description = "the agent", body = AgentInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn agent_show(
    State(app): App,
    Operator(who): Operator,
    Path(agent): Path<String>,
) -> Answer<AgentInfo> {
    app.api.agent(&who, &agent).await.map(Json)
}
