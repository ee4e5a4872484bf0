//! Tribune's errors in the shape of the provider's API, so that the SDK raises its own exceptions.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tribune_providers::{ApiDialect, ProviderError};

use crate::error::ApiError;

/// Tells official SDKs not to retry. Without it they retry automatically.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An error as a response. Without a dialect, which happens only for an unknown provider, it has Tribune's own shape.
pub(super) fn response(dialect: Option<ApiDialect>, error: &ApiError) -> Response {
    let status = error.status();
    let mut response = match dialect {
        Some(dialect) => (status, Json(shape(dialect, status, error.code, &error.message))).into_response(),
        None => error.clone().into_response(),
    };
    let passes = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::BAD_GATEWAY);
    if !passes {
        response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    response
}

/// The error body that the provider itself would send with this status.
pub(super) fn shape(dialect: ApiDialect, status: StatusCode, code: &str, message: &str) -> Value {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    match dialect {
        ApiDialect::Anthropic => {
            json!({ "type": "error", "error": { "type": kind, "message": message, "code": code } })
        }
        ApiDialect::OpenAi | ApiDialect::OpenAiCompatible => {
            json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
        }
        ApiDialect::Gemini => {
            let word = match status.as_u16() {
                401 => "UNAUTHENTICATED",
                403 => "PERMISSION_DENIED",
                404 => "NOT_FOUND",
                429 => "RESOURCE_EXHAUSTED",
                400..=499 => "INVALID_ARGUMENT",
                _ => "UNAVAILABLE",
            };
            json!({ "error": { "code": status.as_u16(), "message": message, "status": word } })
        }
    }
}

/// Converts a provider error.
pub(super) fn of_provider(error: &ProviderError) -> ApiError {
    let code = match error {
        ProviderError::MissingKey { .. } | ProviderError::UnusableKey { .. } => "no_key",
        _ => "backend",
    };
    ApiError::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_its_shape() {
        let status = StatusCode::FORBIDDEN;
        assert_eq!(
            shape(ApiDialect::Anthropic, status, "forbidden", "no"),
            json!({ "type": "error", "error": { "type": "permission_error", "message": "no", "code": "forbidden" } })
        );
        assert_eq!(
            shape(ApiDialect::OpenAi, status, "forbidden", "no"),
            json!({ "error": { "message": "no", "type": "permission_error", "param": null, "code": "forbidden" } })
        );
        assert_eq!(
            shape(ApiDialect::Gemini, status, "forbidden", "no"),
            json!({ "error": { "code": 403, "message": "no", "status": "PERMISSION_DENIED" } })
        );
    }

    #[test]
    fn sdks_retry_only_where_it_may_help() {
        let retries = |code: &'static str| {
            let response = response(Some(ApiDialect::OpenAi), &ApiError::new(code, "x"));
            response.headers().get(SHOULD_RETRY).is_none()
        };
        for code in ["busy", "rate_limited", "backend"] {
            assert!(retries(code), "{code}");
        }
        for code in ["unauthorized", "forbidden", "frozen", "no_key", "invalid_params", "draining"] {
            assert!(!retries(code), "{code}");
        }
    }
}
