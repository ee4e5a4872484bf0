//! What can be wrong with an answer, before anyone knows whose it is.

use super::error_body::Complaint;

/// Why an answer cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is not what the dialect says it is.
    Malformed(String),
    TooLarge {
        what: &'static str,
        limit: usize,
    },
    /// It ended without its end.
    Cut,
    /// The provider says itself what is wrong.
    Complaint(Complaint),
}

impl Fault {
    pub(super) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed(what.into())
    }

    pub(super) const fn too_large(what: &'static str, limit: usize) -> Self {
        Self::TooLarge { what, limit }
    }
}
