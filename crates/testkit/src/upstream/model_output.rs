//! The output of a fake model, which can be serialized in any API format.

use serde_json::Value;

use super::{UpstreamReply, anthropic, gemini, openai, responses};

/// One response of a model.
#[derive(Debug, Clone)]
pub struct ModelOutput {
    pub(super) parts: Vec<SayPart>,
    pub(super) usage: SayUsage,
    /// The stop reason in the API's own term; the default follows from the parts.
    pub(super) stop: Option<String>,
    /// Makes the ids of the response unique: agents treat two responses with the same id as one.
    pub(super) number: u64,
}

#[derive(Debug, Clone)]
pub(super) enum SayPart {
    Thinking { text: String, signature: String },
    Redacted { data: String },
    Detail { text: String, detail: Value },
    Text(String),
    Call { id: String, name: String, arguments: String },
}

/// Token usage as Anthropic counts it: `input` excludes cached tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct SayUsage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cached: u64,
}

impl Default for ModelOutput {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelOutput {
    pub const fn new() -> Self {
        Self {
            parts: Vec::new(),
            usage: SayUsage { input: 25, output: 15, cached: 0 },
            stop: None,
            number: 0,
        }
    }

    fn with(mut self, part: SayPart) -> Self {
        self.parts.push(part);
        self
    }

    /// Chat Completions omits the signature.
    pub fn thinking(self, text: &str, signature: &str) -> Self {
        self.with(SayPart::Thinking { text: text.into(), signature: signature.into() })
    }

    /// Chat Completions omits it.
    pub fn redacted(self, data: &str) -> Self {
        self.with(SayPart::Redacted { data: data.into() })
    }

    /// A reasoning detail of OpenRouter, as text and in the provider's own format. Anthropic omits it.
    pub fn reasoning_detail(self, text: &str, detail: Value) -> Self {
        self.with(SayPart::Detail { text: text.into(), detail })
    }

    pub fn text(self, text: &str) -> Self {
        self.with(SayPart::Text(text.into()))
    }

    pub fn call(self, id: &str, name: &str, arguments: &str) -> Self {
        self.with(SayPart::Call { id: id.into(), name: name.into(), arguments: arguments.into() })
    }

    pub fn usage(mut self, input: u64, output: u64, cached: u64) -> Self {
        self.usage = SayUsage { input, output, cached };
        self
    }

    pub fn stop(mut self, reason: &str) -> Self {
        self.stop = Some(reason.into());
        self
    }

    /// Sets the number that makes its ids unique.
    pub const fn with_number(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    /// As a stream of the Messages API.
    pub fn anthropic(&self) -> UpstreamReply {
        UpstreamReply::events(anthropic::events(self))
    }

    /// As a stream of Chat Completions.
    pub fn openai(&self) -> UpstreamReply {
        UpstreamReply::events(openai::events(self))
    }

    /// As a stream of the Responses API.
    pub fn responses(&self) -> UpstreamReply {
        UpstreamReply::events(responses::events(self))
    }

    /// As a stream of Gemini.
    pub fn gemini(&self) -> UpstreamReply {
        gemini::stream(self)
    }

    /// As an unstreamed response of Gemini.
    pub fn gemini_unstreamed(&self) -> UpstreamReply {
        gemini::whole(self)
    }

    pub(super) fn has_calls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, SayPart::Call { .. }))
    }
}

/// Splits a text into deltas of a few characters.
pub(super) fn text_chunks(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(7).map(|chunk| chunk.iter().collect()).collect()
}
