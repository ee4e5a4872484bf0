//! The gateway: one listener for WebSocket RPC, REST, ACP, the model proxy and the health pages. It checks the `Host` and
//! `Origin` headers of every request, resolves the caller to a principal, and bounds connections, messages and time.
//! It makes no policy decision about what an agent does; the gate in `tribune-governance` does.

mod acp;
mod active_streams;
mod api;
pub mod api_types;
pub mod approvals;
mod approvals_rest;
pub mod approvers;
mod connection_limit;
mod decode;
mod error;
mod examples;
pub mod external_gate;
mod health;
mod metrics;
mod principal;
pub mod providers;
pub mod proxy;
mod rest;
mod rpc;
mod runs;
pub mod schema;
mod send_queue;
mod socket;
pub mod status;
mod validate_content;
pub mod views;
pub mod workspaces;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use api::{Api, MAX_NOTE_BYTES};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{Extensions, HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use axum::{Extension, Json, Router};
pub use error::{ApiError, CODES};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
pub use principal::{Authenticator, Principal, challenge_text};
pub use proxy::{Proxy, ProxyParts, SessionModel};
pub use rest::openapi;
pub use rpc::METHODS;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connection_limit::{ConnectionLimit, ConnectionSlot};
use self::metrics::Metrics;

/// Pause after a failed `accept`, which usually means that the machine is out of file descriptors.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// Read buffer of a WebSocket connection. Large frames grow it; idle connections stay small.
const READ_BUFFER: usize = 4 << 10;

/// Write buffer of a WebSocket connection: frames that are queued together go out in one write.
const WRITE_BUFFER: usize = 16 << 10;

/// Limits of the gateway.
#[derive(Debug, Clone)]
pub struct GatewayLimits {
    pub max_connections: usize,
    pub max_message_bytes: usize,
    pub idle: Duration,
    pub patience: Timeouts,
}

/// How long the peer of a connection may take. Only tests need other values, so the configuration does not have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// To send the head of an HTTP request.
    pub head: Duration,
    /// To authenticate on a WebSocket.
    pub authenticate: Duration,
    /// To take one frame. A reader that is slower is disconnected; it can resume with `session.events`.
    pub slow_reader: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            authenticate: Duration::from_secs(15),
            slow_reader: Duration::from_secs(20),
        }
    }
}

/// Accepted `Host` and `Origin` values: the defence against DNS rebinding and cross-site requests.
#[derive(Debug, Clone)]
pub struct Names {
    /// Values of the `Host` header that name this daemon.
    pub hosts: Vec<String>,
    /// Origins whose pages may call the daemon.
    pub origins: Vec<String>,
}

impl Names {
    /// The loopback names of this address, and those that the configuration adds.
    pub fn new(address: SocketAddr, hosts: &[String], origins: &[String]) -> Self {
        let port = address.port();
        let own = [
            format!("127.0.0.1:{port}"),
            format!("localhost:{port}"),
            format!("[::1]:{port}"),
            address.to_string(),
        ];
        let own_origins = own.iter().map(|host| format!("http://{host}"));
        Self {
            origins: own_origins.chain(origins.iter().map(|origin| origin.to_ascii_lowercase())).collect(),
            hosts: own.iter().cloned().chain(hosts.iter().map(|host| host.to_ascii_lowercase())).collect(),
        }
    }
}

/// State that all connections share.
#[derive(Debug)]
pub struct Gateway {
    pub api: Api,
    pub doorman: Authenticator,
    pub names: Names,
    pub limits: GatewayLimits,
    /// The principal of a caller that proved nothing; `None` if anonymous callers are refused.
    pub anonymous: Option<Principal>,
    /// Cancelled when connections must end.
    pub stopping: CancellationToken,
    pub tasks: TaskTracker,
    metrics: Arc<Metrics>,
    connection_limit: Arc<ConnectionLimit>,
    /// ACP clients that connect over HTTP.
    visits: acp::Visits,
}

/// What [`Gateway::new`] needs.
#[derive(Debug)]
pub struct Parts {
    pub api: Api,
    pub doorman: Authenticator,
    pub names: Names,
    pub limits: GatewayLimits,
    pub anonymous: Option<Principal>,
    pub stopping: CancellationToken,
}

impl Gateway {
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { api, doorman, names, limits, anonymous, stopping } = parts;
        let (tasks, metrics) = (api.proxy.tasks.clone(), Arc::clone(&api.proxy.metrics));
        let connection_limit = ConnectionLimit::new(limits.max_connections, Arc::clone(&api.status));
        let visits = acp::Visits::default();
        Arc::new(Self {
            api,
            doorman,
            names,
            limits,
            anonymous,
            stopping,
            tasks,
            metrics,
            connection_limit,
            visits,
        })
    }

    /// Resolves the token of a request to its principal. The connection counts as that principal's from then on.
    fn check_token(&self, token: &str, request: &Extensions) -> Result<Principal, ApiError> {
        let who = self.doorman.check_token(token).inspect_err(|_| self.metrics.auth_failed())?;
        if let Some(slot) = request.get::<Arc<ConnectionSlot>>() {
            slot.is_of(who.standing());
        }
        Ok(who)
    }

    /// Accepts connections until `accepting` is cancelled, then waits until the open ones have ended.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, accepting: CancellationToken) {
        let router = router(Arc::clone(&self));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = accepting.cancelled() => break,
            };
            match accepted {
                Ok((stream, _)) => self.accept(stream, router.clone()),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(OUT_OF_DESCRIPTORS).await;
                }
            }
        }
        drop(listener);
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn accept(self: &Arc<Self>, stream: TcpStream, router: Router) {
        let slot = self.connection_limit.take().map(Arc::new);
        let gateway = Arc::clone(self);
        self.tasks.spawn(async move {
            // Small frames go out at once; if the option cannot be set, only speed suffers.
            let _ = stream.set_nodelay(true);
            match slot {
                Some(slot) => gateway.connection(stream, router, slot).await,
                None => refuse_full(stream).await,
            }
        });
    }

    async fn connection(&self, stream: TcpStream, router: Router, slot: Arc<ConnectionSlot>) {
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.patience.head)
            .max_buf_size(64 << 10)
            .keep_alive(true);
        let router = TowerToHyperService::new(router);
        let request_slot = Arc::clone(&slot);
        let service = hyper::service::service_fn(move |mut request| {
            request.extensions_mut().insert(Arc::clone(&request_slot));
            hyper::service::Service::call(&router, request)
        });
        let serving = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            // A peer that disconnects is normal.
            _ = serving.as_mut() => {}
            () = slot.gone() => {}
            () = self.stopping.cancelled() => {
                serving.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(Duration::from_secs(2), serving).await;
            }
        }
    }
}

/// Answers a connection beyond the limit with a 503 instead of closing it silently.
async fn refuse_full(stream: TcpStream) {
    let body = json!({ "error": { "code": "too_many_connections", "message": "gateway.maxConnections are open: close some" } });
    let body = body.to_string();
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        let (mut read, mut write) = stream.into_split();
        if write.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        // Closing with unread input would reset the connection, and the answer could be lost.
        drop(write);
        let mut unread = [0; 1024];
        while read.read(&mut unread).await.is_ok_and(|bytes| bytes > 0) {}
    })
    .await;
}

fn router(gateway: Arc<Gateway>) -> Router {
    let (rest, document) = rest::router().split_for_parts();
    drop(document);
    let document = Arc::new(serde_json::to_value(openapi()).unwrap_or_default());
    Router::new()
        .route("/", get(front_door))
        .route("/rpc", get(front_door))
        .route("/v1/openapi.json", get(move || async move { Json((*document).clone()) }))
        .merge(acp::router())
        .merge(rest)
        .route("/v1/proxy/{provider}/{*path}", any(proxy::proxied))
        .fallback(|| async {
            ApiError::new("not_found", "there is no such path: /v1/openapi.json lists the paths")
        })
        .method_not_allowed_fallback(|| async {
            (
                StatusCode::METHOD_NOT_ALLOWED,
                ApiError::new("method_not_found", "this path does not take this HTTP method").into_response(),
            )
                .into_response()
        })
        .layer(DefaultBodyLimit::max(gateway.limits.max_message_bytes))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&gateway), check_names))
        .with_state(gateway)
}

/// Refuses requests with a foreign `Host` or `Origin`. A page on a foreign site can make a browser call the daemon, by its
/// address or by a name that resolves to it (DNS rebinding), but cannot make the browser forge these headers.
async fn check_names(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    match check_headers(&gateway.names, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check_headers(names: &Names, headers: &HeaderMap) -> Result<(), ApiError> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).map(str::to_ascii_lowercase);
    if hosts.next().is_some() || host.is_none_or(|host| !names.hosts.contains(&host)) {
        return Err(ApiError::new(
            "foreign_host",
            "the Host header does not name this daemon: use its address, or add the name to gateway.hosts",
        ));
    }
    for origin in headers.get_all(ORIGIN) {
        let origin = origin.to_str().map(str::to_ascii_lowercase).unwrap_or_default();
        if !names.origins.contains(&origin) {
            return Err(ApiError::new(
                "foreign_origin",
                "pages of this origin may not talk to the daemon: add it to gateway.origins if they should",
            ));
        }
    }
    Ok(())
}

/// `/` and `/rpc`: upgrades to a WebSocket, or answers a plain request with a hint for people.
async fn front_door(
    State(gateway): State<Arc<Gateway>>,
    Extension(slot): Extension<Arc<ConnectionSlot>>,
    extensions: Extensions,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Response {
    let principal = match rest::bearer(headers.get(AUTHORIZATION)) {
        Ok(Some(token)) => match gateway.check_token(token, &extensions) {
            Ok(principal) => Some(principal),
            Err(error) => return error.into_response(),
        },
        Ok(None) => gateway.anonymous.clone(),
        Err(error) => return error.into_response(),
    };
    let Ok(upgrade) = upgrade else {
        let hint = "This is Tribune. Programs speak JSON-RPC 2.0 over a WebSocket here, or REST under /v1 (see /v1/openapi.json).\n";
        return hint.into_response();
    };
    let limit = gateway.limits.max_message_bytes;
    let upgrade = upgrade
        .max_message_size(limit)
        .max_frame_size(limit)
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_write_buffer_size(limit.max(1 << 20));
    let tasks = gateway.tasks.clone();
    upgrade.on_upgrade(move |socket| async move {
        // Tracked, so that the stop waits for it.
        let serving = tasks.spawn(socket::serve(gateway, socket, principal, slot));
        let _ = serving.await;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_daemons_own_hosts_and_origins_are_accepted() {
        let names = Names::new(
            "127.0.0.1:18789".parse().unwrap(),
            &["Tribune.example".into()],
            &["https://App.example".into()],
        );
        let check = |host: Option<&str>, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(HOST, host.parse().unwrap());
            }
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            check_headers(&names, &headers).map_err(|error| error.code)
        };
        for host in
            ["127.0.0.1:18789", "localhost:18789", "LOCALHOST:18789", "[::1]:18789", "tribune.example"]
        {
            assert_eq!(check(Some(host), None), Ok(()), "{host}");
        }
        for host in
            [None, Some("evil.example"), Some("127.0.0.1"), Some("127.0.0.1:18789.evil.example"), Some("")]
        {
            assert_eq!(check(host, None), Err("foreign_host"), "{host:?}");
        }
        let own = Some("localhost:18789");
        for origin in ["http://localhost:18789", "https://app.example"] {
            assert_eq!(check(own, Some(origin)), Ok(()), "{origin}");
        }
        for origin in [
            "null",
            "https://evil.example",
            "http://localhost:18789.evil.example",
            "https://localhost:18789",
            "",
        ] {
            assert_eq!(check(own, Some(origin)), Err("foreign_origin"), "{origin}");
        }
    }
}
