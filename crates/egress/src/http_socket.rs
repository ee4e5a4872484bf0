//! HTTP server for one connection on a session's socket. The socket itself identifies the caller.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::UnixStream;

/// Bytes of a request head that are buffered before the request is rejected.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Serves one connection from a session's sandbox. `head` is the timeout for the head of a request.
pub async fn serve<F>(stream: UnixStream, head: Duration, answer: impl Fn(Request) -> F + Send + Sync)
where
    F: Future<Output = Response> + Send,
{
    let answer = &answer;
    let service = hyper::service::service_fn(|request: hyper::Request<Incoming>| async move {
        Ok::<_, Infallible>(answer(request.map(Body::new)).await)
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // An aborted connection is normal and is not logged.
    let _ = serving.await;
}
