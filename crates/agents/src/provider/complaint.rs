//! Parses the error bodies of providers, in all known formats.
//!
//! The message is the provider's raw text and must not be shown: `error` sanitizes it.

use serde_json::Value;

/// The kind of error that a provider reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
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
pub struct Complaint {
    pub trouble: Trouble,
    /// The provider's own message, not sanitized.
    pub message: Option<String>,
}

impl Complaint {
    /// Parses an error response.
    pub(super) fn of_status(status: u16, body: &[u8]) -> Self {
        let body = serde_json::from_slice::<Value>(body).unwrap_or(Value::Null);
        let message = message(&body);
        let named = trouble_named(&body);
        let trouble = match status {
            // Waiting does not restore a used-up quota.
            429 if named == Some(Trouble::NoCredit) => Trouble::NoCredit,
            429 if named == Some(Trouble::Overloaded) => Trouble::Overloaded,
            429 => Trouble::RateLimited,
            400 | 422 => match named {
                Some(named @ (Trouble::NoCredit | Trouble::Unauthorized)) => named,
                _ if message.as_deref().is_some_and(is_context_too_long) => Trouble::ContextTooLong,
                // Gemini reports an invalid key only in the message.
                _ if message.as_deref().is_some_and(|text| text.contains("API key not valid")) => {
                    Trouble::Unauthorized
                }
                _ if named == Some(Trouble::ContextTooLong) => Trouble::ContextTooLong,
                _ => Trouble::BadRequest,
            },
            401 => Trouble::Unauthorized,
            402 => Trouble::NoCredit,
            403 => Trouble::Forbidden,
            404 => Trouble::NotFound,
            413 => Trouble::RequestTooLarge,
            503 | 529 => Trouble::Overloaded,
            400..500 => Trouble::BadRequest,
            _ => Trouble::Failed,
        };
        Self { trouble, message }
    }

    /// Parses an error event inside a stream.
    pub(super) fn of_event(event: &Value) -> Self {
        let message = message(event);
        let code = event.pointer("/error/code").and_then(Value::as_u64);
        let trouble = match code.and_then(|code| u16::try_from(code).ok()) {
            Some(status @ 400..600) => Self::of_status(status, event.to_string().as_bytes()).trouble,
            _ => match trouble_named(event) {
                Some(Trouble::BadRequest) if message.as_deref().is_some_and(is_context_too_long) => {
                    Trouble::ContextTooLong
                }
                named => named.unwrap_or(Trouble::Failed),
            },
        };
        Self { trouble, message }
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
fn trouble_named(body: &Value) -> Option<Trouble> {
    let body = body.get(0).unwrap_or(body);
    let error = body.get("error").unwrap_or(body);
    let codes = ["code", "type", "status"].into_iter().filter_map(|key| error.get(key)?.as_str());
    codes.filter_map(trouble_of).next()
}

fn trouble_of(code: &str) -> Option<Trouble> {
    Some(match code {
        "context_length_exceeded" | "exceed_context_size_error" => Trouble::ContextTooLong,
        "insufficient_quota"
        | "exceeded_current_quota_error"
        | "billing_error"
        | "billing_hard_limit_reached" => Trouble::NoCredit,
        "authentication_error" | "invalid_authentication_error" | "invalid_api_key" | "UNAUTHENTICATED" => {
            Trouble::Unauthorized
        }
        "permission_error" | "permission_denied_error" | "PERMISSION_DENIED" => Trouble::Forbidden,
        "not_found_error" | "model_not_found" | "resource_not_found_error" | "NOT_FOUND" => Trouble::NotFound,
        "request_too_large" => Trouble::RequestTooLarge,
        "rate_limit_error" | "rate_limit_exceeded" | "rate_limit_reached_error" | "RESOURCE_EXHAUSTED" => {
            Trouble::RateLimited
        }
        "overloaded_error" | "engine_overloaded_error" | "server_overloaded" | "UNAVAILABLE" => {
            Trouble::Overloaded
        }
        "invalid_request_error" | "INVALID_ARGUMENT" => Trouble::BadRequest,
        "api_error" | "server_error" | "timeout_error" => Trouble::Failed,
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
        let cases: [(u16, &str, Trouble, Option<&str>); 12] = [
            (
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
                Trouble::Unauthorized,
                Some("invalid x-api-key"),
            ),
            (
                400,
                r#"[{"error":{"code":400,"message":"API key not valid","status":"INVALID_ARGUMENT"}}]"#,
                Trouble::Unauthorized,
                Some("API key not valid"),
            ),
            (404, r#"{"error":"model 'x' not found"}"#, Trouble::NotFound, Some("model 'x' not found")),
            (422, r#"{"detail":"no"}"#, Trouble::BadRequest, Some("no")),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}"#,
                Trouble::ContextTooLong,
                Some("This model's maximum context length is 8192 tokens."),
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#,
                Trouble::ContextTooLong,
                Some("prompt is too long: 9 > 8"),
            ),
            (
                429,
                r#"{"error":{"type":"insufficient_quota","message":"pay"}}"#,
                Trouble::NoCredit,
                Some("pay"),
            ),
            (
                429,
                r#"{"error":{"type":"engine_overloaded_error","message":"busy"}}"#,
                Trouble::Overloaded,
                Some("busy"),
            ),
            (429, "", Trouble::RateLimited, None),
            (529, "<html>", Trouble::Overloaded, None),
            (502, "<html>", Trouble::Failed, None),
            (418, "7", Trouble::BadRequest, None),
        ];
        for (status, body, trouble, message) in cases {
            let wanted = Complaint { trouble, message: message.map(str::to_owned) };
            assert_eq!(Complaint::of_status(status, body.as_bytes()), wanted, "{status} {body}");
        }
    }

    #[test]
    fn error_event_kinds() {
        let trouble = |text: &str| Complaint::of_event(&serde_json::from_str(text).unwrap()).trouble;
        assert_eq!(trouble(r#"{"type":"error","error":{"type":"overloaded_error"}}"#), Trouble::Overloaded);
        assert_eq!(trouble(r#"{"error":{"code":429,"message":"slow"}}"#), Trouble::RateLimited);
        assert_eq!(trouble(r#"{"error":{"code":"rate_limit_exceeded"}}"#), Trouble::RateLimited);
        assert_eq!(trouble(r#"{"error":"boom"}"#), Trouble::Failed);
    }
}
