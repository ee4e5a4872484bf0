//! Encodes the answer of a model in the API formats of providers, as a stream or as one body. It is the opposite of what
//! the rest of this crate does: for stand-ins of a provider, which are the scripted model of canaries and the fake models
//! of tests. Pure: takes an answer, returns values and text.
//!
//! What it does not do: read requests, serve HTTP, or encode errors.

mod chat;
mod gemini;
mod messages;
mod responses;

use serde_json::Value;

use crate::relay::ApiFormat;

/// One answer of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReply {
    pub parts: Vec<ReplyPart>,
    pub usage: ReplyUsage,
    /// The stop reason in the API's own term. `None`: the one that follows from the parts.
    pub stop: Option<String>,
    /// Makes the ids of the answer unique: clients take two answers with the same id for one.
    pub number: u64,
    /// The name of the model. `None`: that of a real model with this API.
    pub model: Option<String>,
    /// The characters of each delta of a stream. `None`: one delta holds the whole text.
    pub delta_chars: Option<usize>,
}

/// One part of an answer. An API leaves out parts that it does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyPart {
    Thinking {
        text: String,
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
    /// A reasoning detail of OpenRouter, as text and in the provider's own format.
    ReasoningDetail {
        text: String,
        detail: Value,
    },
    Text(String),
    Call {
        id: String,
        /// The namespace of the tool, which only the Responses API has.
        namespace: Option<String>,
        name: String,
        /// JSON.
        arguments: String,
    },
}

/// Token usage as Anthropic counts it: `input` excludes cached tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyUsage {
    pub input: u64,
    pub output: u64,
    pub cached: u64,
}

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    pub name: Option<&'static str>,
    /// One line.
    pub data: String,
}

/// The API format of a request to this path, and whether the path itself requests a stream. Other APIs request one in the
/// body.
pub fn requested_format(path: &str) -> Option<(ApiFormat, bool)> {
    let ends = |end: &str| path.ends_with(end);
    if ends("/messages") {
        Some((ApiFormat::Messages, false))
    } else if ends("/chat/completions") {
        Some((ApiFormat::Chat, false))
    } else if ends("/responses") {
        Some((ApiFormat::Responses, false))
    } else if ends(":generateContent") || ends(":streamGenerateContent") {
        Some((ApiFormat::Gemini, ends(":streamGenerateContent")))
    } else {
        None
    }
}

impl ModelReply {
    /// The answer as a stream.
    pub fn stream(&self, format: ApiFormat) -> Vec<StreamEvent> {
        match format {
            ApiFormat::Messages => messages::stream(self),
            ApiFormat::Chat => chat::stream(self),
            ApiFormat::Responses => responses::stream(self),
            ApiFormat::Gemini => gemini::stream(self),
        }
    }

    /// The answer as one body. Chat Completions have only text and calls there.
    pub fn whole(&self, format: ApiFormat) -> Value {
        match format {
            ApiFormat::Messages => messages::whole(self),
            ApiFormat::Chat => chat::whole(self),
            ApiFormat::Responses => responses::whole(self),
            ApiFormat::Gemini => gemini::whole(self),
        }
    }

    fn model<'a>(&'a self, real: &'a str) -> &'a str {
        self.model.as_deref().unwrap_or(real)
    }

    fn has_calls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, ReplyPart::Call { .. }))
    }

    /// A text as deltas.
    fn deltas(&self, text: &str) -> Vec<String> {
        let Some(size) = self.delta_chars else {
            return if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
        };
        let chars: Vec<char> = text.chars().collect();
        chars.chunks(size.max(1)).map(|chunk| chunk.iter().collect()).collect()
    }
}

impl StreamEvent {
    /// An event that repeats its name in its data.
    fn named(name: &'static str, mut data: Value) -> Self {
        data["type"] = name.into();
        Self { name: Some(name), data: data.to_string() }
    }

    fn unnamed(data: &Value) -> Self {
        Self { name: None, data: data.to_string() }
    }

    /// The event as it is sent.
    pub fn to_text(&self) -> String {
        let name = self.name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        format!("{name}data: {}\n\n", self.data)
    }
}

/// The arguments of a call, where an API has them as a value.
fn parsed(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FORMATS: [ApiFormat; 4] =
        [ApiFormat::Messages, ApiFormat::Chat, ApiFormat::Responses, ApiFormat::Gemini];

    fn reply(delta_chars: Option<usize>) -> ModelReply {
        let call = ReplyPart::Call {
            id: "call_1".to_owned(),
            namespace: None,
            name: "read".to_owned(),
            arguments: r#"{"path":"notes.txt"}"#.to_owned(),
        };
        ModelReply {
            parts: vec![ReplyPart::Text("I will look.".to_owned()), call],
            usage: ReplyUsage { input: 20, output: 10, cached: 5 },
            stop: None,
            number: 3,
            model: Some("scripted".to_owned()),
            delta_chars,
        }
    }

    #[test]
    fn every_format_is_known_by_its_path() {
        for (path, expected) in [
            ("/v1/messages", Some((ApiFormat::Messages, false))),
            ("/chat/completions", Some((ApiFormat::Chat, false))),
            ("/v1/responses", Some((ApiFormat::Responses, false))),
            ("/v1beta/models/m:generateContent", Some((ApiFormat::Gemini, false))),
            ("/v1beta/models/m:streamGenerateContent", Some((ApiFormat::Gemini, true))),
            ("/v1/messages/count_tokens", None),
            ("/v1/files", None),
        ] {
            assert_eq!(requested_format(path), expected, "{path}");
        }
    }

    #[test]
    fn an_unstreamed_answer_has_text_call_and_usage() {
        let [messages, chat, responses, gemini] = FORMATS.map(|format| reply(None).whole(format));
        assert_eq!(messages["content"][0], json!({ "type": "text", "text": "I will look." }));
        assert_eq!(messages["content"][1]["input"], json!({ "path": "notes.txt" }));
        assert_eq!(
            (&messages["stop_reason"], &messages["usage"]["output_tokens"]),
            (&json!("tool_use"), &json!(10))
        );
        let message = &chat["choices"][0]["message"];
        assert_eq!(message["content"], "I will look.");
        assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"path":"notes.txt"}"#);
        assert_eq!(
            (&chat["object"], &chat["usage"]["prompt_tokens"]),
            (&json!("chat.completion"), &json!(25))
        );
        assert_eq!(responses["output"][0]["content"][0]["text"], "I will look.");
        assert_eq!(
            (&responses["status"], &responses["output"][1]["call_id"]),
            (&json!("completed"), &json!("call_1"))
        );
        let parts = &gemini["candidates"][0]["content"]["parts"];
        assert_eq!(parts[1]["functionCall"]["args"], json!({ "path": "notes.txt" }));
        assert_eq!(gemini["modelVersion"], "scripted");
    }

    #[test]
    fn a_stream_has_deltas_of_the_given_size() {
        for format in FORMATS {
            let text = |delta_chars| -> String {
                reply(delta_chars).stream(format).iter().map(StreamEvent::to_text).collect()
            };
            assert!(text(None).contains("I will look.") && text(None).contains("notes.txt"), "{format:?}");
            let cut = text(Some(4));
            assert!(cut.len() > text(None).len() && cut.contains("I wi"), "{format:?}: {cut}");
        }
    }
}
