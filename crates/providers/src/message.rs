//! The messages of a conversation, as they are stored and sent to a model, and the request that contains them.
//!
//! The JSON form of [`ChatMessage`] and its parts is stored, so its names must not change. It is not the wire format of a
//! provider: each dialect has its own serializer, which writes the same bytes for the same value every time.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool_spec::ToolSpec;

/// A request to a model.
#[derive(Clone, PartialEq)]
pub struct ModelRequest {
    /// The model name of the provider.
    pub model: String,
    /// The parts of the system prompt, in order. Empty parts are not sent.
    pub system: Vec<String>,
    pub messages: Vec<ChatMessage>,
    pub tools: Vec<ToolSpec>,
    pub max_output_tokens: u32,
    /// The thinking parameter. Only Anthropic's dialect has one; in other dialects the model decides.
    pub thinking: Option<Thinking>,
}

impl fmt::Debug for ModelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Message contents must never reach a log.
        f.debug_struct("ModelRequest")
            .field("model", &self.model)
            .field("messages", &self.messages.len())
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}

/// The thinking parameter of a request. [`ModelLimits`](super::ModelLimits) says which form a model accepts; the
/// provider rejects the wrong one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Thinking {
    /// A token budget, at least 1024 and less than `max_output_tokens`. Up to Claude 4.6.
    Budget(u32),
    /// The model decides. Claude 4.6 and later.
    Adaptive,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "role", content = "parts", rename_all = "snake_case", deny_unknown_fields)]
pub enum ChatMessage {
    User(Vec<UserPart>),
    /// A message with tool calls must be followed by one result for each call: providers reject a call without a
    /// result.
    Assistant(Vec<AssistantPart>),
    Results(Vec<ToolResult>),
}

/// One part of a user message.
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

/// One part of a model message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case", deny_unknown_fields)]
pub enum AssistantPart {
    Thinking {
        /// May be empty beside a signature: some models do not reveal their thinking.
        text: String,
        /// Proves to the provider that it produced the thought. Sent back unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    RedactedThinking {
        data: String,
    },
    /// A thought in the provider's own format, which may be signed or encrypted. Sent back unchanged.
    ReasoningDetail(Value),
    Text(String),
    ToolUse {
        /// Unique in the conversation.
        id: String,
        name: String,
        /// The JSON text exactly as it arrived. It may be empty, or invalid JSON if the model made a mistake.
        arguments: String,
        /// The thought signature that Gemini requires back with the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    /// The id of the call.
    pub id: String,
    pub content: String,
    pub is_error: bool,
}

impl ChatMessage {
    /// A user message of one text part.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(vec![UserPart::Text(text.into())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_json_form_is_stable() {
        let conversation = vec![
            ChatMessage::User(vec![
                UserPart::Text("look".into()),
                UserPart::Image { mime_type: "image/png".into(), data: "AA==".into() },
            ]),
            ChatMessage::Assistant(vec![
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
            ChatMessage::Results(vec![ToolResult { id: "c1".into(), content: "no".into(), is_error: true }]),
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
        assert_eq!(serde_json::from_str::<Vec<ChatMessage>>(&stored).unwrap(), conversation);
    }
}
