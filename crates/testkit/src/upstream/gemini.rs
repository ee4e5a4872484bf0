//! A response as streamed by `POST /v1beta/models/M:streamGenerateContent?alt=sse`: unnamed chunks that each have the
//! shape of a complete response, unsplit calls, usage in every chunk, and no end marker except `finishReason` in the
//! last. Lines end with CRLF.

use serde_json::{Value, json};

use super::UpstreamReply;
use super::model_output::{ModelOutput, SayPart, text_chunks};

pub(super) fn stream(say: &ModelOutput) -> UpstreamReply {
    let mut parts: Vec<Value> = say.parts.iter().flat_map(|part| chunks(part, text_chunks)).collect();
    let last = parts.pop().unwrap_or_else(|| json!({ "text": "" }));
    let mut events: Vec<_> =
        parts.into_iter().map(|part| (None, answer(say, vec![part], None).to_string())).collect();
    events.push((None, answer(say, vec![last], Some(stop(say))).to_string()));
    UpstreamReply::events(events).crlf()
}

/// The unstreamed response of `generateContent`.
pub(super) fn whole(say: &ModelOutput) -> UpstreamReply {
    let parts = say.parts.iter().flat_map(|part| chunks(part, |text| vec![text.to_owned()])).collect();
    UpstreamReply::json(200, &answer(say, parts, Some(stop(say))))
}

fn stop(say: &ModelOutput) -> &str {
    say.stop.as_deref().unwrap_or("STOP")
}

fn chunks(part: &SayPart, cut: impl Fn(&str) -> Vec<String>) -> Vec<Value> {
    match part {
        SayPart::Thinking { text, .. } => {
            cut(text).into_iter().map(|text| json!({ "text": text, "thought": true })).collect()
        }
        SayPart::Text(text) => cut(text).into_iter().map(|text| json!({ "text": text })).collect(),
        SayPart::Call { name, arguments, .. } => {
            let args: Value = serde_json::from_str(arguments).unwrap();
            vec![json!({ "functionCall": { "name": name, "args": args } })]
        }
        SayPart::Redacted { .. } | SayPart::Detail { .. } => Vec::new(),
    }
}

fn answer(say: &ModelOutput, parts: Vec<Value>, stop: Option<&str>) -> Value {
    let mut candidate = json!({ "content": { "parts": parts, "role": "model" }, "index": 0 });
    if let Some(stop) = stop {
        candidate["finishReason"] = stop.into();
    }
    let prompt = say.usage.input + say.usage.cached;
    json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": prompt, "candidatesTokenCount": say.usage.output,
            "totalTokenCount": prompt + say.usage.output, "cachedContentTokenCount": say.usage.cached,
            "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": prompt }],
        },
        "modelVersion": "gemini-2.5-pro", "responseId": "mAxCaZvSNbSD28oPlpCd6AY",
    })
}
