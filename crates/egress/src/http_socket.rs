//! HTTP on a session's socket, for the services that speak it. The socket says which session calls.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes of a request head; a longer one is refused.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Serves one connection from a session's sandbox. `head` is the time limit for reading the head of a request.
pub async fn serve<S, F, B>(stream: S, head: Duration, answer: impl Fn(Request<Incoming>) -> F + Send + Sync)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
    F: Future<Output = Response<B>> + Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let answer = &answer;
    let service =
        hyper::service::service_fn(|request| async move { Ok::<_, Infallible>(answer(request).await) });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // A peer that disconnects early is not an error of this side.
    let _ = serving.await;
}

/// Reads a whole body. Fails if it is longer than `max_bytes` or the connection breaks.
pub async fn read_body<B>(body: B, max_bytes: usize) -> Result<Bytes, Box<dyn Error + Send + Sync>>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    Ok(Limited::new(body, max_bytes).collect().await?.to_bytes())
}
