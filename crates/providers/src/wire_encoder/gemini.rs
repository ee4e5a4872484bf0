//! An answer of `POST /v1beta/models/M:generateContent` and `:streamGenerateContent`. Its stream has unnamed chunks that each
//! have the shape of a complete answer, unsplit calls, usage in every chunk, and no end marker except `finishReason` in the
//! last.

use serde_json::{Value, json};

use super::{ModelReply, ReplyPart, StreamEvent, parsed};

pub(super) fn stream(reply: &ModelReply) -> Vec<StreamEvent> {
    let mut parts: Vec<Value> =
        reply.parts.iter().flat_map(|part| chunks(part, |text| reply.deltas(text))).collect();
    let last = parts.pop().unwrap_or_else(|| json!({ "text": "" }));
    let chunk = |part| StreamEvent::unnamed(&answer(reply, vec![part], None));
    let end = StreamEvent::unnamed(&answer(reply, vec![last], Some(stop(reply))));
    parts.into_iter().map(chunk).chain([end]).collect()
}

pub(super) fn whole(reply: &ModelReply) -> Value {
    let parts = reply.parts.iter().flat_map(|part| chunks(part, |text| vec![text.to_owned()])).collect();
    answer(reply, parts, Some(stop(reply)))
}

fn stop(reply: &ModelReply) -> &str {
    reply.stop.as_deref().unwrap_or("STOP")
}

fn chunks(part: &ReplyPart, cut: impl Fn(&str) -> Vec<String>) -> Vec<Value> {
    match part {
        ReplyPart::Thinking { text, .. } => {
            cut(text).into_iter().map(|text| json!({ "text": text, "thought": true })).collect()
        }
        ReplyPart::Text(text) => cut(text).into_iter().map(|text| json!({ "text": text })).collect(),
        ReplyPart::Call { name, arguments, .. } => {
            vec![json!({ "functionCall": { "name": name, "args": parsed(arguments) } })]
        }
        ReplyPart::RedactedThinking { .. } | ReplyPart::ReasoningDetail { .. } => Vec::new(),
    }
}

fn answer(reply: &ModelReply, parts: Vec<Value>, stop: Option<&str>) -> Value {
    let mut candidate = json!({ "content": { "parts": parts, "role": "model" }, "index": 0 });
    if let Some(stop) = stop {
        candidate["finishReason"] = stop.into();
    }
    let prompt = reply.usage.input + reply.usage.cached;
    json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": prompt, "candidatesTokenCount": reply.usage.output,
            "totalTokenCount": prompt + reply.usage.output, "cachedContentTokenCount": reply.usage.cached,
            "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": prompt }],
        },
        "modelVersion": reply.model("gemini-2.5-pro"), "responseId": format!("mAxCaZvSNbSD28o{:08}", reply.number),
    })
}
