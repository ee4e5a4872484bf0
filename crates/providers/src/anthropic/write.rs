//! Serializes the body of a message request.
//!
//! Prompt caching: the last tool and the last block of the system prompt carry a cache breakpoint, which keeps its
//! position for the whole conversation. The messages carry none; the top-level `cache_control` makes the provider move
//! a breakpoint along with them. So the serialized messages only grow at the end.
//!
//! A thought is sent back only with its signature, because the API rejects it without one. A conversation may have
//! started with another provider: the thoughts of other providers are left out, and invalid characters in ids are
//! replaced.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::arguments;
use crate::message::{AssistantPart, ChatMessage, ModelRequest, Thinking, UserPart};

/// Serializes the body.
pub(crate) fn body(request: &ModelRequest) -> serde_json::Result<Vec<u8>> {
    let system: Vec<&str> =
        request.system.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    serde_json::to_vec(&MessagesRequest {
        model: &request.model,
        max_tokens: request.max_output_tokens,
        stream: true,
        cache_control: EPHEMERAL,
        thinking: request.thinking.map(|thinking| match thinking {
            Thinking::Budget(budget_tokens) => ThinkingConfig::Enabled { budget_tokens },
            Thinking::Adaptive => ThinkingConfig::Adaptive,
        }),
        tools: with_breakpoint_on_last(request.tools.iter(), |tool, cache_control| MessagesTool {
            name: &tool.name,
            description: &tool.description,
            input_schema: &tool.input_schema,
            cache_control,
        }),
        system: with_breakpoint_on_last(system.into_iter(), |text, cache_control| SystemBlock {
            r#type: "text",
            text,
            cache_control,
        }),
        messages: messages(&request.messages),
    })
}

#[derive(Serialize)]
struct MessagesRequest<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    cache_control: CacheControl,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingConfig>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<MessagesTool<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<SystemBlock<'a>>,
    messages: Vec<MessageParam<'a>>,
}

const EPHEMERAL: CacheControl = CacheControl { r#type: "ephemeral" };

#[derive(Serialize)]
struct CacheControl {
    r#type: &'static str,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ThinkingConfig {
    Enabled { budget_tokens: u32 },
    Adaptive,
}

#[derive(Serialize)]
struct MessagesTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct SystemBlock<'a> {
    r#type: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct MessageParam<'a> {
    role: MessageRole,
    content: Vec<BlockParam<'a>>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum MessageRole {
    User,
    Assistant,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum BlockParam<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: ImageSource<'a>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: Box<RawValue>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
struct ImageSource<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: &'a str,
}

/// Builds a list whose last entry has the cache breakpoint.
fn with_breakpoint_on_last<T, U>(
    items: impl ExactSizeIterator<Item = T>,
    make: impl Fn(T, Option<CacheControl>) -> U,
) -> Vec<U> {
    let last = items.len().saturating_sub(1);
    items.enumerate().map(|(at, item)| make(item, (at == last).then_some(EPHEMERAL))).collect()
}

/// Merges adjacent messages of the same role, because roles must alternate. In a user message, tool results come first.
fn messages(conversation: &[ChatMessage]) -> Vec<MessageParam<'_>> {
    let mut messages: Vec<MessageParam<'_>> = Vec::new();
    for message in conversation {
        let (role, content) = match message {
            ChatMessage::User(parts) => {
                (MessageRole::User, parts.iter().filter_map(user_block).collect::<Vec<_>>())
            }
            ChatMessage::Assistant(parts) => {
                (MessageRole::Assistant, parts.iter().filter_map(assistant_block).collect())
            }
            ChatMessage::Results(results) => {
                let blocks = results.iter().map(|result| BlockParam::ToolResult {
                    tool_use_id: id(&result.id),
                    content: &result.content,
                    is_error: result.is_error,
                });
                (MessageRole::User, blocks.collect())
            }
        };
        match messages.last_mut() {
            _ if content.is_empty() => {}
            Some(message) if message.role == role => message.content.extend(content),
            _ => messages.push(MessageParam { role, content }),
        }
    }
    for message in &mut messages {
        message.content.sort_by_key(|block| {
            message.role == MessageRole::User && !matches!(block, BlockParam::ToolResult { .. })
        });
    }
    messages
}

/// `None` for an empty or blank text, because the API rejects it.
fn user_block(part: &UserPart) -> Option<BlockParam<'_>> {
    match part {
        UserPart::Text(text) => (!text.trim().is_empty()).then_some(BlockParam::Text { text }),
        UserPart::Image { mime_type, data } => {
            Some(BlockParam::Image { source: ImageSource { r#type: "base64", media_type: mime_type, data } })
        }
    }
}

fn assistant_block(part: &AssistantPart) -> Option<BlockParam<'_>> {
    match part {
        AssistantPart::Thinking { text, signature } => {
            signature.as_deref().map(|signature| BlockParam::Thinking { thinking: text, signature })
        }
        AssistantPart::RedactedThinking { data } => Some(BlockParam::RedactedThinking { data }),
        // Belongs to another dialect.
        AssistantPart::ReasoningDetail(_) => None,
        AssistantPart::Text(text) => (!text.trim().is_empty()).then_some(BlockParam::Text { text }),
        AssistantPart::ToolUse { id: call, name, arguments, .. } => {
            Some(BlockParam::ToolUse { id: id(call), name, input: arguments::object(arguments) })
        }
    }
}

/// Replaces characters that the API does not allow in an id: it allows letters, digits, `_` and `-`.
fn id(text: &str) -> Cow<'_, str> {
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || "_-".contains(char);
    if text.chars().all(is_allowed) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|char| if is_allowed(char) { char } else { '_' }).collect::<String>().into()
}
