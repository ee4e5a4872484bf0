//! HTTP on a session's socket, for the services that speak it. The socket says who calls.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::UnixStream;

/// What is gathered of a head before it is refused.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Serves one connection from a session's sandbox. `head` is how long the head of a request may take.
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
    // A peer that breaks off is no news.
    let _ = serving.await;
}
