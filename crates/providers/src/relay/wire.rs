//! How a request that is handed through is written, and where its answer tells the tokens.

use serde_json::Value;

use crate::endpoint::Dialect;
use crate::event::TokenUsage;
use crate::{anthropic, openai};

/// An API. A provider's dialect is what our own loop speaks with it; it may have others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic Messages.
    Messages,
    /// Chat Completions, and what lies beside it.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Gemini's `generateContent`.
    Gemini,
}

impl Wire {
    /// The dialect whose parser reads its streams, if there is one.
    pub(super) const fn parsed_as(self) -> Option<Dialect> {
        match self {
            Self::Messages => Some(Dialect::Anthropic),
            Self::Chat => Some(Dialect::OpenAiCompatible),
            Self::Responses | Self::Gemini => None,
        }
    }

    /// The tokens that an answer tells, as a whole or in the event that tells them.
    pub(super) fn usage(self, said: &Value) -> Option<TokenUsage> {
        match self {
            Self::Messages => anthropic::usage::read(said.get("usage")?, TokenUsage::default()),
            Self::Chat => openai::usage::read(said.get("usage")?),
            Self::Responses => responses(said.get("usage")?),
            Self::Gemini => gemini(said.get("usageMetadata")?),
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
    let told = number("candidatesTokenCount").unwrap_or(0) + number("thoughtsTokenCount").unwrap_or(0);
    // What it used beside the prompt is in the total, whatever it is called.
    let beyond_prompt = number("totalTokenCount").unwrap_or(0).saturating_sub(prompt);
    Some(TokenUsage {
        input: prompt - cache_read,
        output: told.max(beyond_prompt),
        cache_read,
        cache_written: 0,
    })
}
