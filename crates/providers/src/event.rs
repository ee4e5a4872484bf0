//! The events of a streamed response, independent of the dialect.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One event of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEvent {
    Text(String),
    Thinking(String),
    /// Ends a thought. A thought may consist of a signature alone.
    Signature(String),
    RedactedThinking(String),
    /// A part of a thought in the provider's own format. It is sent back unchanged.
    ReasoningDetail(Value),
    /// A tool call begins. `index` counts the calls of this response from 0.
    CallStarted {
        index: usize,
        /// Unique in the conversation, even if the provider's id was not.
        id: String,
        name: String,
    },
    /// The next part of a call's arguments. A call without such an event has the arguments `{}`.
    CallArguments {
        index: usize,
        delta: String,
    },
    /// A signature that is sent back with the call.
    CallSignature {
        index: usize,
        signature: String,
    },
    /// The tokens of the request and its response so far; a later event replaces an earlier one.
    Usage(TokenUsage),
    /// The last event. Without it the response was truncated.
    Finished(FinishReason),
}

impl ModelEvent {
    /// Whether this is model output. After the first such event a request is not retried.
    pub fn is_output(&self) -> bool {
        match self {
            Self::Usage(_) => false,
            Self::Text(_)
            | Self::Thinking(_)
            | Self::Signature(_)
            | Self::RedactedThinking(_)
            | Self::ReasoningDetail(_)
            | Self::CallStarted { .. }
            | Self::CallArguments { .. }
            | Self::CallSignature { .. }
            | Self::Finished(_) => true,
        }
    }
}

/// Tokens of one request and its response. The four numbers do not overlap: a prompt token is in exactly one of
/// `input`, `cache_read` and `cache_written`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Prompt tokens that were neither read from nor written to a cache.
    pub input: u64,
    /// Output tokens, including thinking.
    pub output: u64,
    pub cache_read: u64,
    pub cache_written: u64,
}

impl TokenUsage {
    /// The sum of both.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_written: self.cache_written.saturating_add(other.cache_written),
        }
    }

    /// All prompt tokens.
    pub const fn prompt(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_written)
    }
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", content = "word", rename_all = "snake_case")]
pub enum FinishReason {
    EndTurn,
    /// There is at least one tool call, and all calls are complete.
    ToolUse,
    /// The output limit or the context window was reached; the last part, which may be a call, may be truncated.
    MaxTokens,
    /// The model or a content filter of the provider declined.
    Refusal,
    /// Any other reason, such as `pause_turn`, which occurs only with tools that the provider executes.
    Other(String),
}

impl FinishReason {
    /// Corrects the reason by whether there were calls: some servers send `stop` after a call.
    pub(super) fn corrected(self, has_calls: bool) -> Self {
        match self {
            Self::EndTurn if has_calls => Self::ToolUse,
            Self::ToolUse if !has_calls => Self::EndTurn,
            other => other,
        }
    }
}
