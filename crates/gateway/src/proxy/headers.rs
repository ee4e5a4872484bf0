//! Which headers go up, and which come back: closed lists both ways. Hop-by-hop headers, cookies, the client's own
//! credentials, and whatever else nobody thought of are on neither.

use axum::http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use tribune_redact::Redactor;

/// What a client may say to the provider: which form of the API it means. Not that a repetition is one (`idempotency-key`): all
/// who ask here share one key at the provider, and somebody else's answer would be the repetition.
const UP: [&str; 3] = ["anthropic-version", "anthropic-beta", "openai-beta"];

/// What a provider may say to the client beside the kind of its answer.
const DOWN: [&str; 7] = [
    "request-id",
    "x-request-id",
    "retry-after-ms",
    "x-should-retry",
    "openai-version",
    "openai-processing-ms",
    "openai-model",
];

/// Beginnings of headers that tell how much may still be asked.
const LIMITS: [&str; 2] = ["anthropic-ratelimit-", "x-ratelimit-"];

/// The headers of a request as it goes up, but for the key.
pub(super) fn up(sent: &HeaderMap, method: &Method) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in UP.map(HeaderName::from_static).into_iter().chain([ACCEPT]) {
        for value in sent.get_all(&name) {
            headers.append(name.clone(), value.clone());
        }
    }
    if method != Method::GET {
        // The body was read as this, whatever it was called.
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    // What passes by is read for its tokens, and looked through for the key.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers
}

/// The headers of an answer as they go down. One that holds a secret is left out.
pub(super) fn down(sent: &HeaderMap, redactor: &Redactor) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in sent {
        let word = name.as_str();
        let is_listed = name == CONTENT_TYPE
            || name == RETRY_AFTER
            || DOWN.contains(&word)
            || LIMITS.iter().any(|beginning| word.starts_with(beginning));
        let is_clean = value.to_str().is_ok_and(|text| !redactor.contains_secret(text));
        if is_listed && is_clean {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// Whether an answer is compressed, though that was not asked for.
pub(super) fn is_encoded(sent: &HeaderMap) -> bool {
    let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    sent.get_all(CONTENT_ENCODING).iter().any(|value| !plain(value))
}

/// Whether an answer is a stream of events.
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
    fn no_credential_and_no_hop_goes_up() {
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
    fn nothing_that_holds_a_secret_comes_down() {
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
