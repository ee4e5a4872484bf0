//! What a model says, to be written in any dialect.

use serde_json::Value;

use super::{Reply, anthropic, gemini, openai, responses};

/// One answer of a model.
#[derive(Debug, Clone)]
pub struct Say {
    pub(super) parts: Vec<Part>,
    pub(super) usage: Usage,
    /// Why it stops, in the dialect's word; by default, what fits the parts.
    pub(super) stop: Option<String>,
    /// Which answer of its model it is; agents take two with the same name for one.
    pub(super) number: u64,
}

#[derive(Debug, Clone)]
pub(super) enum Part {
    Thinking { text: String, signature: String },
    Redacted { data: String },
    Detail { words: String, detail: Value },
    Text(String),
    Call { id: String, name: String, arguments: String },
}

/// Tokens, as Anthropic counts them: `input` without what the cache answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cached: u64,
}

impl Default for Say {
    fn default() -> Self {
        Self::new()
    }
}

impl Say {
    pub const fn new() -> Self {
        Self { parts: Vec::new(), usage: Usage { input: 25, output: 15, cached: 0 }, stop: None, number: 0 }
    }

    fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// The signature is left out by Chat Completions, which has none.
    pub fn thinking(self, text: &str, signature: &str) -> Self {
        self.with(Part::Thinking { text: text.into(), signature: signature.into() })
    }

    /// Left out by Chat Completions.
    pub fn redacted(self, data: &str) -> Self {
        self.with(Part::Redacted { data: data.into() })
    }

    /// A piece of a thought as OpenRouter tells it, in words and in the thinker's own form. Left out by Anthropic.
    pub fn reasoning_detail(self, words: &str, detail: Value) -> Self {
        self.with(Part::Detail { words: words.into(), detail })
    }

    pub fn text(self, text: &str) -> Self {
        self.with(Part::Text(text.into()))
    }

    pub fn call(self, id: &str, name: &str, arguments: &str) -> Self {
        self.with(Part::Call { id: id.into(), name: name.into(), arguments: arguments.into() })
    }

    pub fn usage(mut self, input: u64, output: u64, cached: u64) -> Self {
        self.usage = Usage { input, output, cached };
        self
    }

    pub fn stop(mut self, word: &str) -> Self {
        self.stop = Some(word.into());
        self
    }

    /// Gives it names of its own.
    pub const fn numbered(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    /// As the Messages API streams it.
    pub fn anthropic(&self) -> Reply {
        Reply::events(anthropic::events(self))
    }

    /// As Chat Completions streams it.
    pub fn openai(&self) -> Reply {
        Reply::events(openai::events(self))
    }

    /// As the Responses API streams it.
    pub fn responses(&self) -> Reply {
        Reply::events(responses::events(self))
    }

    /// As Gemini streams it.
    pub fn gemini(&self) -> Reply {
        gemini::stream(self)
    }

    /// As Gemini answers in one piece.
    pub fn gemini_whole(&self) -> Reply {
        gemini::whole(self)
    }

    pub(super) fn has_calls(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Call { .. }))
    }
}

/// Pieces as a model sends them, a few characters each.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(7).map(|piece| piece.iter().collect()).collect()
}
