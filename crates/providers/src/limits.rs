//! Every bound of a conversation with a provider, with its reason.

/// Bytes of one server-sent event. A whole call's arguments may come in one, and so may a long redacted thought.
pub const MAX_EVENT_BYTES: usize = 4 << 20;

/// Bytes of a whole streamed answer. The longest output of today's models is under 1 MiB of text; framing multiplies that.
pub const MAX_STREAM_BYTES: usize = 64 << 20;

/// Bytes that are read of an answer that refuses.
pub const MAX_ERROR_BYTES: usize = 64 << 10;

/// Characters that are shown of what a provider says went wrong.
pub const MAX_SHOWN_CHARS: usize = 300;

/// Bytes of a list of models.
pub const MAX_MODELS_BYTES: usize = 4 << 20;

/// Calls in one answer. More than a person could ever look through.
pub const MAX_CALLS: usize = 256;

/// Characters of the id of a call. Longer ones are replaced.
pub const MAX_CALL_ID_CHARS: usize = 128;
