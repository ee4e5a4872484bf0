//! ACP over streamable HTTP. The client sends messages with `POST`; the daemon sends server-sent events, on one stream for the
//! connection and one for each session.
//!
//! `POST` with `initialize` opens a connection and returns the response; every other message is accepted (202) and answered on a
//! stream. `GET` opens a stream; `DELETE` ends the connection. A connection belongs to the principal that opened it. A connection
//! without a stream and without messages is closed after [`ABANDONED`]; its sessions live on.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;
use tokio::sync::Notify;

use super::connection::{Connection, Outgoing};
use super::{Asked, Who};
use crate::error::ApiError;
use crate::gateway::Gateway;
use crate::principal::Principal;
use crate::send_queue::SendReceiver;

pub(super) const CONNECTION_ID: &str = "acp-connection-id";
const SESSION_ID: &str = "acp-session-id";

/// Maximum concurrent connections: each buffers messages that its client has not fetched.
const MAX_CONNECTIONS: usize = 256;

/// Streams of one connection, and the bytes that all of them together buffer for a client that does not read.
const MAX_STREAMS: usize = 513;
const MAX_BUFFERED_BYTES: usize = 32 << 20;

/// How long a connection without an open stream is kept after its last message.
const ABANDONED: Duration = Duration::from_secs(120);

/// Interval of keep-alive comments on an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The HTTP connections, by connection id.
#[derive(Default)]
pub(super) struct HttpConnections(Mutex<HashMap<String, Arc<HttpConnection>>>);

impl std::fmt::Debug for HttpConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HttpConnections")
    }
}

/// One HTTP connection.
struct HttpConnection {
    client: Arc<Connection>,
    streams: Mutex<Streams>,
    /// Notified when a message is queued, or the connection ends.
    wakeup: Notify,
}

#[derive(Default)]
struct Streams {
    /// Queued messages by session id; the connection's own stream has an empty id.
    waiting: HashMap<String, Stream>,
    buffered_bytes: usize,
    last_seen: Option<Instant>,
    is_over: bool,
}

#[derive(Default)]
struct Stream {
    messages: VecDeque<String>,
    has_listener: bool,
}

impl HttpConnection {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        self.streams().last_seen = Some(Instant::now());
    }

    fn is_abandoned(&self) -> bool {
        let streams = self.streams();
        let has_any_listener = streams.waiting.values().any(|stream| stream.has_listener);
        !has_any_listener && streams.last_seen.is_none_or(|last_seen| last_seen.elapsed() > ABANDONED)
    }

    /// Queues a message on its stream. Returns false if a bound is exceeded because the client does not fetch its messages.
    fn deliver(&self, message: Outgoing) -> bool {
        let mut streams = self.streams();
        let listens = |name: &String| streams.waiting.get(name).is_some_and(|stream| stream.has_listener);
        // The response to `session/load` goes to the stream that carried the replay, if that has a listener, because there is no
        // order between two streams.
        let name = message.session.or_else(|| message.behind.filter(listens)).unwrap_or_default();
        if !streams.waiting.contains_key(&name) && streams.waiting.len() >= MAX_STREAMS {
            return false;
        }
        streams.buffered_bytes += message.text.len();
        if streams.buffered_bytes > MAX_BUFFERED_BYTES {
            return false;
        }
        streams.waiting.entry(name).or_default().messages.push_back(message.text);
        drop(streams);
        self.wakeup.notify_waiters();
        true
    }

    fn end(&self) {
        self.streams().is_over = true;
        self.client.leave();
        self.wakeup.notify_waiters();
    }
}

impl HttpConnections {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<HttpConnection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that a request names, if it belongs to the caller.
    fn of(&self, who: &Principal, headers: &HeaderMap) -> Result<Arc<HttpConnection>, ApiError> {
        let Some(id) = text(headers, CONNECTION_ID) else {
            return Err(ApiError::params("the header Acp-Connection-Id is missing: `initialize` gives one"));
        };
        // A connection of another principal is reported as not found.
        let found = self.all().get(id).filter(|connection| connection.client.who == *who).cloned();
        found
            .ok_or_else(|| ApiError::new("not_found", "there is no such connection: begin with `initialize`"))
    }

    fn end(&self, id: &str) {
        if let Some(connection) = self.all().remove(id) {
            connection.end();
        }
    }

    /// Ends abandoned connections.
    fn sweep(&self) {
        let abandoned: Vec<String> = {
            let all = self.all();
            all.iter().filter(|(_, connection)| connection.is_abandoned()).map(|(id, _)| id.clone()).collect()
        };
        for id in abandoned {
            self.end(&id);
        }
    }
}

/// An unguessable id.
pub(super) fn new_id() -> String {
    let mut random = [0_u8; 16];
    // The random source works: without it, the daemon could not have created its keys.
    let _ = getrandom::fill(&mut random);
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// `POST /acp`: one message of the client.
pub(super) async fn post_message(
    Who(who): Who,
    State(gateway): State<Arc<Gateway>>,
    Extension(connections): Extension<Arc<HttpConnections>>,
    asked: RawQuery,
    headers: HeaderMap,
    body: Result<String, axum::extract::rejection::StringRejection>,
) -> Response {
    match post(&gateway, &connections, who, asked, &headers, body).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn post(
    gateway: &Arc<Gateway>,
    connections: &Arc<HttpConnections>,
    who: Principal,
    asked: RawQuery,
    headers: &HeaderMap,
    body: Result<String, axum::extract::rejection::StringRejection>,
) -> Result<Response, ApiError> {
    let kind =
        text(headers, CONTENT_TYPE.as_str()).and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if !kind.trim().eq_ignore_ascii_case("application/json") {
        let what = "the content type must be application/json";
        return Ok(
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, ApiError::params(what).into_response()).into_response()
        );
    }
    let body = body.map_err(|error| match error.into_response().status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::new("too_large", "the message is larger than gateway.maxMessageBytes")
        }
        _ => ApiError::params("the message is not UTF-8"),
    })?;
    let message: Value = serde_json::from_str(&body).unwrap_or_default();
    if message["method"] == "initialize" && message.get("id").is_some() {
        if headers.contains_key(CONNECTION_ID) {
            return Err(ApiError::params("`initialize` opens a connection, but this one is already open"));
        }
        let query = Asked::read(asked)?;
        let (connection, messages) = Connection::new(Arc::clone(gateway), who, query);
        return open(gateway, connections, connection, messages, &body).await;
    }
    let connection = connections.of(&who, headers)?;
    connection.touch();
    let of_header = text(headers, SESSION_ID);
    if let Some(of_params) = message["params"]["sessionId"].as_str()
        && of_header != Some(of_params)
    {
        return Err(ApiError::params(
            "the header Acp-Session-Id differs from the `sessionId` of the message: send the same value",
        ));
    }
    if !connection.client.has_room() {
        return Err(ApiError::new(
            "too_many_requests",
            "too many requests of this connection are in flight: fetch the responses first",
        ));
    }
    connection.client.receive(&body);
    Ok(StatusCode::ACCEPTED.into_response())
}

/// Opens a connection and returns the response to `initialize`.
async fn open(
    gateway: &Arc<Gateway>,
    connections: &Arc<HttpConnections>,
    connection: Arc<Connection>,
    mut messages: SendReceiver<Outgoing>,
    body: &str,
) -> Result<Response, ApiError> {
    connections.sweep();
    connection.receive(body);
    let Some(first) = messages.recv().await else {
        return Err(ApiError::new("internal", "the connection ended before it began"));
    };
    let json = [(CONTENT_TYPE.as_str(), "application/json")];
    let is_refused =
        serde_json::from_str::<Value>(&first.text).is_ok_and(|answer| answer.get("error").is_some());
    if is_refused {
        connection.leave();
        return Ok((StatusCode::BAD_REQUEST, json, first.text).into_response());
    }
    let (id, connection) = (
        new_id(),
        Arc::new(HttpConnection { client: connection, streams: Mutex::default(), wakeup: Notify::new() }),
    );
    connection.touch();
    {
        let mut all = connections.all();
        if all.len() >= MAX_CONNECTIONS {
            connection.client.leave();
            let what = format!("{MAX_CONNECTIONS} connections over HTTP are open: end one with DELETE");
            return Err(ApiError::new("too_many_connections", what));
        }
        all.insert(id.clone(), Arc::clone(&connection));
    }
    let (own, all, name) = (Arc::clone(gateway), Arc::clone(connections), id.clone());
    gateway.tasks.spawn(async move {
        carry(&own, &connection, messages).await;
        all.end(&name);
    });
    Ok((StatusCode::OK, json, [(CONNECTION_ID, id)], first.text).into_response())
}

/// Moves messages to their streams until the connection ends.
async fn carry(gateway: &Gateway, connection: &HttpConnection, mut messages: SendReceiver<Outgoing>) {
    let mut look = tokio::time::interval(ABANDONED);
    loop {
        tokio::select! {
            message = messages.recv() => {
                let Some(message) = message else { return };
                if !connection.deliver(message) {
                    return;
                }
            }
            _ = look.tick() => {
                if connection.is_abandoned() {
                    return;
                }
            }
            () = connection.client.gone.cancelled() => return,
            () = gateway.stopping.cancelled() => return,
        }
    }
}

/// `GET /acp` without an upgrade: an event stream.
pub(super) fn open_stream(connections: &HttpConnections, who: &Principal, headers: &HeaderMap) -> Response {
    if !text(headers, ACCEPT.as_str()).is_some_and(|accept| accept.contains("text/event-stream")) {
        let what = "this is ACP: upgrade to a WebSocket, or accept text/event-stream";
        return (StatusCode::NOT_ACCEPTABLE, ApiError::params(what).into_response()).into_response();
    }
    let connection = match connections.of(who, headers) {
        Ok(connection) => connection,
        Err(error) => return error.into_response(),
    };
    let name = text(headers, SESSION_ID).unwrap_or_default().to_owned();
    let listener = {
        let mut streams = connection.streams();
        if !streams.waiting.contains_key(&name) && streams.waiting.len() >= MAX_STREAMS {
            return ApiError::new("too_many_requests", "this connection has too many streams: end one")
                .into_response();
        }
        let stream = streams.waiting.entry(name.clone()).or_default();
        if std::mem::replace(&mut stream.has_listener, true) {
            return ApiError::new("conflict", "this stream already has a listener").into_response();
        }
        Listener { connection: Arc::clone(&connection), name }
    };
    let events = futures_util::stream::unfold(listener, |listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    let head = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    (head, Body::from_stream(events)).into_response()
}

/// The open response of one stream.
struct Listener {
    connection: Arc<HttpConnection>,
    name: String,
}

impl Listener {
    /// The next event, or a keep-alive comment; `None` when the connection has ended.
    async fn next(&self) -> Option<String> {
        loop {
            let wakeup = self.connection.wakeup.notified();
            let mut wakeup = std::pin::pin!(wakeup);
            // Registered before the queue is checked, so that a message in between is not missed.
            wakeup.as_mut().enable();
            {
                let mut streams = self.connection.streams();
                let message =
                    streams.waiting.get_mut(&self.name).and_then(|stream| stream.messages.pop_front());
                if let Some(message) = message {
                    streams.buffered_bytes -= message.len();
                    return Some(format!("data: {message}\n\n"));
                }
                if streams.is_over {
                    return None;
                }
            }
            if tokio::time::timeout(KEEP_ALIVE, wakeup).await.is_err() {
                return Some(": still here\n\n".to_owned());
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut streams = self.connection.streams();
        streams.last_seen = Some(Instant::now());
        if let Some(stream) = streams.waiting.get_mut(&self.name) {
            stream.has_listener = false;
            if stream.messages.is_empty() {
                streams.waiting.remove(&self.name);
            }
        }
    }
}

/// `DELETE /acp`: ends a connection.
pub(super) async fn end_connection(
    Who(who): Who,
    Extension(connections): Extension<Arc<HttpConnections>>,
    headers: HeaderMap,
) -> Response {
    match connections.of(&who, &headers) {
        Ok(_) => {
            connections.end(text(&headers, CONNECTION_ID).unwrap_or_default());
            StatusCode::ACCEPTED.into_response()
        }
        Err(error) => error.into_response(),
    }
}
