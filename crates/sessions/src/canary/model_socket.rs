//! Serves a canary's scripted model over HTTP, in place of the configured model.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tribune_egress::{SocketService, http_socket};
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
    http_socket::serve(stream, HEAD, |request| answer(play, request)).await;
}

async fn answer(play: &ScriptedModel, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let mut response = Response::new(Full::default());
    match http_socket::read_body(body, MAX_BODY_BYTES).await {
        Ok(body) => {
            let reply = play.answer(head.method.as_str(), head.uri.path(), &body);
            *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
            *response.body_mut() = Full::from(reply.body);
        }
        Err(_) => *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE,
    }
    response
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
