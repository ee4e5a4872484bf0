//! The listener: accepts connections up to the limit, checks the `Host` and `Origin` headers of every request, and routes it to
//! WebSocket RPC, REST, ACP or the model proxy.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::{Authority, Scheme};
use axum::http::{Extensions, HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::bearer::bearer;
use crate::client_stream::ClientStream;
use crate::connection_limit::ConnectionSlot;
use crate::error::ApiError;
use crate::gateway::{Gateway, Names, READ_BUFFER, WRITE_BUFFER};
use crate::request_limits::{bound_body, end_connection, is_unguarded, refuse_head};
use crate::{acp, rest, socket};

/// Pause after a failed `accept`, which usually means that the machine is out of file descriptors.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

impl Gateway {
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
            .header_read_timeout(self.limits.timeouts.head)
            .max_buf_size(64 << 10)
            .keep_alive(true);
        let router = TowerToHyperService::new(router);
        let request_slot = Arc::clone(&slot);
        let body_time = self.limits.body_time();
        let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            request_slot.handled();
            request.extensions_mut().insert(Arc::clone(&request_slot));
            let (refused, is_last) = (refuse_head(&request), is_unguarded(&request));
            let request = bound_body(request.map(Body::new), body_time);
            let answer = hyper::service::Service::call(&router, request);
            async move {
                let mut response = match refused {
                    Some(refused) => refused,
                    None => answer.await?,
                };
                if is_last {
                    end_connection(&mut response);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let stream = ClientStream::new(stream, Arc::clone(&slot));
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
    Router::new()
        .route("/", get(front_door))
        .route("/rpc", get(front_door))
        .merge(acp::router())
        .merge(rest::routes())
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
    match check_target(&gateway.names, request.uri())
        .and_then(|()| check_headers(&gateway.names, request.headers()))
    {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Checks the authority of a target in absolute form, which counts before the `Host` header (RFC 9112).
fn check_target(names: &Names, target: &Uri) -> Result<(), ApiError> {
    let is_own = |authority: &Authority| names.hosts.contains(&authority.as_str().to_ascii_lowercase());
    if target.authority().is_none_or(is_own) && target.scheme().is_none_or(|scheme| *scheme == Scheme::HTTP) {
        return Ok(());
    }
    Err(ApiError::new(
        "foreign_host",
        "the target of the request does not name this daemon: send the path alone, or the daemon's own address",
    ))
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
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let principal = match bearer(headers.get(AUTHORIZATION)) {
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
