//! A conversation as it is stored and sent again, and a request made of it.
//!
//! The JSON form of [`Said`] and its parts is stored, so its names stay. It is nobody's wire format: each dialect writes its
//! own, and writes the same bytes for the same value every time.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool_spec::ToolSpec;

/// What a model is asked.
#[derive(Clone, PartialEq)]
pub struct ModelRequest {
    /// As the provider calls it.
    pub model: String,
    /// The parts of the system prompt, in order. Empty ones are left out.
    pub system: Vec<String>,
    pub messages: Vec<Said>,
    pub tools: Vec<ToolSpec>,
    pub max_output_tokens: u32,
    /// Whether the model is asked to think. Only Anthropic's dialect has a word for it; others think as they please.
    pub thinking: Option<Thinking>,
}

impl fmt::Debug for ModelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is said never reaches a log.
        f.debug_struct("ModelRequest")
            .field("model", &self.model)
            .field("messages", &self.messages.len())
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}

/// How a model is asked to think. Which form a model takes is in its limits; the wrong one is refused upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Thinking {
    /// At most so many tokens, less than `max_output_tokens` and at least 1024. Up to Claude 4.6.
    Budget(u32),
    /// As much as the model finds right. Claude 4.6 and later.
    Adaptive,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "role", content = "parts", rename_all = "snake_case", deny_unknown_fields)]
pub enum Said {
    User(Vec<UserPart>),
    /// Whoever appends an answer with calls appends their results next, one for each: providers refuse a call without.
    Assistant(Vec<AssistantPart>),
    Results(Vec<ToolResult>),
}

/// One piece of what a user says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case", deny_unknown_fields)]
pub enum UserPart {
    Text(String),
    Image {
        mime_type: String,
        /// Base64.
        data: String,
    },
}

/// One piece of what a model says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case", deny_unknown_fields)]
pub enum AssistantPart {
    Thinking {
        /// May be empty beside a signature: some models keep their thoughts to themselves.
        text: String,
        /// Proves to the provider that the thought is its own. Sent back as it came.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    RedactedThinking {
        data: String,
    },
    /// A thought in a form of the provider's, signed or sealed or not. Sent back as it came.
    ReasoningDetail(Value),
    Text(String),
    ToolUse {
        /// Unique in the conversation.
        id: String,
        name: String,
        /// The JSON text exactly as it arrived; it may be empty, or no JSON at all if the model erred.
        arguments: String,
        /// What Gemini wants back with a call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    /// Of the call.
    pub id: String,
    pub content: String,
    pub is_error: bool,
}

impl Said {
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(vec![UserPart::Text(text.into())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_has_these_names() {
        let conversation = vec![
            Said::User(vec![
                UserPart::Text("look".into()),
                UserPart::Image { mime_type: "image/png".into(), data: "AA==".into() },
            ]),
            Said::Assistant(vec![
                AssistantPart::Thinking { text: "hm".into(), signature: Some("c2ln".into()) },
                AssistantPart::RedactedThinking { data: "ZGF0YQ==".into() },
                AssistantPart::ReasoningDetail(serde_json::json!({ "type": "reasoning.text" })),
                AssistantPart::Text("I look".into()),
                AssistantPart::ToolUse {
                    id: "c1".into(),
                    name: "read".into(),
                    arguments: r#"{ "path":"x" }"#.into(),
                    signature: None,
                },
            ]),
            Said::Results(vec![ToolResult { id: "c1".into(), content: "no".into(), is_error: true }]),
        ];
        let stored = serde_json::to_string(&conversation).unwrap();
        assert_eq!(
            stored,
            concat!(
                r#"[{"role":"user","parts":[{"type":"text","value":"look"},"#,
                r#"{"type":"image","value":{"mime_type":"image/png","data":"AA=="}}]},"#,
                r#"{"role":"assistant","parts":[{"type":"thinking","value":{"text":"hm","signature":"c2ln"}},"#,
                r#"{"type":"redacted_thinking","value":{"data":"ZGF0YQ=="}},"#,
                r#"{"type":"reasoning_detail","value":{"type":"reasoning.text"}},{"type":"text","value":"I look"},"#,
                r#"{"type":"tool_use","value":{"id":"c1","name":"read","arguments":"{ \"path\":\"x\" }"}}]},"#,
                r#"{"role":"results","parts":[{"id":"c1","content":"no","is_error":true}]}]"#,
            )
        );
        assert_eq!(serde_json::from_str::<Vec<Said>>(&stored).unwrap(), conversation);
    }
}
