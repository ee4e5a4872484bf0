//! The way to a session's MCP servers: HTTP on a socket, which says who calls. What is said there is [`Door`]'s.

use std::convert::Infallible;
use std::time::Duration;

use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::UnixStream;

use crate::mcp::Door;

/// What is gathered of a head before it is refused.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Serves one connection from a session's box.
pub(super) async fn serve(door: &Door, stream: UnixStream, head: Duration) {
    let service = hyper::service::service_fn(|request: hyper::Request<Incoming>| async {
        Ok::<_, Infallible>(door.answer(request.map(axum::body::Body::new)).await)
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // A peer that breaks off is no news.
    let _ = serving.await;
}
