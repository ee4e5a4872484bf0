//! The forwarded headers: one allowlist for requests and one for responses. Hop-by-hop headers, cookies, the client's own
//! credentials and unknown headers are on neither.

use axum::http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use tribune_redact::Redactor;

/// Request headers that are forwarded: they select the version of the API. `idempotency-key` is not among them, because all callers
/// share one API key at the provider, and a caller could receive another caller's response.
const REQUEST_HEADERS: [&str; 3] = ["anthropic-version", "anthropic-beta", "openai-beta"];

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
    for name in REQUEST_HEADERS.map(HeaderName::from_static).into_iter().chain([ACCEPT]) {
        for value in sent.get_all(&name) {
            headers.append(name.clone(), value.clone());
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
            ("anthropic-beta", "a"),
            ("idempotency-key", "k"),
        ]);
        let wanted = map(&[
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "a"),
            ("accept", "application/json"),
            ("content-type", "application/json"),
            ("accept-encoding", "identity"),
        ]);
        assert_eq!(up(&sent, &Method::POST), wanted);
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
