//! The error of a response. Which errors there are, and what is said about them, each protocol defines itself.

use std::fmt;

use serde::Serialize;

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
pub const METHOD_NOT_FOUND: i64 = -32601;
pub const INVALID_PARAMS: i64 = -32602;
pub const INTERNAL_ERROR: i64 = -32603;

/// The error object of a response. Its `Display` form is JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ErrorObject<'a> {
    code: i64,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<ErrorData<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct ErrorData<'a> {
    code: &'a str,
}

impl<'a> ErrorObject<'a> {
    pub const fn new(code: i64, message: &'a str) -> Self {
        Self { code, message, data: None }
    }

    /// An error with a name for programs, in `data.code`: Tribune has more errors than JSON-RPC has numbers.
    pub const fn named(code: i64, name: &'a str, message: &'a str) -> Self {
        Self { code, message, data: Some(ErrorData { code: name }) }
    }
}

impl fmt::Display for ErrorObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_in_the_data() {
        assert_eq!(
            ErrorObject::new(INTERNAL_ERROR, "a\"b").to_string(),
            r#"{"code":-32603,"message":"a\"b"}"#
        );
        assert_eq!(
            ErrorObject::named(INVALID_PARAMS, "too_large", "no").to_string(),
            r#"{"code":-32602,"message":"no","data":{"code":"too_large"}}"#
        );
    }
}
