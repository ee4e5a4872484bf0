//! What a model's answer is made of while it arrives, whatever the dialect.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One event of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEvent {
    Text(String),
    Thinking(String),
    /// Ends a thought, and may be all there is of it.
    Signature(String),
    RedactedThinking(String),
    /// A piece of a thought in a form of the provider's, to go back as it came.
    ReasoningDetail(Value),
    /// A call begins. `index` counts the calls of this answer from 0.
    CallBegun {
        index: usize,
        /// Unique in the conversation, even where the provider's was not.
        id: String,
        name: String,
    },
    /// More of a call's arguments. There may be none, which means `{}`.
    CallArguments {
        index: usize,
        delta: String,
    },
    /// What is to go back with the call.
    CallSignature {
        index: usize,
        signature: String,
    },
    /// The tokens of the whole exchange so far; a later one replaces an earlier one.
    Usage(TokenUsage),
    /// The last event. Without it the answer was cut.
    Ended(Ended),
}

impl ModelEvent {
    /// Whether this is part of the answer itself. After the first such event a request is never sent again.
    pub fn is_output(&self) -> bool {
        match self {
            Self::Usage(_) => false,
            Self::Text(_)
            | Self::Thinking(_)
            | Self::Signature(_)
            | Self::RedactedThinking(_)
            | Self::ReasoningDetail(_)
            | Self::CallBegun { .. }
            | Self::CallArguments { .. }
            | Self::CallSignature { .. }
            | Self::Ended(_) => true,
        }
    }
}

/// Tokens of one request and its answer. The four do not overlap: a token of the prompt is in exactly one of `input`,
/// `cache_read` and `cache_written`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Of the prompt, without those that a cache answered or took up.
    pub input: u64,
    /// With what the model thought.
    pub output: u64,
    pub cache_read: u64,
    pub cache_written: u64,
}

impl TokenUsage {
    /// Both together.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_written: self.cache_written.saturating_add(other.cache_written),
        }
    }

    /// All tokens of the prompt.
    pub const fn prompt(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_written)
    }
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", content = "word", rename_all = "snake_case")]
pub enum Ended {
    EndTurn,
    /// There is at least one call, and all of them are whole.
    ToolUse,
    /// The output or the context window was full; the last part may be cut in the middle, a call among them.
    MaxTokens,
    /// The model or a filter of the provider declined.
    Refusal,
    /// A word we have no name for, such as `pause_turn`, which only tools that run at the provider bring about.
    Other(String),
}

impl Ended {
    /// What the word means, given whether there were calls: some servers say `stop` after a call.
    pub(super) fn settled(self, has_calls: bool) -> Self {
        match self {
            Self::EndTurn if has_calls => Self::ToolUse,
            Self::ToolUse if !has_calls => Self::EndTurn,
            settled => settled,
        }
    }
}
