//! The error type of every interface: a code for programs, a sentence for people, and its JSON-RPC and HTTP forms.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tribune_json_rpc::ErrorObject;
use tribune_runtime::session::NameError;
use tribune_sessions::session::SessionError;
use tribune_storage::store::StoreError;

use crate::api_types::{ErrorBody, ErrorInfo};

/// Every error code, with its JSON-RPC number and its HTTP status.
pub const CODES: [(&str, i64, u16); 28] = [
    ("parse_error", -32700, 400),
    ("invalid_request", -32600, 400),
    ("method_not_found", -32601, 404),
    ("invalid_params", -32602, 400),
    ("internal", -32603, 500),
    ("unauthorized", -32001, 401),
    ("forbidden", -32002, 403),
    ("not_found", -32003, 404),
    ("busy", -32004, 429),
    ("session_closed", -32005, 409),
    ("draining", -32006, 503),
    ("rate_limited", -32007, 429),
    ("too_many_sessions", -32009, 429),
    ("expired", -32010, 410),
    ("ahead", -32011, 416),
    ("storage", -32012, 503),
    ("unknown_agent", -32013, 404),
    ("unknown_backend", -32014, 409),
    ("no_mandate", -32015, 409),
    ("conflict", -32016, 409),
    ("too_large", -32017, 413),
    ("too_many_requests", -32018, 429),
    ("foreign_host", -32019, 403),
    ("foreign_origin", -32020, 403),
    ("too_many_connections", -32021, 503),
    ("backend", -32022, 502),
    ("frozen", -32023, 409),
    ("no_key", -32024, 503),
];

/// Why a request failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl ApiError {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn params(message: impl Into<String>) -> Self {
        Self::new("invalid_params", message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new("forbidden", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(
            "unauthorized",
            "this needs a principal: send `Authorization: Bearer TOKEN` with the token in run/token, or call auth.token or auth.agent first",
        )
    }

    fn numbers(&self) -> (i64, u16) {
        let found = CODES.iter().find(|(code, _, _)| *code == self.code);
        found.map_or((-32603, 500), |(_, number, status)| (*number, *status))
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.numbers().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The JSON-RPC error object.
    pub(crate) fn to_rpc(&self) -> ErrorObject<'_> {
        ErrorObject::named(self.numbers().0, self.code, &self.message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let error = ErrorInfo { code: self.code.to_owned(), message: self.message };
        (status, Json(ErrorBody { error })).into_response()
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        let known = CODES.iter().find(|(code, _, _)| *code == error.code());
        // A backend has error codes of its own. Callers see `backend`; the sentence keeps the cause.
        let code = known.map_or("backend", |(code, _, _)| code);
        match error {
            // An unknown name is text that the caller sent and may be anything: it is not repeated.
            SessionError::Name(error) => misnamed(&error),
            SessionError::NotFound(_) => Self::new(code, "there is no such session: open it first"),
            SessionError::UnknownAgent(_) => Self::new(
                code,
                "there is no such agent: `tribune agents list` shows them, `tribune agents add` adds one",
            ),
            other => Self::new(code, other.to_string()),
        }
    }
}

/// The error for an invalid name, without the name itself.
pub(crate) fn misnamed(error: &NameError) -> ApiError {
    let what = error.to_string();
    // The message begins with the name that was sent, in quotes; the rule follows it.
    let rest = match error {
        NameError::Agent(sent)
        | NameError::Reserved(sent)
        | NameError::SessionForm(sent)
        | NameError::SessionCharacters(sent) => what.get(sent.len() + 3..),
        NameError::SessionLength => None,
    };
    ApiError::params(rest.map_or_else(|| what.clone(), |rest| format!("this {rest}")))
}

/// Text that the caller sent, for an error sentence: at most 80 characters, without control characters.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Entry(_)
            | StoreError::NoSuchParent(_)
            | StoreError::TooMuchAtOnce { .. }
            | StoreError::Reserved(_) => "invalid_params",
            _ => "storage",
        };
        Self::new(code, error.to_string())
    }
}
