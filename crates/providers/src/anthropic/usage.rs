//! Tokens, as the Messages API counts them: the prompt without what a cache answered or took up.

use serde_json::Value;

use crate::event::TokenUsage;

/// What is known with this; `None` if it is no usage. Numbers are cumulative, so none ever falls.
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
