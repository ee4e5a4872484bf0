//! The output of a fake model, built by a test, in any API format. `tribune_providers::wire_encoder` writes it.

use serde_json::Value;
use tribune_providers::relay::ApiFormat;
use tribune_providers::wire_encoder::{ModelReply, ReplyPart, ReplyUsage};

use super::UpstreamReply;

/// The characters of each delta: so few that every reader has to join deltas.
const DELTA_CHARS: usize = 7;

/// One response of a model.
#[derive(Debug, Clone)]
pub struct ModelOutput(ModelReply);

impl Default for ModelOutput {
    fn default() -> Self {
        Self::new()
    }
}

impl ModelOutput {
    pub const fn new() -> Self {
        Self(ModelReply {
            parts: Vec::new(),
            usage: ReplyUsage { input: 25, output: 15, cached: 0 },
            stop: None,
            number: 0,
            model: None,
            delta_chars: Some(DELTA_CHARS),
        })
    }

    fn with(mut self, part: ReplyPart) -> Self {
        self.0.parts.push(part);
        self
    }

    /// Chat Completions omits the signature.
    pub fn thinking(self, text: &str, signature: &str) -> Self {
        self.with(ReplyPart::Thinking { text: text.into(), signature: signature.into() })
    }

    /// Chat Completions omits it.
    pub fn redacted(self, data: &str) -> Self {
        self.with(ReplyPart::RedactedThinking { data: data.into() })
    }

    /// A reasoning detail of OpenRouter, as text and in the provider's own format. Anthropic omits it.
    pub fn reasoning_detail(self, text: &str, detail: Value) -> Self {
        self.with(ReplyPart::ReasoningDetail { text: text.into(), detail })
    }

    pub fn text(self, text: &str) -> Self {
        self.with(ReplyPart::Text(text.into()))
    }

    pub fn call(self, id: &str, name: &str, arguments: &str) -> Self {
        let (id, name, arguments) = (id.into(), name.into(), arguments.into());
        self.with(ReplyPart::Call { id, namespace: None, name, arguments })
    }

    pub fn usage(mut self, input: u64, output: u64, cached: u64) -> Self {
        self.0.usage = ReplyUsage { input, output, cached };
        self
    }

    pub fn stop(mut self, reason: &str) -> Self {
        self.0.stop = Some(reason.into());
        self
    }

    /// Sets the number that makes its ids unique.
    pub const fn with_number(mut self, number: u64) -> Self {
        self.0.number = number;
        self
    }

    /// As a stream of the Messages API.
    pub fn anthropic(&self) -> UpstreamReply {
        stream(&self.0, ApiFormat::Messages)
    }

    /// As a stream of Chat Completions.
    pub fn openai(&self) -> UpstreamReply {
        stream(&self.0, ApiFormat::Chat)
    }

    /// As a stream of the Responses API. A tool name may have a namespace there: `NAMESPACE/NAME`.
    pub fn responses(&self) -> UpstreamReply {
        let mut reply = self.0.clone();
        for part in &mut reply.parts {
            if let ReplyPart::Call { namespace, name, .. } = part
                && let Some((space, rest)) = name.split_once('/')
            {
                (*namespace, *name) = (Some(space.to_owned()), rest.to_owned());
            }
        }
        stream(&reply, ApiFormat::Responses)
    }

    /// As a stream of Gemini, whose lines end with CRLF.
    pub fn gemini(&self) -> UpstreamReply {
        stream(&self.0, ApiFormat::Gemini).crlf()
    }

    /// As an unstreamed response of Gemini.
    pub fn gemini_unstreamed(&self) -> UpstreamReply {
        UpstreamReply::json(200, &self.0.whole(ApiFormat::Gemini))
    }
}

fn stream(reply: &ModelReply, format: ApiFormat) -> UpstreamReply {
    UpstreamReply::events(reply.stream(format).into_iter().map(|event| (event.name, event.data)))
}
