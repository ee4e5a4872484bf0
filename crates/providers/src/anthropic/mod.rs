//! The dialect of Anthropic's Messages API.

mod read;
pub(super) mod usage;
mod write;

pub(super) use read::MessageDecoder;
pub(super) use write::body;

/// The API version, sent in the `anthropic-version` header.
pub(super) const VERSION: &str = "2023-06-01";
