//! Errors of decoding a response, without the provider that sent it.

use super::error_body::ReportedError;

/// Why the rest of a response cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// The data violates the dialect.
    Malformed(String),
    /// A size limit is exceeded.
    TooLarge { what: &'static str, limit: usize },
    /// The stream ended before the response was complete.
    Truncated,
    /// The provider reported an error inside the stream.
    Reported(ReportedError),
}

impl DecodeError {
    pub(super) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed(what.into())
    }

    pub(super) const fn too_large(what: &'static str, limit: usize) -> Self {
        Self::TooLarge { what, limit }
    }
}
