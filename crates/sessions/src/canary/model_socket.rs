//! Serves a canary's scripted model over HTTP, in place of the configured model.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tribune_egress::SocketService;
use tribune_runtime::SessionKey;

use super::scripted_model::ScriptedModel;

/// Bytes of a request. Agents send their whole prompt and every tool's description, which is less than a tenth of this.
const MAX_BODY_BYTES: usize = 16 << 20;

/// The timeout for the head of a request.
const HEAD: Duration = Duration::from_secs(10);

#[async_trait]
impl SocketService for ScriptedModel {
    async fn serve(&self, stream: UnixStream, _: &Arc<SessionKey>, _: Duration) {
        serve(stream, self).await;
    }
}

/// Serves one connection.
async fn serve<S>(stream: S, play: &ScriptedModel)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let service = hyper::service::service_fn(|request: Request<Incoming>| async {
        let (head, body) = request.into_parts();
        let reply = match to_bytes(Body::new(body), MAX_BODY_BYTES).await {
            Ok(body) => {
                let path = head.uri.path();
                Some(play.answer(head.method.as_str(), path, &body))
            }
            Err(_) => None,
        };
        let mut response = Response::new(Body::empty());
        match reply {
            Some(reply) => {
                *response.status_mut() =
                    hyper::StatusCode::from_u16(reply.status).unwrap_or(hyper::StatusCode::OK);
                let kind = hyper::header::HeaderValue::from_static(reply.content_type);
                response.headers_mut().insert(CONTENT_TYPE, kind);
                *response.body_mut() = Body::from(reply.body);
            }
            None => *response.status_mut() = hyper::StatusCode::PAYLOAD_TOO_LARGE,
        }
        Ok::<_, Infallible>(response)
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    // A connection that the peer breaks off is no error.
    let _ = serving.await;
}

/// A scripted model on a loopback port, for Tribune's native loop. Other local processes can reach it; it holds nothing of value,
/// and ends when this is dropped.
pub(super) struct Loopback {
    pub(super) address: SocketAddr,
    _open: DropGuard,
}

impl Loopback {
    pub(super) async fn open(play: Arc<ScriptedModel>, tasks: &TaskTracker) -> std::io::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let open = CancellationToken::new();
        let closing = open.clone();
        let connections = tasks.clone();
        tasks.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = closing.cancelled() => return,
                };
                let Ok((stream, _)) = accepted else { return };
                let (play, closing) = (Arc::clone(&play), closing.clone());
                connections.spawn(async move {
                    tokio::select! {
                        () = serve(stream, &play) => {}
                        () = closing.cancelled() => {}
                    }
                });
            }
        });
        Ok(Self { address, _open: open.drop_guard() })
    }
}
