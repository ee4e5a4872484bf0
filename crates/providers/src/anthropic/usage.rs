//! Token usage of the Messages API. Its input tokens exclude cached ones.

use serde_json::Value;

use crate::event::TokenUsage;

/// Merges a usage object into the known usage; `None` if it is not an object. Numbers are cumulative, so each takes the
/// maximum.
pub(crate) fn read(usage: &Value, known: TokenUsage) -> Option<TokenUsage> {
    let usage = usage.as_object()?;
    let read = |key: &str, known: u64| usage.get(key).and_then(Value::as_u64).unwrap_or(0).max(known);
    Some(TokenUsage {
        input: read("input_tokens", known.input),
        output: read("output_tokens", known.output),
        cache_read: read("cache_read_input_tokens", known.cache_read),
        cache_written: read("cache_creation_input_tokens", known.cache_written),
    })
}
