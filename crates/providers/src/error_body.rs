//! Parses the error bodies of providers, in all known formats.
//!
//! The message is the provider's raw text and must not be shown: `error` sanitizes it.

use serde_json::Value;

/// The kind of error that a provider reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderErrorKind {
    BadRequest,
    ContextTooLong,
    Unauthorized,
    NoCredit,
    Forbidden,
    NotFound,
    RequestTooLarge,
    RateLimited,
    Overloaded,
    Failed,
}

/// An error that a provider reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedError {
    pub kind: ProviderErrorKind,
    /// The provider's own message, not sanitized.
    pub message: Option<String>,
}

impl ReportedError {
    /// Parses an error response.
    pub(super) fn from_response(status: u16, body: &[u8]) -> Self {
        let body = serde_json::from_slice::<Value>(body).unwrap_or(Value::Null);
        let message = message(&body);
        let named = kind_by_code(&body);
        let kind = match status {
            // Waiting does not restore a used-up quota.
            429 if named == Some(ProviderErrorKind::NoCredit) => ProviderErrorKind::NoCredit,
            429 if named == Some(ProviderErrorKind::Overloaded) => ProviderErrorKind::Overloaded,
            429 => ProviderErrorKind::RateLimited,
            400 | 422 => match named {
                Some(named @ (ProviderErrorKind::NoCredit | ProviderErrorKind::Unauthorized)) => named,
                _ if message.as_deref().is_some_and(is_context_too_long) => ProviderErrorKind::ContextTooLong,
                // Gemini reports an invalid key only in the message.
                _ if message.as_deref().is_some_and(|text| text.contains("API key not valid")) => {
                    ProviderErrorKind::Unauthorized
                }
                _ if named == Some(ProviderErrorKind::ContextTooLong) => ProviderErrorKind::ContextTooLong,
                _ => ProviderErrorKind::BadRequest,
            },
            401 => ProviderErrorKind::Unauthorized,
            402 => ProviderErrorKind::NoCredit,
            403 => ProviderErrorKind::Forbidden,
            404 => ProviderErrorKind::NotFound,
            413 => ProviderErrorKind::RequestTooLarge,
            503 | 529 => ProviderErrorKind::Overloaded,
            400..500 => ProviderErrorKind::BadRequest,
            _ => ProviderErrorKind::Failed,
        };
        Self { kind, message }
    }

    /// Parses an error event inside a stream.
    pub(super) fn from_event(event: &Value) -> Self {
        let message = message(event);
        let code = event.pointer("/error/code").and_then(Value::as_u64);
        let kind = match code.and_then(|code| u16::try_from(code).ok()) {
            Some(status @ 400..600) => Self::from_response(status, event.to_string().as_bytes()).kind,
            _ => match kind_by_code(event) {
                Some(ProviderErrorKind::BadRequest)
                    if message.as_deref().is_some_and(is_context_too_long) =>
                {
                    ProviderErrorKind::ContextTooLong
                }
                named => named.unwrap_or(ProviderErrorKind::Failed),
            },
        };
        Self { kind, message }
    }
}

/// Finds the message: `{"error":{"message":…}}`, Gemini's array of one, Ollama's `{"error":"…"}`, and top-level
/// members.
fn message(body: &Value) -> Option<String> {
    let body = body.get(0).unwrap_or(body);
    let error = body.get("error").unwrap_or(&Value::Null);
    [error.get("message"), Some(error), body.get("message"), body.get("detail")]
        .into_iter()
        .flatten()
        .find_map(Value::as_str)
        .map(str::to_owned)
}

/// The error kind that the `code`, `type` or `status` member names.
fn kind_by_code(body: &Value) -> Option<ProviderErrorKind> {
    let body = body.get(0).unwrap_or(body);
    let error = body.get("error").unwrap_or(body);
    let codes = ["code", "type", "status"].into_iter().filter_map(|key| error.get(key)?.as_str());
    codes.filter_map(kind_of_code).next()
}

fn kind_of_code(code: &str) -> Option<ProviderErrorKind> {
    Some(match code {
        "context_length_exceeded" | "exceed_context_size_error" => ProviderErrorKind::ContextTooLong,
        "insufficient_quota"
        | "exceeded_current_quota_error"
        | "billing_error"
        | "billing_hard_limit_reached" => ProviderErrorKind::NoCredit,
        "authentication_error" | "invalid_authentication_error" | "invalid_api_key" | "UNAUTHENTICATED" => {
            ProviderErrorKind::Unauthorized
        }
        "permission_error" | "permission_denied_error" | "PERMISSION_DENIED" => ProviderErrorKind::Forbidden,
        "not_found_error" | "model_not_found" | "resource_not_found_error" | "NOT_FOUND" => {
            ProviderErrorKind::NotFound
        }
        "request_too_large" => ProviderErrorKind::RequestTooLarge,
        "rate_limit_error" | "rate_limit_exceeded" | "rate_limit_reached_error" | "RESOURCE_EXHAUSTED" => {
            ProviderErrorKind::RateLimited
        }
        "overloaded_error" | "engine_overloaded_error" | "server_overloaded" | "UNAVAILABLE" => {
            ProviderErrorKind::Overloaded
        }
        "invalid_request_error" | "INVALID_ARGUMENT" => ProviderErrorKind::BadRequest,
        "api_error" | "server_error" | "timeout_error" => ProviderErrorKind::Failed,
        _ => return None,
    })
}

/// Whether the message says that the conversation is too long. Most providers report it only in the message.
fn is_context_too_long(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    [
        "prompt is too long",
        "maximum context length",
        "context window",
        "context length",
        "exceeds the maximum number of tokens",
        "exceed context limit",
        "exceeded model token limit",
    ]
    .iter()
    .any(|phrase| message.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_body_formats_of_known_providers() {
        let cases: [(u16, &str, ProviderErrorKind, Option<&str>); 12] = [
            (
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
                ProviderErrorKind::Unauthorized,
                Some("invalid x-api-key"),
            ),
            (
                400,
                r#"[{"error":{"code":400,"message":"API key not valid","status":"INVALID_ARGUMENT"}}]"#,
                ProviderErrorKind::Unauthorized,
                Some("API key not valid"),
            ),
            (
                404,
                r#"{"error":"model 'x' not found"}"#,
                ProviderErrorKind::NotFound,
                Some("model 'x' not found"),
            ),
            (422, r#"{"detail":"no"}"#, ProviderErrorKind::BadRequest, Some("no")),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}"#,
                ProviderErrorKind::ContextTooLong,
                Some("This model's maximum context length is 8192 tokens."),
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#,
                ProviderErrorKind::ContextTooLong,
                Some("prompt is too long: 9 > 8"),
            ),
            (
                429,
                r#"{"error":{"type":"insufficient_quota","message":"pay"}}"#,
                ProviderErrorKind::NoCredit,
                Some("pay"),
            ),
            (
                429,
                r#"{"error":{"type":"engine_overloaded_error","message":"busy"}}"#,
                ProviderErrorKind::Overloaded,
                Some("busy"),
            ),
            (429, "", ProviderErrorKind::RateLimited, None),
            (529, "<html>", ProviderErrorKind::Overloaded, None),
            (502, "<html>", ProviderErrorKind::Failed, None),
            (418, "7", ProviderErrorKind::BadRequest, None),
        ];
        for (status, body, kind, message) in cases {
            let wanted = ReportedError { kind, message: message.map(str::to_owned) };
            assert_eq!(ReportedError::from_response(status, body.as_bytes()), wanted, "{status} {body}");
        }
    }

    #[test]
    fn error_event_kinds() {
        let kind = |text: &str| ReportedError::from_event(&serde_json::from_str(text).unwrap()).kind;
        assert_eq!(
            kind(r#"{"type":"error","error":{"type":"overloaded_error"}}"#),
            ProviderErrorKind::Overloaded
        );
        assert_eq!(kind(r#"{"error":{"code":429,"message":"slow"}}"#), ProviderErrorKind::RateLimited);
        assert_eq!(kind(r#"{"error":{"code":"rate_limit_exceeded"}}"#), ProviderErrorKind::RateLimited);
        assert_eq!(kind(r#"{"error":"boom"}"#), ProviderErrorKind::Failed);
    }
}
