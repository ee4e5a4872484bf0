//! Serializes the body of a completion request.
//!
//! The system prompt is one message, its parts separated by an empty line. Each tool result is a message of its own; an
//! error is marked in its text, because the API has no field for it. Providers cache prefixes automatically, so there
//! are no cache breakpoints; the serialized messages only grow at the end.
//!
//! Only thoughts that led to a tool call are sent back, and only in the compatible dialect: Moonshot and DeepSeek
//! require them together with the call and ignore or reject all others. OpenRouter's `reasoning_details` replace them
//! and are always sent back unchanged. Signed thoughts belong to Anthropic and are left out; the signature of a call
//! belongs to Gemini and is sent back with the call.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use crate::arguments;
use crate::endpoint::ApiDialect;
use crate::message::{AssistantPart, ChatMessage, ModelRequest, ToolResult, UserPart};

/// Prefix of the content of an error result.
const ERROR_PREFIX: &str = "[tool error] ";

/// Serializes the body.
pub(crate) fn body(request: &ModelRequest, dialect: ApiDialect) -> serde_json::Result<Vec<u8>> {
    let is_openai = dialect == ApiDialect::OpenAi;
    let system: Vec<&str> =
        request.system.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    let mut messages = Vec::new();
    if !system.is_empty() {
        messages.push(CompletionMessage::System { content: system.join("\n\n") });
    }
    for message in &request.messages {
        match message {
            ChatMessage::User(parts) => match (messages.last_mut(), user(parts)) {
                // Failed turns leave user messages without a response, and some servers require alternating roles.
                (
                    Some(CompletionMessage::User { content }),
                    Some(CompletionMessage::User { content: more }),
                ) => content.append(more),
                (_, message) => messages.extend(message),
            },
            ChatMessage::Assistant(parts) => messages.extend(assistant(parts, dialect)),
            ChatMessage::Results(results) => messages.extend(results.iter().map(result)),
        }
    }
    let limit = request.max_output_tokens;
    serde_json::to_vec(&CompletionRequest {
        model: &request.model,
        max_tokens: (!is_openai).then_some(limit),
        max_completion_tokens: is_openai.then_some(limit),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        tools: request
            .tools
            .iter()
            .map(|tool| FunctionTool {
                r#type: "function",
                function: FunctionDeclaration {
                    name: &tool.name,
                    description: &tool.description,
                    parameters: &tool.input_schema,
                },
            })
            .collect(),
        messages,
    })
}

#[derive(Serialize)]
struct CompletionRequest<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<FunctionTool<'a>>,
    messages: Vec<CompletionMessage<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct FunctionTool<'a> {
    r#type: &'static str,
    function: FunctionDeclaration<'a>,
}

#[derive(Serialize)]
struct FunctionDeclaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum CompletionMessage<'a> {
    System {
        content: String,
    },
    User {
        content: UserContent<'a>,
    },
    Assistant {
        /// Null if there are only tool calls.
        content: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        reasoning_details: Vec<&'a Value>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<CompletionToolCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: String,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum UserContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<UserContentPart<'a>>),
}

impl<'a> UserContent<'a> {
    fn append(&mut self, more: Self) {
        *self = match (std::mem::replace(self, Self::Parts(Vec::new())), more) {
            (Self::Text(text), Self::Text(more)) => Self::Text(format!("{text}\n\n{more}").into()),
            (text, more) => Self::Parts(text.into_parts().into_iter().chain(more.into_parts()).collect()),
        };
    }

    fn into_parts(self) -> Vec<UserContentPart<'a>> {
        match self {
            Self::Text(text) => vec![UserContentPart::Text { text }],
            Self::Parts(parts) => parts,
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum UserContentPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct CompletionToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: FunctionCall<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<ExtraContent<'a>>,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    name: &'a str,
    arguments: String,
}

#[derive(Serialize)]
struct ExtraContent<'a> {
    google: GoogleExtra<'a>,
}

#[derive(Serialize)]
struct GoogleExtra<'a> {
    thought_signature: &'a str,
}

fn user(parts: &[UserPart]) -> Option<CompletionMessage<'_>> {
    let parts: Vec<UserContentPart<'_>> = parts
        .iter()
        .filter_map(|part| match part {
            UserPart::Text(text) => (!text.is_empty()).then_some(UserContentPart::Text { text: text.into() }),
            UserPart::Image { mime_type, data } => Some(UserContentPart::ImageUrl {
                image_url: ImageUrl { url: format!("data:{mime_type};base64,{data}") },
            }),
        })
        .collect();
    match parts.as_slice() {
        [] => None,
        // Every server accepts plain text, some do not accept parts.
        [UserContentPart::Text { text }] => {
            Some(CompletionMessage::User { content: UserContent::Text(text.clone()) })
        }
        _ => Some(CompletionMessage::User { content: UserContent::Parts(parts) }),
    }
}

fn assistant(parts: &[AssistantPart], dialect: ApiDialect) -> Option<CompletionMessage<'_>> {
    let is_compatible = dialect == ApiDialect::OpenAiCompatible;
    let (mut content, mut thoughts, mut tool_calls) = (String::new(), String::new(), Vec::new());
    let mut reasoning_details = Vec::new();
    for part in parts {
        match part {
            AssistantPart::Text(text) => content.push_str(text),
            AssistantPart::Thinking { text, signature: None } => thoughts.push_str(text),
            AssistantPart::Thinking { signature: Some(_), .. } | AssistantPart::RedactedThinking { .. } => {}
            AssistantPart::ReasoningDetail(detail) => {
                reasoning_details.extend(is_compatible.then_some(detail))
            }
            AssistantPart::ToolUse { id, name, arguments, signature } => {
                tool_calls.push(CompletionToolCall {
                    id,
                    r#type: "function",
                    function: FunctionCall { name, arguments: arguments::object(arguments).get().to_owned() },
                    extra_content: signature
                        .as_deref()
                        .filter(|_| is_compatible)
                        .map(|thought_signature| ExtraContent { google: GoogleExtra { thought_signature } }),
                })
            }
        }
    }
    if content.is_empty() && tool_calls.is_empty() {
        return None;
    }
    let has_details = !reasoning_details.is_empty();
    let sends_thoughts = is_compatible && !tool_calls.is_empty() && !thoughts.is_empty() && !has_details;
    Some(CompletionMessage::Assistant {
        content: (!content.is_empty()).then_some(content),
        reasoning_content: sends_thoughts.then_some(thoughts),
        reasoning_details,
        tool_calls,
    })
}

fn result(result: &ToolResult) -> CompletionMessage<'_> {
    let prefix = if result.is_error { ERROR_PREFIX } else { "" };
    CompletionMessage::Tool { tool_call_id: &result.id, content: format!("{prefix}{}", result.content) }
}
