//! The way to a session's model: the proxy's routes under the paths of the agent's own provider. The socket says who asks, so no
//! token is needed, and what a program sends as its key goes nowhere.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::UnixStream;
use tribune_agents::SessionKey;

use crate::gateway::{Gateway, proxy};

/// What is gathered of a head before it is refused.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Serves one connection from a session's box.
pub(super) async fn serve(
    gateway: &Arc<Gateway>,
    stream: UnixStream,
    session: &Arc<SessionKey>,
    head: Duration,
) {
    let service = hyper::service::service_fn(|request: hyper::Request<Incoming>| async {
        let request: Request = request.map(axum::body::Body::new);
        Ok::<_, Infallible>(proxy::of_session(gateway, session, request).await)
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // A peer that breaks off is no news.
    let _ = serving.await;
}
