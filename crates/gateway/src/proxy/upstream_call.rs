//! Sends a request to the provider and streams the response to the client, as fast as the client reads.
//!
//! The call runs in its own task. If the client disconnects, the call to the provider is aborted; a global stop or a shutdown of
//! the daemon ends both. [`UpstreamCall::run`] returns how the call ended in every case.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::stream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tribune_providers::limits::MAX_ERROR_BYTES;
use tribune_providers::relay::{
    ApiFormat, DeltaKeyMask, KeyMask, PreparedRelay, RelayResponse, ResponseEnd, TokenCounter, UsageStripper,
};
use tribune_providers::{ProviderEndpoint, ProviderError, TokenUsage};
use tribune_records::ledger_payloads::ProxyOutcome;
use tribune_redact::Redactor;

use super::{error, frozen, headers};
use crate::error::ApiError;

/// Chunks that are buffered for the client. When the buffer is full, reading from the provider pauses.
const CHUNK_BUFFER: usize = 4;

/// Timeout for the body of an error response.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The response header with the content id of the request's ledger entry.
const ENTRY: HeaderName = HeaderName::from_static("tribune-entry");

/// A request that is recorded and ready to send.
#[derive(Debug)]
pub(super) struct UpstreamCall {
    pub(super) outbound: PreparedRelay,
    pub(super) rest: ResponsePipeline,
}

/// What handles the response, after the request was sent.
#[derive(Debug)]
pub(super) struct ResponsePipeline {
    /// Mask the provider's key in the bytes, and in text that is split over several deltas.
    pub(super) key_mask: KeyMask,
    pub(super) delta_mask: DeltaKeyMask,
    pub(super) redactor: Arc<Redactor>,
    pub(super) endpoint: ProviderEndpoint,
    /// The format of the response.
    pub(super) wire: ApiFormat,
    /// Whether the client requested a stream.
    pub(super) is_stream: bool,
    /// Whether the usage must be hidden from the client, because the proxy added the request for it.
    pub(super) hides_usage: bool,
    /// The content id of the request's ledger entry.
    pub(super) entry: String,
    /// Fires on a global stop.
    pub(super) stopped: CancellationToken,
    /// Fires when the daemon stops.
    pub(super) leaving: CancellationToken,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallEnd {
    /// The provider's HTTP status, if there was a response.
    pub(super) status: Option<u16>,
    pub(super) outcome: ProxyOutcome,
    /// `None` if the provider did not report it.
    pub(super) usage: Option<TokenUsage>,
    /// Time to the head of the response.
    pub(super) first: Duration,
    pub(super) whole: Duration,
}

impl CallEnd {
    /// Whether the provider responded with success. A rejected request costs nothing.
    pub(super) fn was_answered(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// A message to the client's connection. A body without `End` was truncated.
enum Piece {
    Bytes(Vec<u8>),
    End,
}

type Answer = oneshot::Sender<Result<Response, ApiError>>;

/// How a call ended, without the times.
struct TransferEnd {
    status: Option<u16>,
    outcome: ProxyOutcome,
    usage: Option<TokenUsage>,
}

impl TransferEnd {
    const fn without_usage(status: Option<u16>, outcome: ProxyOutcome) -> Self {
        Self { status, outcome, usage: None }
    }
}

/// How the sending of the request ended.
#[expect(clippy::large_enum_variant, reason = "one value, matched at once")]
enum Sending {
    /// A global stop or a shutdown came first.
    Stopped(ApiError),
    ClientLeft,
    Sent(Result<RelayResponse, ProviderError>),
}

impl UpstreamCall {
    /// Runs the call. Sends the response, or the error, to `answer`.
    pub(super) async fn run(self, mut answer: Answer) -> CallEnd {
        let began = Instant::now();
        let Self { outbound, rest } = self;
        let sending = tokio::select! {
            biased;
            refused = rest.stop_requested() => Sending::Stopped(refused),
            () = answer.closed() => Sending::ClientLeft,
            sent = outbound.send() => Sending::Sent(sent),
        };
        let first = began.elapsed();
        let TransferEnd { status, outcome, usage } = match sending {
            Sending::Sent(Ok(relayed)) => rest.answered(relayed, answer).await,
            Sending::Sent(Err(fault)) => {
                let _ = answer.send(Err(error::of_provider(&fault)));
                TransferEnd::without_usage(None, ProxyOutcome::Failed)
            }
            Sending::Stopped(refused) => {
                let _ = answer.send(Err(refused));
                TransferEnd::without_usage(None, ProxyOutcome::Stopped)
            }
            Sending::ClientLeft => TransferEnd::without_usage(None, ProxyOutcome::Left),
        };
        CallEnd { status, outcome, usage, first, whole: began.elapsed() }
    }
}

impl ResponsePipeline {
    /// Waits for a global stop or a shutdown, and returns the error for it.
    async fn stop_requested(&self) -> ApiError {
        tokio::select! {
            () = self.stopped.cancelled() => frozen(),
            () = self.leaving.cancelled() => ApiError::new("draining", "the daemon is stopping: try again when it runs"),
        }
    }

    async fn answered(self, relayed: RelayResponse, answer: Answer) -> TransferEnd {
        let status = relayed.status;
        if headers::is_encoded(&relayed.headers) {
            let what = format!("{} sent a compressed response without being asked", self.endpoint.provider);
            let _ = answer.send(Err(ApiError::new("backend", format!("{what}: check its baseUrl"))));
            return TransferEnd::without_usage(Some(status), ProxyOutcome::Failed);
        }
        let is_good = StatusCode::from_u16(status).is_ok_and(|status| status.is_success());
        if is_good { self.stream(relayed, answer).await } else { self.refusal(relayed, answer).await }
    }

    /// Streams a successful response.
    async fn stream(mut self, mut relayed: RelayResponse, answer: Answer) -> TransferEnd {
        let status = relayed.status;
        let is_stream = headers::is_stream(&relayed.headers);
        let mut tally =
            if is_stream { TokenCounter::for_stream(self.wire) } else { TokenCounter::for_json(self.wire) };
        let mut filter = (self.hides_usage && is_stream && self.is_stream).then(UsageStripper::default);
        let (pieces, body) = mpsc::channel(CHUNK_BUFFER);
        if answer.send(Ok(self.response(status, &relayed.headers, body_of(body)))).is_err() {
            return TransferEnd::without_usage(Some(status), ProxyOutcome::Left);
        }
        let broken = loop {
            let chunk = tokio::select! {
                biased;
                _ = self.stop_requested() => break Some(ProxyOutcome::Stopped),
                () = pieces.closed() => break Some(ProxyOutcome::Left),
                chunk = relayed.chunk() => chunk,
            };
            let (bytes, is_last) = match chunk {
                Ok(Some(bytes)) => {
                    tally.push(&bytes);
                    let bytes = match &mut filter {
                        Some(filter) => filter.push(bytes),
                        None => bytes,
                    };
                    let bytes = if is_stream { self.delta_mask.push(bytes) } else { bytes };
                    (self.key_mask.push(bytes), false)
                }
                Ok(None) => {
                    let mut held = filter.as_mut().map(UsageStripper::finish).unwrap_or_default();
                    if is_stream {
                        held = self.delta_mask.push(held);
                        held.extend(self.delta_mask.finish());
                    }
                    let mut bytes = self.key_mask.push(held);
                    bytes.extend(self.key_mask.finish());
                    (bytes, true)
                }
                Err(_) => break Some(ProxyOutcome::Cut),
            };
            if !bytes.is_empty()
                && let Some(outcome) = self.send_piece(&pieces, Piece::Bytes(bytes)).await
            {
                break Some(outcome);
            }
            if is_last {
                break self.send_piece(&pieces, Piece::End).await;
            }
        };
        let tallied = tally.finish();
        let outcome = broken.unwrap_or(match tallied.ending {
            ResponseEnd::Complete => ProxyOutcome::Answered,
            ResponseEnd::Truncated => ProxyOutcome::Cut,
            ResponseEnd::Failed => ProxyOutcome::Failed,
        });
        TransferEnd { status: Some(status), outcome, usage: tallied.usage }
    }

    /// Sends a chunk to the client. The client has the same idle timeout as the provider. Returns the outcome if the chunk was not
    /// taken.
    async fn send_piece(&self, pieces: &mpsc::Sender<Piece>, piece: Piece) -> Option<ProxyOutcome> {
        tokio::select! {
            biased;
            _ = self.stop_requested() => Some(ProxyOutcome::Stopped),
            taken = timeout(self.endpoint.timeouts.idle, pieces.send(piece)) => match taken {
                Ok(Ok(())) => None,
                Ok(Err(_)) | Err(_) => Some(ProxyOutcome::Left),
            },
        }
    }

    /// Forwards an error response, in one piece and redacted.
    async fn refusal(mut self, mut relayed: RelayResponse, mut answer: Answer) -> TransferEnd {
        let status = relayed.status;
        let end = |outcome| TransferEnd::without_usage(Some(status), outcome);
        let body = tokio::select! {
            biased;
            refused = self.stop_requested() => {
                let _ = answer.send(Err(refused));
                return end(ProxyOutcome::Stopped);
            }
            () = answer.closed() => return end(ProxyOutcome::Left),
            body = timeout(ERROR_BODY_TIMEOUT, beginning(&mut relayed)) => body.unwrap_or_default(),
        };
        let code = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        let response = if code == StatusCode::UNAUTHORIZED {
            // The provider's message may show a part of its key, and it is not about the client's token. It is replaced.
            let env = self.endpoint.key_env.as_deref().unwrap_or("no variable");
            let provider = &self.endpoint.provider;
            let message =
                format!("{provider} rejected Tribune's key in {env} (401): check that it is current");
            let shape = error::shape(self.endpoint.dialect, code, "unauthorized", &message).to_string();
            let mut response = self.response(status, &HeaderMap::new(), shape.into());
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(axum::http::header::CONTENT_TYPE, json);
            response
        } else {
            let mut text = self.key_mask.push(body);
            text.extend(self.key_mask.finish());
            let text = String::from_utf8_lossy(&text);
            let text = self.redactor.redact(&text).into_owned();
            self.response(status, &relayed.headers, text.into())
        };
        let _ = answer.send(Ok(response));
        end(ProxyOutcome::Refused)
    }

    fn response(&self, status: u16, sent: &HeaderMap, body: Body) -> Response {
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        *response.headers_mut() = headers::down(sent, &self.redactor);
        if let Ok(entry) = HeaderValue::from_str(&self.entry) {
            response.headers_mut().insert(ENTRY, entry);
        }
        response
    }
}

/// Reads the body of an error response, up to [`MAX_ERROR_BYTES`].
async fn beginning(relayed: &mut RelayResponse) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = relayed.chunk().await {
        let room = MAX_ERROR_BYTES - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            break;
        }
    }
    body
}

/// The chunks as a body. A body without an end breaks the connection, so that the client does not take it as complete.
fn body_of(pieces: mpsc::Receiver<Piece>) -> Body {
    let pieces = stream::unfold(Some(pieces), |pieces| async {
        let mut pieces = pieces?;
        match pieces.recv().await {
            Some(Piece::Bytes(bytes)) => Some((Ok(Bytes::from(bytes)), Some(pieces))),
            Some(Piece::End) => None,
            None => Some((Err(io::Error::from(io::ErrorKind::ConnectionAborted)), None)),
        }
    });
    Body::from_stream(pieces)
}
