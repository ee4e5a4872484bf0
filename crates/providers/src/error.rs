//! The errors of a request to a provider: a code for programs and a one-line message for people.

use std::time::Duration;

use super::decode_error::DecodeError;
use super::endpoint::ProviderEndpoint;
use super::error_body::{ProviderErrorKind, ReportedError};
use super::sanitize;

/// Why a response is missing or incomplete. The message may be shown to anyone: it contains no key, and nothing of the
/// prompt except what the provider quotes from it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    #[error("Missing {env}: set it in the environment of the daemon to use {provider}")]
    MissingKey { provider: String, env: String },
    #[error("the key for {provider} in {env} contains an invalid character: copy it again")]
    UnusableKey { provider: String, env: String },
    #[error("the key for {provider} would be sent unencrypted over http: use https in baseUrl")]
    InsecureUrl { provider: String },
    #[error("TLS could not be initialised for {provider}: install CA certificates on this machine")]
    TlsUnavailable { provider: String },
    #[error("{provider} rejected {what} ({status}): check that the configured key is current")]
    Unauthorized { provider: String, what: String, status: HttpStatus },
    #[error("the account at {provider} has no credit left ({status}): add credit or raise its limit")]
    NoCredit { provider: String, status: HttpStatus },
    #[error(
        "{provider} denied the request ({status}{message}): check which models and regions the key may use"
    )]
    Forbidden { provider: String, status: HttpStatus, message: QuotedMessage },
    #[error(
        "{provider} did not find the model or the URL ({status}{message}): check the model name and baseUrl"
    )]
    NotFound { provider: String, status: HttpStatus, message: QuotedMessage },
    #[error("{provider} rejected the request as invalid ({status}{message}): check the options of the model")]
    BadRequest { provider: String, status: HttpStatus, message: QuotedMessage },
    #[error(
        "the conversation is too long for the model at {provider} ({status}{message}): shorten it or start a new one"
    )]
    ContextTooLong { provider: String, status: HttpStatus, message: QuotedMessage },
    #[error("the request exceeds the size limit of {provider} ({status}): send fewer or smaller images")]
    RequestTooLarge { provider: String, status: HttpStatus },
    #[error("the rate limit of {provider} is reached ({status}{message}): try again {retry_after}")]
    RateLimited { provider: String, status: HttpStatus, message: QuotedMessage, retry_after: RetryAfter },
    #[error("{provider} is overloaded ({status}): try again {retry_after}")]
    Overloaded { provider: String, status: HttpStatus, retry_after: RetryAfter },
    #[error("{provider} failed ({status}{message}): try again {retry_after}")]
    UpstreamFailed { provider: String, status: HttpStatus, message: QuotedMessage, retry_after: RetryAfter },
    #[error(
        "{provider} redirects to {to}, and redirects are not followed: write the final address as baseUrl"
    )]
    Redirected { provider: String, to: String },
    #[error("the host name {host} of {provider} could not be resolved: check baseUrl and the network")]
    DnsFailed { provider: String, host: String },
    #[error(
        "the TLS handshake with {host} for {provider} failed: check that it serves https and that this machine trusts its certificate"
    )]
    TlsFailed { provider: String, host: String },
    #[error(
        "the connection to {host} for {provider} failed ({why}): check that the server runs and that baseUrl is correct"
    )]
    ConnectFailed { provider: String, host: String, why: &'static str },
    #[error("the connection to {host} for {provider} was not established within {}: check baseUrl and the network", seconds(.after))]
    ConnectTimeout { provider: String, host: String, after: Duration },
    #[error("{provider} closed the connection before it answered: try again")]
    ConnectionLost { provider: String },
    #[error("{provider} sent nothing within {}: try again, or shorten the conversation", seconds(.after))]
    FirstByteTimeout { provider: String, after: Duration },
    #[error("{provider} sent nothing for {} in the middle of its answer: the partial answer is kept, try again", seconds(.after))]
    IdleTimeout { provider: String, after: Duration },
    #[error("{provider} did not finish its answer within {}: the partial answer is kept, ask for less at once", seconds(.after))]
    AnswerTimeout { provider: String, after: Duration },
    #[error(
        "{provider} sent a response that its dialect does not allow ({what}): check that baseUrl is the API and that the dialect is correct"
    )]
    MalformedStream { provider: String, what: String },
    #[error(
        "{provider} answered with {kind} instead of a stream{message}: check that baseUrl is the API and not a web page"
    )]
    NotAStream { provider: String, kind: String, message: QuotedMessage },
    #[error("{provider} stopped in the middle of its answer: the partial answer is kept, try again")]
    TruncatedStream { provider: String },
    #[error(
        "the answer of {provider} is too large ({what} is over {}): the partial answer is kept, ask for less at once", amount(*.limit))]
    TooLarge { provider: String, what: &'static str, limit: usize },
    #[error("the request to {provider} was cancelled: nothing needs to be done")]
    Cancelled { provider: String },
    #[error(
        "{provider} has Gemini's native API, which is only relayed for clients that speak it: give this agent a model of another provider"
    )]
    RelayOnly { provider: String },
    #[error("the request to {provider} could not be serialized: report it with the model's name")]
    SerializationFailed { provider: String },
}

impl ProviderError {
    /// A stable code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::MissingKey { .. } => "missing_key",
            Self::UnusableKey { .. } => "unusable_key",
            Self::InsecureUrl { .. } => "insecure_url",
            Self::TlsUnavailable { .. } => "no_tls",
            Self::Unauthorized { .. } => "unauthorized",
            Self::NoCredit { .. } => "no_credit",
            Self::Forbidden { .. } => "forbidden",
            Self::NotFound { .. } => "not_found",
            Self::BadRequest { .. } => "bad_request",
            Self::ContextTooLong { .. } => "context_too_long",
            Self::RequestTooLarge { .. } => "request_too_large",
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded { .. } => "overloaded",
            Self::UpstreamFailed { .. } => "upstream_failed",
            Self::Redirected { .. } => "redirected",
            Self::DnsFailed { .. } => "dns_failed",
            Self::TlsFailed { .. } => "tls_failed",
            Self::ConnectFailed { .. } => "connect_failed",
            Self::ConnectTimeout { .. } => "connect_timeout",
            Self::ConnectionLost { .. } => "connection_lost",
            Self::FirstByteTimeout { .. } => "first_byte_timeout",
            Self::IdleTimeout { .. } => "idle_timeout",
            Self::AnswerTimeout { .. } => "answer_timeout",
            Self::MalformedStream { .. } => "malformed_stream",
            Self::NotAStream { .. } => "not_a_stream",
            Self::TruncatedStream { .. } => "cut_stream",
            Self::TooLarge { .. } => "too_large",
            Self::Cancelled { .. } => "cancelled",
            Self::RelayOnly { .. } => "only_relayed",
            Self::SerializationFailed { .. } => "unwritable",
        }
    }

    /// Whether the provider may have charged for a request that failed like this before any output arrived.
    pub const fn may_be_billed(&self) -> bool {
        matches!(
            self,
            Self::ConnectionLost { .. }
                | Self::FirstByteTimeout { .. }
                | Self::IdleTimeout { .. }
                | Self::AnswerTimeout { .. }
                | Self::MalformedStream { .. }
                | Self::NotAStream { .. }
                | Self::TruncatedStream { .. }
                | Self::TooLarge { .. }
                | Self::Cancelled { .. }
        )
    }

    /// For a transient error: when the provider allows a retry. `None` for other errors.
    pub(super) const fn retry_after(&self) -> Option<RetryAfter> {
        match self {
            Self::RateLimited { retry_after, .. }
            | Self::Overloaded { retry_after, .. }
            | Self::UpstreamFailed { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    pub(super) fn from_decode_error(endpoint: &ProviderEndpoint, error: DecodeError) -> Self {
        let provider = endpoint.provider.clone();
        match error {
            DecodeError::Malformed(what) => Self::MalformedStream { provider, what },
            DecodeError::TooLarge { what, limit } => Self::TooLarge { provider, what, limit },
            DecodeError::Truncated => Self::TruncatedStream { provider },
            DecodeError::Reported(reported) => {
                Self::from_reported(endpoint, reported, HttpStatus(None), RetryAfter(None))
            }
        }
    }

    pub(super) fn from_reported(
        endpoint: &ProviderEndpoint,
        reported: ReportedError,
        status: HttpStatus,
        retry_after: RetryAfter,
    ) -> Self {
        let provider = endpoint.provider.clone();
        let message = QuotedMessage::new(endpoint, reported.message.as_deref());
        match reported.kind {
            ProviderErrorKind::BadRequest => Self::BadRequest { provider, status, message },
            ProviderErrorKind::ContextTooLong => Self::ContextTooLong { provider, status, message },
            // The provider's message is left out, because it may quote a part of the key.
            ProviderErrorKind::Unauthorized => {
                let what = match &endpoint.key_env {
                    Some(env) => format!("the key in {env}"),
                    None => "a request without a key".to_owned(),
                };
                Self::Unauthorized { provider, what, status }
            }
            ProviderErrorKind::NoCredit => Self::NoCredit { provider, status },
            ProviderErrorKind::Forbidden => Self::Forbidden { provider, status, message },
            ProviderErrorKind::NotFound => Self::NotFound { provider, status, message },
            ProviderErrorKind::RequestTooLarge => Self::RequestTooLarge { provider, status },
            ProviderErrorKind::RateLimited => Self::RateLimited { provider, status, message, retry_after },
            ProviderErrorKind::Overloaded => Self::Overloaded { provider, status, retry_after },
            ProviderErrorKind::Failed => Self::UpstreamFailed { provider, status, message, retry_after },
        }
    }
}

/// The HTTP status of an error; `None` if it was reported inside a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpStatus(pub Option<u16>);

impl std::fmt::Display for HttpStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(status) => write!(f, "{status}"),
            None => f.write_str("in the stream"),
        }
    }
}

/// The delay that the provider asks for before a retry, if it gives one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfter(pub Option<Duration>);

impl std::fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(after) => write!(f, "in {}", seconds(&after)),
            None => f.write_str("later"),
        }
    }
}

/// The provider's message, sanitized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotedMessage(String);

impl QuotedMessage {
    pub(super) fn new(endpoint: &ProviderEndpoint, message: Option<&str>) -> Self {
        Self(message.map(|text| sanitize::sentence(text, endpoint.key.as_ref())).unwrap_or_default())
    }
}

impl std::fmt::Display for QuotedMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", \"{}\"", self.0) }
    }
}

/// Formats a limit: large numbers are bytes and shown in MiB, small ones are counts.
fn amount(limit: usize) -> String {
    if limit >= 1 << 20 { format!("{} MiB", limit >> 20) } else { limit.to_string() }
}

fn seconds(duration: &Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        // Rounded up, so that a retry after this time is not too early.
        whole if duration.subsec_nanos() > 0 => format!("{} s", whole + 1),
        whole => format!("{whole} s"),
    }
}
