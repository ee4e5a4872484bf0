//! What can go wrong between here and a model: one word for programs, one line for people.

use std::time::Duration;

use super::decode_error::Fault;
use super::endpoint::Endpoint;
use super::error_body::{Complaint, Trouble};
use super::sanitize;

/// Why there is no answer, or no more of it. The line may be shown to anyone: it holds no key and nothing of the prompt
/// but what a provider repeats of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    #[error("Missing {env}: set it in the environment of the daemon to use {provider}")]
    MissingKey { provider: String, env: String },
    #[error("the key for {provider} in {env} has a character that no key has: copy it again")]
    UnusableKey { provider: String, env: String },
    #[error(
        "{provider} would get its key over http, where anyone on the way can read it: write https in baseUrl"
    )]
    InsecureUrl { provider: String },
    #[error("TLS cannot be set up on this machine, which {provider} needs: install its CA certificates")]
    NoTls { provider: String },
    #[error("{provider} refused {what} ({status}): check that it is current")]
    Unauthorized { provider: String, what: String, status: Status },
    #[error("{provider} says that the account has no credit left ({status}): add credit or raise its limit")]
    NoCredit { provider: String, status: Status },
    #[error(
        "{provider} does not allow this ({status}{said}): check which models and regions the key may use"
    )]
    Forbidden { provider: String, status: Status, said: Quote },
    #[error(
        "{provider} does not know what was asked for ({status}{said}): check the model's name and baseUrl"
    )]
    NotFound { provider: String, status: Status, said: Quote },
    #[error("{provider} did not take the request ({status}{said}): check the options of the model")]
    BadRequest { provider: String, status: Status, said: Quote },
    #[error(
        "the conversation is too long for the model at {provider} ({status}{said}): shorten it or begin a new one"
    )]
    ContextTooLong { provider: String, status: Status, said: Quote },
    #[error("the request is larger than {provider} takes ({status}): send fewer or smaller images")]
    RequestTooLarge { provider: String, status: Status },
    #[error("{provider} limits how often it is asked ({status}{said}): try again {again}")]
    RateLimited { provider: String, status: Status, said: Quote, again: Again },
    #[error("{provider} is overloaded ({status}): try again {again}")]
    Overloaded { provider: String, status: Status, again: Again },
    #[error("{provider} failed ({status}{said}): try again {again}")]
    UpstreamFailed { provider: String, status: Status, said: Quote, again: Again },
    #[error("{provider} redirects to {to}, which is not followed: write the final address as baseUrl")]
    Redirected { provider: String, to: String },
    #[error("the name of {host} could not be looked up for {provider}: check baseUrl and the network")]
    DnsFailed { provider: String, host: String },
    #[error(
        "no secure connection with {host} for {provider}: check that it speaks https and that its certificate is trusted here"
    )]
    TlsFailed { provider: String, host: String },
    #[error(
        "{host} does not take connections for {provider} ({why}): check that it runs and that baseUrl is right"
    )]
    ConnectFailed { provider: String, host: String, why: &'static str },
    #[error("{host} did not let {provider} be connected to within {}: check baseUrl and the network", seconds(.after))]
    ConnectTimeout { provider: String, host: String, after: Duration },
    #[error("{provider} closed the connection before it answered: try again")]
    ConnectionLost { provider: String },
    #[error("{provider} sent nothing within {}: try again, or a shorter conversation", seconds(.after))]
    FirstByteTimeout { provider: String, after: Duration },
    #[error("{provider} fell silent for {} in the middle of its answer: what arrived is kept, try again", seconds(.after))]
    IdleTimeout { provider: String, after: Duration },
    #[error("{provider} had not finished its answer after {}: what arrived is kept, ask for less at once", seconds(.after))]
    AnswerTimeout { provider: String, after: Duration },
    #[error(
        "{provider} sent what its dialect does not have ({what}): check that baseUrl is the API and the dialect is right"
    )]
    MalformedStream { provider: String, what: String },
    #[error(
        "{provider} answered with {kind} instead of a stream{said}: check that baseUrl is the API and not a web page"
    )]
    NotAStream { provider: String, kind: String, said: Quote },
    #[error("{provider} broke off in the middle of its answer: what arrived is kept, try again")]
    CutStream { provider: String },
    #[error(
        "{provider} sent more than is read ({what} is over {}): what arrived is kept, ask for less at once", amount(*.limit))]
    TooLarge { provider: String, what: &'static str, limit: usize },
    #[error("the request to {provider} was cancelled: nothing needs to be done")]
    Cancelled { provider: String },
    #[error(
        "{provider} speaks Gemini's own API, which is only handed through to programs that speak it: give this agent a model of another provider"
    )]
    OnlyRelayed { provider: String },
    #[error("the request to {provider} could not be written: report it with the model's name")]
    Unwritable { provider: String },
}

impl ProviderError {
    /// One word for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::MissingKey { .. } => "missing_key",
            Self::UnusableKey { .. } => "unusable_key",
            Self::InsecureUrl { .. } => "insecure_url",
            Self::NoTls { .. } => "no_tls",
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
            Self::CutStream { .. } => "cut_stream",
            Self::TooLarge { .. } => "too_large",
            Self::Cancelled { .. } => "cancelled",
            Self::OnlyRelayed { .. } => "only_relayed",
            Self::Unwritable { .. } => "unwritable",
        }
    }

    /// Whether the provider may have worked on a request that failed like this before any of its answer came.
    pub const fn may_have_cost(&self) -> bool {
        matches!(
            self,
            Self::ConnectionLost { .. }
                | Self::FirstByteTimeout { .. }
                | Self::IdleTimeout { .. }
                | Self::AnswerTimeout { .. }
                | Self::MalformedStream { .. }
                | Self::NotAStream { .. }
                | Self::CutStream { .. }
                | Self::TooLarge { .. }
                | Self::Cancelled { .. }
        )
    }

    /// If it may go away by itself: when the provider says that it will.
    pub(super) const fn passing(&self) -> Option<Again> {
        match self {
            Self::RateLimited { again, .. }
            | Self::Overloaded { again, .. }
            | Self::UpstreamFailed { again, .. } => Some(*again),
            _ => None,
        }
    }

    pub(super) fn of_fault(endpoint: &Endpoint, fault: Fault) -> Self {
        let provider = endpoint.provider.clone();
        match fault {
            Fault::Malformed(what) => Self::MalformedStream { provider, what },
            Fault::TooLarge { what, limit } => Self::TooLarge { provider, what, limit },
            Fault::Cut => Self::CutStream { provider },
            Fault::Complaint(complaint) => Self::of_complaint(endpoint, complaint, Status(None), Again(None)),
        }
    }

    pub(super) fn of_complaint(
        endpoint: &Endpoint,
        complaint: Complaint,
        status: Status,
        again: Again,
    ) -> Self {
        let provider = endpoint.provider.clone();
        let said = Quote::of(endpoint, complaint.message.as_deref());
        match complaint.trouble {
            Trouble::BadRequest => Self::BadRequest { provider, status, said },
            Trouble::ContextTooLong => Self::ContextTooLong { provider, status, said },
            // What a provider says about a key may show a part of it.
            Trouble::Unauthorized => {
                let what = match &endpoint.key_env {
                    Some(env) => format!("the key in {env}"),
                    None => "a request without a key".to_owned(),
                };
                Self::Unauthorized { provider, what, status }
            }
            Trouble::NoCredit => Self::NoCredit { provider, status },
            Trouble::Forbidden => Self::Forbidden { provider, status, said },
            Trouble::NotFound => Self::NotFound { provider, status, said },
            Trouble::RequestTooLarge => Self::RequestTooLarge { provider, status },
            Trouble::RateLimited => Self::RateLimited { provider, status, said, again },
            Trouble::Overloaded => Self::Overloaded { provider, status, again },
            Trouble::Failed => Self::UpstreamFailed { provider, status, said, again },
        }
    }
}

/// The status of an answer; none if the trouble came up in the middle of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub Option<u16>);

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(status) => write!(f, "{status}"),
            None => f.write_str("in its answer"),
        }
    }
}

/// When to try again, as far as the provider says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Again(pub Option<Duration>);

impl std::fmt::Display for Again {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(after) => write!(f, "in {}", seconds(&after)),
            None => f.write_str("later"),
        }
    }
}

/// What the provider said, fit to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote(String);

impl Quote {
    pub(super) fn of(endpoint: &Endpoint, message: Option<&str>) -> Self {
        Self(message.map(|text| sanitize::sentence(text, endpoint.key.as_ref())).unwrap_or_default())
    }
}

impl std::fmt::Display for Quote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", \"{}\"", self.0) }
    }
}

/// Bytes in a unit that people use; a small number counts something else.
fn amount(limit: usize) -> String {
    if limit >= 1 << 20 { format!("{} MiB", limit >> 20) } else { limit.to_string() }
}

fn seconds(duration: &Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        // Whoever comes back on the second is not too early.
        whole if duration.subsec_nanos() > 0 => format!("{} s", whole + 1),
        whole => format!("{whole} s"),
    }
}
