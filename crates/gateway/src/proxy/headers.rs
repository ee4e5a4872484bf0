//! The forwarded headers: one allowlist for requests and one for responses. Hop-by-hop headers, cookies, the client's own
//! credentials and unknown headers are on neither. Of an agent's request the values are on a list too: a header can turn on what
//! the body may not ask for.

use axum::http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use tribune_redact::Redactor;

use super::auth::Caller;

/// Request headers that are forwarded: they select the version of the API. `idempotency-key` is not among them, because all callers
/// share one API key at the provider, and a caller could receive another caller's response.
const REQUEST_HEADERS: [&str; 3] = ["anthropic-version", "anthropic-beta", "openai-beta"];

/// Features of Anthropic's API that an agent's request may turn on, without their dates: they change the form or the length of
/// the response, its thinking, its cache, or how the agent's own tools are described. Others run tools at the provider, use what
/// is stored there, or charge another price.
const AGENT_FEATURES: [&str; 21] = [
    "adaptive-thinking",
    "advanced-tool-use",
    "claude-code",
    "compact",
    "computer-use",
    "context-management",
    "effort",
    "extended-cache-ttl",
    "fine-grained-tool-streaming",
    "interleaved-thinking",
    "max-tokens-3-5-sonnet",
    "model-context-window-exceeded",
    "output-128k",
    "prompt-caching",
    "prompt-caching-scope",
    "redact-thinking",
    "structured-outputs",
    "token-counting",
    "token-efficient-tools",
    "tool-examples",
    "tool-search-tool",
];

/// Media types that an agent's request may accept.
const AGENT_ACCEPTS: [&str; 3] = ["*/*", "application/json", "text/event-stream"];

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
pub(super) fn up(sent: &HeaderMap, method: &Method, caller: &Caller) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in REQUEST_HEADERS.map(HeaderName::from_static).into_iter().chain([ACCEPT]) {
        let values = sent.get_all(&name).into_iter();
        let values: Vec<HeaderValue> = match caller.agent() {
            None => values.cloned().collect(),
            Some(_) => values.filter_map(|value| agent_value(&name, value)).collect(),
        };
        for value in values {
            headers.append(name.clone(), value);
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

/// The part of a header of an agent's request that is forwarded.
fn agent_value(name: &HeaderName, value: &HeaderValue) -> Option<HeaderValue> {
    let is_allowed = |word: &&str| match name.as_str() {
        "anthropic-beta" => is_agent_feature(word),
        "anthropic-version" => is_date(word),
        "openai-beta" => *word == "responses=experimental",
        _ => AGENT_ACCEPTS.contains(word),
    };
    let words: Vec<&str> = value.to_str().ok()?.split(',').map(str::trim).filter(is_allowed).collect();
    HeaderValue::from_str(&words.join(",")).ok().filter(|value| !value.is_empty())
}

/// Whether a word is one of [`AGENT_FEATURES`] with a date.
fn is_agent_feature(word: &str) -> bool {
    AGENT_FEATURES.iter().any(|feature| {
        let date = word.strip_prefix(*feature).and_then(|rest| rest.strip_prefix('-'));
        date.is_some_and(is_date)
    })
}

/// Whether a word is a date: `2023-06-01` or `20230601`.
fn is_date(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    digits == 8 && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') && word.len() <= 10
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
        assert_eq!(up(&sent, &Method::POST, &Caller::Operator), wanted);
    }

    #[test]
    fn values_of_an_agents_headers_are_on_a_list() {
        let agent = Caller::Agent("main".parse().unwrap());
        let forwarded = |name: &'static str, value: &str| {
            let headers = up(&map(&[(name, value)]), &Method::GET, &agent);
            headers.get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        let betas =
            "claude-code-20250219, interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14";
        assert_eq!(forwarded("anthropic-beta", betas), Some(betas.replace(' ', "")));
        for other in [
            "mcp-client-2025-04-04",
            "code-execution-2025-05-22",
            "files-api-2025-04-14",
            "web-fetch-2025-09-10",
            "skills-2025-10-02",
            "oauth-2025-04-20",
            "context-1m-2025-08-07",
            "effort",
            "effort-x",
            "effort-2025-11-24x",
            "claude-code-20250219;mcp-client-2025-04-04",
            "CLAUDE-CODE-20250219",
            "",
        ] {
            assert_eq!(forwarded("anthropic-beta", other), None, "{other}");
            let mixed = format!("effort-2025-11-24, {other}");
            assert_eq!(forwarded("anthropic-beta", &mixed).as_deref(), Some("effort-2025-11-24"), "{other}");
        }
        assert_eq!(forwarded("anthropic-version", "2023-06-01").as_deref(), Some("2023-06-01"));
        assert_eq!(forwarded("anthropic-version", "the notes say hello"), None);
        assert_eq!(
            forwarded("accept", "application/json, text/event-stream").as_deref(),
            Some("application/json,text/event-stream")
        );
        assert_eq!(forwarded("accept", "text/notes-say-hello"), None);
        assert_eq!(
            forwarded("openai-beta", "responses=experimental").as_deref(),
            Some("responses=experimental")
        );
        assert_eq!(forwarded("openai-beta", "assistants=v2"), None);
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
