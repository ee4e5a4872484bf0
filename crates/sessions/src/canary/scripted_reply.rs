//! The HTTP responses of a canary's scripted model. The encoding of an answer is that of
//! [`tribune_providers::wire_encoder`].

use serde_json::Value;
use tribune_providers::relay::ApiFormat;
use tribune_providers::wire_encoder::{ModelReply, ReplyPart, ReplyUsage, StreamEvent};

/// The name of the model in its answers.
const MODEL: &str = "canary";

/// One answer of the model: text, and optionally a tool call after it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScriptedAnswer {
    pub(super) text: String,
    pub(super) call: Option<Call>,
    /// Makes the ids of the answer unique.
    pub(super) number: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Value,
}

/// An HTTP response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptedResponse {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl ScriptedResponse {
    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self { status, content_type: "application/json", body: body.to_string() }
    }
}

impl ScriptedAnswer {
    /// Encodes the answer, as a stream or as one body.
    pub(super) fn encode(self, format: ApiFormat, is_stream: bool) -> ScriptedResponse {
        let prefix = if format == ApiFormat::Messages { "toolu" } else { "call" };
        let id = format!("{prefix}_canary{:08}", self.number);
        let call = self.call.map(|Call { name, arguments }| {
            let (id, arguments) = (id, arguments.to_string());
            ReplyPart::Call { id, namespace: None, name, arguments }
        });
        let reply = ModelReply {
            parts: std::iter::once(ReplyPart::Text(self.text)).chain(call).collect(),
            usage: ReplyUsage { input: 20, output: 10, cached: 0 },
            stop: None,
            number: self.number,
            model: Some(MODEL.to_owned()),
            delta_chars: None,
        };
        if !is_stream {
            return ScriptedResponse::json(200, &reply.whole(format));
        }
        let body = reply.stream(format).iter().map(StreamEvent::to_text).collect();
        ScriptedResponse { status: 200, content_type: "text/event-stream", body }
    }
}
