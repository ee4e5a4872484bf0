//! A tool call and its outcome, as values.

use serde_json::Value;
pub use tribune_providers::ToolSpec;

/// A call that an agent wants to make.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Unique within the turn.
    pub id: String,
    pub name: String,
    pub input: Value,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    pub content: String,
    pub is_error: bool,
}

impl ToolOutcome {
    pub fn good(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: false }
    }

    pub fn error(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: true }
    }
}
