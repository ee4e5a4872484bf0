//! The forwarded headers: one allowlist for requests and one for responses. Hop-by-hop headers, cookies, the client's own
//! credentials and unknown headers are on neither.

use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use tribune_redact::Redactor;

/// Request headers that are forwarded. `idempotency-key` is not among them, because all callers share one API key at the
/// provider, and a caller could receive another caller's response.
const REQUEST_HEADERS: [RequestHeader; 4] = [
    RequestHeader { name: "accept", allows: is_content_type },
    RequestHeader { name: "anthropic-version", allows: is_date },
    RequestHeader { name: "anthropic-beta", allows: is_anthropic_beta },
    RequestHeader { name: "openai-beta", allows: |value| value == "responses=experimental" },
];

/// A header and which of its values, separated by commas, are forwarded. A free value would be text that leaves without
/// the checks that the body passes, and a feature of the provider that the law does not know.
struct RequestHeader {
    name: &'static str,
    allows: fn(&str) -> bool,
}

impl RequestHeader {
    /// The values that are forwarded, or `None` if there are none.
    fn filter(&self, sent: &HeaderMap) -> Option<HeaderValue> {
        let lines = sent.get_all(self.name).iter().filter_map(|line| line.to_str().ok());
        let values =
            lines.flat_map(|line| line.split(',')).map(str::trim).filter(|value| (self.allows)(value));
        let kept: Vec<&str> = values.take(MAX_VALUES).collect();
        HeaderValue::from_str(&kept.join(",")).ok().filter(|value| !value.is_empty())
    }
}

/// Values of one request header. Claude Code sends about ten.
const MAX_VALUES: usize = 32;

/// Beta features of Anthropic's API that change only the form of a request or response: `NAME-DATE`. Features that let
/// the provider run tools, connect to servers, keep files or choose another model are not here.
const ANTHROPIC_BETAS: [&str; 23] = [
    "cache-diagnosis",
    "claude-code",
    "context-1m",
    "context-hint",
    "context-management",
    "effort",
    "extended-cache-ttl",
    "fine-grained-tool-streaming",
    "interleaved-thinking",
    "mid-conversation-system",
    "mid-conversation-system-clear-at",
    "mid-conversation-tool-changes",
    "output-128k",
    "prompt-caching",
    "prompt-caching-scope",
    "redact-thinking",
    "structured-outputs",
    "task-budgets",
    "thinking-display-updates",
    "thinking-token-count",
    "token-counting",
    "token-efficient-tools",
    "tool-examples",
];

fn is_anthropic_beta(value: &str) -> bool {
    let names = ANTHROPIC_BETAS.iter().filter_map(|name| value.strip_prefix(name)?.strip_prefix('-'));
    names.into_iter().any(is_date)
}

/// Whether this is `YYYY-MM-DD` or `YYYYMMDD`.
fn is_date(value: &str) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let dashes: Vec<usize> = value.match_indices('-').map(|(at, _)| at).collect();
    digits == 8 && (value.len() == 8 || (value.len() == 10 && dashes == [4, 7]))
}

fn is_content_type(value: &str) -> bool {
    matches!(value, "*/*" | "application/json" | "text/event-stream")
}

/// Response headers that are forwarded, in addition to the content type.
const RESPONSE_HEADERS: [&str; 7] = [
    "request-id",
    "x-request-id",
    "retry-after-ms",
    "x-should-retry",
    "openai-version",
    "openai-processing-ms",
    "openai-model",
];

/// Prefixes of forwarded rate limit headers.
const RATE_LIMIT_PREFIXES: [&str; 2] = ["anthropic-ratelimit-", "x-ratelimit-"];

/// The headers of the upstream request, without the key.
pub(super) fn up(sent: &HeaderMap, method: &Method) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for header in &REQUEST_HEADERS {
        if let Some(value) = header.filter(sent) {
            headers.insert(HeaderName::from_static(header.name), value);
        }
    }
    if method != Method::GET {
        // The body was parsed as JSON, whatever content type the client sent.
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    // The proxy reads the response for usage and for the key, so it must not be compressed.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers
}

/// The headers of the response to the client. A header that contains a secret is dropped.
pub(super) fn down(sent: &HeaderMap, redactor: &Redactor) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in sent {
        let word = name.as_str();
        let is_listed = name == CONTENT_TYPE
            || name == RETRY_AFTER
            || RESPONSE_HEADERS.contains(&word)
            || RATE_LIMIT_PREFIXES.iter().any(|beginning| word.starts_with(beginning));
        let is_clean = value.to_str().is_ok_and(|text| !redactor.contains_secret(text));
        if is_listed && is_clean {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// Whether a response is compressed, although `identity` was requested.
pub(super) fn is_encoded(sent: &HeaderMap) -> bool {
    let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    sent.get_all(CONTENT_ENCODING).iter().any(|value| !plain(value))
}

/// Whether a response is an event stream.
pub(super) fn is_stream(sent: &HeaderMap) -> bool {
    let kind = sent.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
        let pair =
            |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        headers.iter().map(pair).collect()
    }

    #[test]
    fn no_credentials_and_no_hop_by_hop_headers_are_sent() {
        let sent = map(&[
            ("authorization", "Bearer trb_x"),
            ("x-api-key", "trb_x"),
            ("cookie", "a=b"),
            ("host", "127.0.0.1:18789"),
            ("connection", "keep-alive, anthropic-beta"),
            ("proxy-authorization", "x"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("content-length", "3"),
            ("accept-encoding", "gzip, br"),
            ("openai-organization", "org"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-stainless-os", "Linux"),
            ("content-type", "text/plain"),
            ("accept", "application/json"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "effort-2025-11-24"),
            ("idempotency-key", "k"),
        ]);
        let wanted = map(&[
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "effort-2025-11-24"),
            ("accept", "application/json"),
            ("content-type", "application/json"),
            ("accept-encoding", "identity"),
        ]);
        assert_eq!(up(&sent, &Method::POST), wanted);
    }

    #[test]
    fn only_listed_values_of_request_headers_are_sent() {
        let sent = map(&[
            ("accept", "application/json; q=the customer list, text/event-stream"),
            ("anthropic-version", "2023-06-01, the customer list"),
            ("anthropic-beta", "claude-code-20250219, files-api-2025-04-14,context-management-2025-06-27"),
            ("anthropic-beta", "mcp-client-2025-04-04, claude-code-the-customer-list, effort-2025-1124x"),
            ("openai-beta", "assistants=v2, responses=experimental"),
        ]);
        let wanted = map(&[
            ("accept", "text/event-stream"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "claude-code-20250219,context-management-2025-06-27"),
            ("openai-beta", "responses=experimental"),
            ("accept-encoding", "identity"),
        ]);
        assert_eq!(up(&sent, &Method::GET), wanted);
    }

    #[test]
    fn a_header_without_a_listed_value_is_not_sent() {
        let sent =
            map(&[("anthropic-beta", "computer-use-2025-11-24"), ("openai-beta", "x"), ("accept", "")]);
        assert_eq!(up(&sent, &Method::GET), map(&[("accept-encoding", "identity")]));
    }

    #[test]
    fn response_headers_with_secrets_are_dropped() {
        let redactor = Redactor::new().with_exact_values(vec!["fixture-key-0123456789".to_owned()]);
        let sent = map(&[
            ("content-type", "text/event-stream; charset=utf-8"),
            ("request-id", "req_1"),
            ("x-request-id", "echo fixture-key-0123456789"),
            ("anthropic-ratelimit-requests-remaining", "3"),
            ("x-ratelimit-limit-tokens", "fixture-key-0123456789"),
            ("set-cookie", "a=b"),
            ("connection", "close"),
            ("content-length", "5"),
            ("www-authenticate", "Bearer"),
            ("location", "https://evil.example"),
            ("openai-organization", "org"),
            ("retry-after", "3"),
        ]);
        let wanted = map(&[
            ("content-type", "text/event-stream; charset=utf-8"),
            ("request-id", "req_1"),
            ("anthropic-ratelimit-requests-remaining", "3"),
            ("retry-after", "3"),
        ]);
        assert_eq!(down(&sent, &redactor), wanted);
        assert!(is_stream(&sent) && !is_encoded(&sent));
        assert!(is_encoded(&map(&[("content-encoding", "gzip")])));
        assert!(!is_encoded(&map(&[("content-encoding", "Identity")])));
    }
}
