//! The bounds of one HTTP request that hold on every route: the size of its head, and the time of its body.

use std::io::{self, ErrorKind};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use crate::error::ApiError;

/// Most bytes of the head of a request: the request line and the headers.
const MAX_HEAD: usize = 64 << 10;

/// Bytes of a request line beside its method and target, and of a header beside its name and value.
const LINE_EXTRA: usize = " HTTP/1.1 \r\n".len();
const HEADER_EXTRA: usize = ": \r\n".len();

/// How much longer a body may take than its reader waits for it, so that the reader can say that it is late.
const GRACE: Duration = Duration::from_secs(1);

/// The refusal of a request whose head is too large. The HTTP parser has a buffer, and takes what fits into it.
pub(super) fn refuse_head<B>(request: &Request<B>) -> Option<Response> {
    let uri = request.uri();
    let target = uri.path().len()
        + uri.query().map_or(0, |query| query.len() + 1)
        + uri.authority().map_or(0, |authority| authority.as_str().len());
    let headers = request.headers().iter();
    let headers: usize = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER_EXTRA).sum();
    if request.method().as_str().len() + target + LINE_EXTRA + headers <= MAX_HEAD {
        return None;
    }
    let error = ApiError::new("too_large", "the head of the request is larger than 64 KiB");
    Some((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, error.into_response()).into_response())
}

/// Bounds the time in which the body arrives, on every route.
pub(super) fn bound_body(request: Request<Body>, within: Duration) -> Request<Body> {
    let headers = request.headers();
    if !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING) {
        return request;
    }
    let deadline = Instant::now() + within + GRACE;
    request.map(|body| {
        let chunks = body.into_data_stream();
        let bounded = futures_util::stream::unfold(Some(chunks), move |chunks| async move {
            let mut chunks = chunks?;
            match timeout_at(deadline, chunks.next()).await {
                Ok(chunk) => chunk.map(|chunk| (chunk.map_err(io::Error::other), Some(chunks))),
                Err(_) => Some((Err::<Bytes, _>(ErrorKind::TimedOut.into()), None)),
            }
        });
        Body::from_stream(bounded)
    })
}

/// Whether the bytes behind this head are not followed by the guard of heads.
pub(super) fn is_unguarded<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(TRANSFER_ENCODING) || request.headers().contains_key(UPGRADE)
}

/// Ends the connection after the response, unless it is no longer HTTP.
pub(super) fn end_connection(response: &mut Response) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}
