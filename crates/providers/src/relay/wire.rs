//! The API formats of relayed requests, and where their responses report token usage.

use serde_json::Value;

use crate::endpoint::ApiDialect;
use crate::event::TokenUsage;
use crate::{anthropic, openai};

/// An API format. A provider may offer more formats than its dialect, which is the one that the native agent loop uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiFormat {
    /// Anthropic Messages.
    Messages,
    /// Chat Completions, and other endpoints with the same usage format.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Gemini's `generateContent`.
    Gemini,
}

impl ApiFormat {
    /// The dialect whose parser reads its streams, if there is one.
    pub(super) const fn parser_dialect(self) -> Option<ApiDialect> {
        match self {
            Self::Messages => Some(ApiDialect::Anthropic),
            Self::Chat => Some(ApiDialect::OpenAiCompatible),
            Self::Responses | Self::Gemini => None,
        }
    }

    /// The token usage in a response or in an event.
    pub(super) fn usage(self, response: &Value) -> Option<TokenUsage> {
        match self {
            Self::Messages => anthropic::usage::read(response.get("usage")?, TokenUsage::default()),
            Self::Chat => openai::usage::read(response.get("usage")?),
            Self::Responses => responses(response.get("usage")?),
            Self::Gemini => gemini(response.get("usageMetadata")?),
        }
    }
}

fn responses(usage: &Value) -> Option<TokenUsage> {
    let number = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    let prompt = number("/input_tokens")?;
    let cache_read = number("/input_tokens_details/cached_tokens").unwrap_or(0).min(prompt);
    let output = number("/output_tokens").unwrap_or(0);
    Some(TokenUsage { input: prompt - cache_read, output, cache_read, cache_written: 0 })
}

fn gemini(usage: &Value) -> Option<TokenUsage> {
    let number = |name: &str| usage.get(name).and_then(Value::as_u64);
    let prompt = number("promptTokenCount")?;
    let cache_read = number("cachedContentTokenCount").unwrap_or(0).min(prompt);
    let reported = number("candidatesTokenCount").unwrap_or(0) + number("thoughtsTokenCount").unwrap_or(0);
    // The total contains all output tokens, including kinds that have no member here.
    let beyond_prompt = number("totalTokenCount").unwrap_or(0).saturating_sub(prompt);
    Some(TokenUsage {
        input: prompt - cache_read,
        output: reported.max(beyond_prompt),
        cache_read,
        cache_written: 0,
    })
}
