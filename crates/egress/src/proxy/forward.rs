//! Forwards one plain HTTP request. The request is rewritten for its server, without hop-by-hop headers. The connection closes
//! after the response, so a second request cannot follow.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::task::{Context, Poll};

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::connect_request::ConnectRequest;
use super::denial::Refusal;
use super::request_head::RequestHead;
use super::transfer_limits::Metered;

/// Headers that apply to one connection only and are not forwarded.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authorization"),
];

type Sender = hyper::client::conn::http1::SendRequest<Incoming>;

/// The body of an answer: the server's as it comes, or a refusal of the proxy.
type AnswerBody = Either<Incoming, Full<Bytes>>;

/// Forwards one request to its server and the response back.
pub(super) async fn run(
    client: UnixStream,
    head: RequestHead,
    wanted: &ConnectRequest,
    upstream: Metered<TcpStream>,
) -> io::Result<()> {
    let (sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(upstream)).await.map_err(io::Error::other)?;
    let sender = Mutex::new(Some(sender));
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let sender = sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        async { Ok::<_, Infallible>(ask(sender, wanted, request).await) }
    });
    let replayed = Replayed { again: [head.bytes, head.behind].concat(), at: 0, stream: client };
    let serving = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(replayed), service);
    let (served, carried) = tokio::join!(serving, connection);
    served.and(carried).map_err(io::Error::other)
}

async fn ask(
    sender: Option<Sender>,
    wanted: &ConnectRequest,
    request: Request<Incoming>,
) -> Response<AnswerBody> {
    // INVARIANT: connections are not kept alive, so there is one request.
    let Some(mut sender) = sender else { return refusal(&Refusal::BROKEN_HEAD) };
    let Some(request) = rewritten(wanted, request) else { return refusal(&Refusal::BROKEN_HEAD) };
    match sender.send_request(request).await {
        Ok(response) => {
            let mut response = response.map(Either::Left);
            // The framing of this hop is its own; the length is the same on both.
            without_hops(response.headers_mut());
            *response.version_mut() = Version::HTTP_11;
            response
        }
        Err(_) => {
            let what = format!("`{}` closed the connection: try again later", wanted.authority);
            refusal(&Refusal::failed(502, "unreachable", what))
        }
    }
}

/// The request as its server gets it.
fn rewritten(wanted: &ConnectRequest, request: Request<Incoming>) -> Option<Request<Incoming>> {
    let (mut head, body) = request.into_parts();
    head.uri = wanted.path.as_deref()?.parse::<Uri>().ok()?;
    head.version = Version::HTTP_11;
    without_hops(&mut head.headers);
    // hyper sets the length of the body that it read.
    head.headers.remove(CONTENT_LENGTH);
    let host = match wanted.authority.port {
        80 => wanted.authority.host.to_string(),
        _ => wanted.authority.to_string(),
    };
    head.headers.insert(HOST, HeaderValue::from_str(&host).ok()?);
    Some(Request::from_parts(head, body))
}

fn without_hops(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

fn refusal(refusal: &Refusal) -> Response<AnswerBody> {
    let mut response = Response::new(Either::Right(Full::from(refusal.body())));
    *response.status_mut() = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_GATEWAY);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A stream that replays the bytes which were already read from it.
struct Replayed {
    again: Vec<u8>,
    at: usize,
    stream: UnixStream,
}

impl AsyncRead for Replayed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = &self.again[self.at..];
        if left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let taken = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..taken]);
        self.at += taken;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Replayed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
