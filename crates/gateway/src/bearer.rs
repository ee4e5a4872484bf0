//! The bearer token of an HTTP request.

use axum::http::HeaderValue;

use crate::error::ApiError;

/// The token in an `Authorization` header.
pub(crate) fn bearer(header: Option<&HeaderValue>) -> Result<Option<&str>, ApiError> {
    let Some(header) = header else { return Ok(None) };
    let malformed = || ApiError::new("unauthorized", "the Authorization header has the form `Bearer TOKEN`");
    let text = header.to_str().map_err(|_| malformed())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(malformed)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(Some(token.trim())) } else { Err(malformed()) }
}
