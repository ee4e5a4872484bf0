//! A request on its way: sent, and its answer handed on piece by piece as fast as the client takes it.
//!
//! It runs beside the connection that asked. If that one goes away, the provider is hung up on; if everything is stopped or the
//! daemon leaves, both are. However it ends, the caller of [`Errand::run`] is told how.

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
use tribune_providers::{ProviderEndpoint, TokenUsage};
use tribune_records::ledger_payloads::ProxyOutcome;
use tribune_redact::Redactor;

use super::{error, frozen, headers};
use crate::ApiError;

/// Pieces that wait for the client. When there are as many, the provider waits too.
const PIECES: usize = 4;

/// How long the body of a refusal may take.
const REFUSAL: Duration = Duration::from_secs(10);

/// Names the request's entry in the ledger, for whoever asked.
const ENTRY: HeaderName = HeaderName::from_static("tribune-entry");

/// A request that is ready to go and on record.
#[derive(Debug)]
pub(super) struct UpstreamCall {
    pub(super) outbound: PreparedRelay,
    pub(super) rest: ResponsePipeline,
}

/// What is left of an errand when it was sent.
#[derive(Debug)]
pub(super) struct ResponsePipeline {
    /// Keep the key out of bytes, and out of texts that come in pieces.
    pub(super) veil: KeyMask,
    pub(super) deltas: DeltaKeyMask,
    pub(super) redactor: Arc<Redactor>,
    pub(super) endpoint: ProviderEndpoint,
    /// How the answer is written.
    pub(super) wire: ApiFormat,
    /// Whether a stream was asked for.
    pub(super) is_stream: bool,
    /// Whether the client must not see the tokens that we asked for.
    pub(super) hides_usage: bool,
    /// The request's entry.
    pub(super) entry: String,
    /// Everything is stopped.
    pub(super) stopped: CancellationToken,
    /// The daemon leaves.
    pub(super) leaving: CancellationToken,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The provider's status, if there was one.
    pub(super) status: Option<u16>,
    pub(crate) outcome: ProxyOutcome,
    /// `None` if the provider did not say.
    pub(crate) usage: Option<TokenUsage>,
    /// Until the head of the answer.
    pub(super) first: Duration,
    pub(super) whole: Duration,
}

impl Ended {
    /// Whether the provider began to answer. What it refuses costs nothing.
    pub(super) fn was_answered(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// What is handed to the connection. Without an end, the body was cut.
enum Piece {
    Bytes(Vec<u8>),
    End,
}

type Answer = oneshot::Sender<Result<Response, ApiError>>;

/// What came of it, without the times.
struct Came(Option<u16>, ProxyOutcome, Option<TokenUsage>);

impl UpstreamCall {
    /// Carries it out. The head of the answer, or why there is none, goes to `answer`.
    pub(super) async fn run(self, mut answer: Answer) -> Ended {
        let began = Instant::now();
        let Self { outbound, rest } = self;
        let sent = tokio::select! {
            biased;
            refused = rest.told_to_stop() => Err(Ok(refused)),
            () = answer.closed() => Err(Err(ProxyOutcome::Left)),
            sent = outbound.send() => Ok(sent),
        };
        let first = began.elapsed();
        let Came(status, outcome, usage) = match sent {
            Ok(Ok(relayed)) => rest.answered(relayed, answer).await,
            Ok(Err(fault)) => {
                let _ = answer.send(Err(error::of_provider(&fault)));
                Came(None, ProxyOutcome::Failed, None)
            }
            Err(Ok(refused)) => {
                let _ = answer.send(Err(refused));
                Came(None, ProxyOutcome::Stopped, None)
            }
            Err(Err(outcome)) => Came(None, outcome, None),
        };
        Ended { status, outcome, usage, first, whole: began.elapsed() }
    }
}

impl ResponsePipeline {
    /// Waits until it must end, and says why.
    async fn told_to_stop(&self) -> ApiError {
        tokio::select! {
            () = self.stopped.cancelled() => frozen(),
            () = self.leaving.cancelled() => ApiError::new("draining", "the daemon is stopping: try again when it runs"),
        }
    }

    async fn answered(self, relayed: RelayResponse, answer: Answer) -> Came {
        let status = relayed.status;
        if headers::is_encoded(&relayed.headers) {
            let what = format!("{} compressed its answer, which was not asked for", self.endpoint.provider);
            let _ = answer.send(Err(ApiError::new("backend", format!("{what}: check its baseUrl"))));
            return Came(Some(status), ProxyOutcome::Failed, None);
        }
        let is_good = StatusCode::from_u16(status).is_ok_and(|status| status.is_success());
        if is_good { self.stream(relayed, answer).await } else { self.refusal(relayed, answer).await }
    }

    /// Hands on a good answer as it comes.
    async fn stream(mut self, mut relayed: RelayResponse, answer: Answer) -> Came {
        let status = relayed.status;
        let is_stream = headers::is_stream(&relayed.headers);
        let mut tally =
            if is_stream { TokenCounter::for_stream(self.wire) } else { TokenCounter::for_json(self.wire) };
        let mut filter = (self.hides_usage && is_stream && self.is_stream).then(UsageStripper::default);
        let (pieces, body) = mpsc::channel(PIECES);
        if answer.send(Ok(self.response(status, &relayed.headers, body_of(body)))).is_err() {
            return Came(Some(status), ProxyOutcome::Left, None);
        }
        let broken = loop {
            let chunk = tokio::select! {
                biased;
                _ = self.told_to_stop() => break Some(ProxyOutcome::Stopped),
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
                    let bytes = if is_stream { self.deltas.push(bytes) } else { bytes };
                    (self.veil.push(bytes), false)
                }
                Ok(None) => {
                    let mut held = filter.as_mut().map(UsageStripper::finish).unwrap_or_default();
                    if is_stream {
                        held = self.deltas.push(held);
                        held.extend(self.deltas.finish());
                    }
                    let mut bytes = self.veil.push(held);
                    bytes.extend(self.veil.finish());
                    (bytes, true)
                }
                Err(_) => break Some(ProxyOutcome::Cut),
            };
            if !bytes.is_empty()
                && let Some(outcome) = self.hand_on(&pieces, Piece::Bytes(bytes)).await
            {
                break Some(outcome);
            }
            if is_last {
                break self.hand_on(&pieces, Piece::End).await;
            }
        };
        let tallied = tally.finish();
        let outcome = broken.unwrap_or(match tallied.ending {
            ResponseEnd::Complete => ProxyOutcome::Answered,
            ResponseEnd::Truncated => ProxyOutcome::Cut,
            ResponseEnd::Failed => ProxyOutcome::Failed,
        });
        Came(Some(status), outcome, tallied.usage)
    }

    /// Gives a piece to the client, who has as long to take it as the provider has to send one. Tells why if it was not taken.
    async fn hand_on(&self, pieces: &mpsc::Sender<Piece>, piece: Piece) -> Option<ProxyOutcome> {
        tokio::select! {
            biased;
            _ = self.told_to_stop() => Some(ProxyOutcome::Stopped),
            taken = timeout(self.endpoint.timeouts.idle, pieces.send(piece)) => match taken {
                Ok(Ok(())) => None,
                Ok(Err(_)) | Err(_) => Some(ProxyOutcome::Left),
            },
        }
    }

    /// Hands on a refusal, in one piece and without secrets.
    async fn refusal(mut self, mut relayed: RelayResponse, mut answer: Answer) -> Came {
        let status = relayed.status;
        let came = |outcome| Came(Some(status), outcome, None);
        let body = tokio::select! {
            biased;
            refused = self.told_to_stop() => {
                let _ = answer.send(Err(refused));
                return came(ProxyOutcome::Stopped);
            }
            () = answer.closed() => return came(ProxyOutcome::Left),
            body = timeout(REFUSAL, beginning(&mut relayed)) => body.unwrap_or_default(),
        };
        let code = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        let response = if code == StatusCode::UNAUTHORIZED {
            // What a provider says about a key may show a part of it, and is not about the client's token.
            let env = self.endpoint.key_env.as_deref().unwrap_or("no variable");
            let provider = &self.endpoint.provider;
            let message =
                format!("{provider} refused the house's key in {env} (401): check that it is current");
            let shape = error::shape(self.endpoint.dialect, code, "unauthorized", &message).to_string();
            let mut response = self.response(status, &HeaderMap::new(), shape.into());
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(axum::http::header::CONTENT_TYPE, json);
            response
        } else {
            let mut text = self.veil.push(body);
            text.extend(self.veil.finish());
            let text = String::from_utf8_lossy(&text);
            let text = self.redactor.redact(&text).into_owned();
            self.response(status, &relayed.headers, text.into())
        };
        let _ = answer.send(Ok(response));
        came(ProxyOutcome::Refused)
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

/// The beginning of a refusal, as far as it arrives.
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

/// The pieces as a body. One whose end does not come breaks the connection, so that nobody takes it for whole.
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
