//! Token usage in the formats of several servers. Their prompt tokens include cached ones, which are subtracted.

use serde_json::Value;

use crate::event::TokenUsage;

/// `None` if there is no usage, as in most chunks.
pub(crate) fn read(usage: &Value) -> Option<TokenUsage> {
    let number = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    let prompt = number("/prompt_tokens")?;
    // The members of OpenAI, Moonshot and DeepSeek.
    let cache_read = number("/prompt_tokens_details/cached_tokens")
        .or_else(|| number("/cached_tokens"))
        .or_else(|| number("/prompt_cache_hit_tokens"))
        .unwrap_or(0)
        .min(prompt);
    let cache_written =
        number("/prompt_tokens_details/cache_write_tokens").unwrap_or(0).min(prompt - cache_read);
    // Gemini includes thinking only in the total.
    let beyond_prompt = number("/total_tokens").unwrap_or(0).saturating_sub(prompt);
    Some(TokenUsage {
        input: prompt - cache_read - cache_written,
        output: number("/completion_tokens").unwrap_or(0).max(beyond_prompt),
        cache_read,
        cache_written,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn read_accepts_the_formats_of_several_servers() {
        let usage = |input, output, cache_read, cache_written| TokenUsage {
            input,
            output,
            cache_read,
            cache_written,
        };
        for (text, wanted) in [
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107, "prompt_tokens_details": { "cached_tokens": 60, "cache_write_tokens": 10 } }),
                Some(usage(30, 7, 60, 10)),
            ),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 7, "cached_tokens": 60 }),
                Some(usage(40, 7, 60, 0)),
            ),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 7, "prompt_cache_hit_tokens": 900 }),
                Some(usage(0, 7, 100, 0)),
            ),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 150 }),
                Some(usage(100, 50, 0, 0)),
            ),
            (Value::Null, None),
            (json!({}), None),
        ] {
            assert_eq!(read(&text), wanted, "{text}");
        }
    }
}
