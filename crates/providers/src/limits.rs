//! Size limits of responses from a provider, with their reasons.

/// Bytes of one server-sent event. One event may contain the complete arguments of a call or a long redacted thought.
pub const MAX_EVENT_BYTES: usize = 4 << 20;

/// Bytes of a streamed response. The longest output of current models is under 1 MiB of text; event framing multiplies
/// that.
pub const MAX_STREAM_BYTES: usize = 64 << 20;

/// Bytes that are read of an error response.
pub const MAX_ERROR_BYTES: usize = 64 << 10;

/// Characters that are shown of a provider's error message.
pub const MAX_SHOWN_CHARS: usize = 300;

/// Bytes of a model list.
pub const MAX_MODELS_BYTES: usize = 4 << 20;

/// Tool calls in one response. More than a person could review.
pub const MAX_CALLS: usize = 256;

/// Characters of a tool call id. Longer ids are replaced.
pub const MAX_CALL_ID_CHARS: usize = 128;
