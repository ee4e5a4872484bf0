//! An answer as `POST /v1beta/models/M:streamGenerateContent?alt=sse` streams it: unnamed chunks that each hold a whole answer's
//! shape, calls in one piece, tokens in every chunk, and no word for the end but `finishReason` in the last. Lines end with CR LF.

use serde_json::{Value, json};

use super::Reply;
use super::say::{Part, Say, pieces};

pub(super) fn stream(say: &Say) -> Reply {
    let mut parts: Vec<Value> = say.parts.iter().flat_map(|part| chunks(part, pieces)).collect();
    let last = parts.pop().unwrap_or_else(|| json!({ "text": "" }));
    let mut events: Vec<_> =
        parts.into_iter().map(|part| (None, answer(say, vec![part], None).to_string())).collect();
    events.push((None, answer(say, vec![last], Some(stop(say))).to_string()));
    Reply::events(events).crlf()
}

/// As `generateContent` answers, in one piece.
pub(super) fn whole(say: &Say) -> Reply {
    let parts = say.parts.iter().flat_map(|part| chunks(part, |text| vec![text.to_owned()])).collect();
    Reply::json(200, &answer(say, parts, Some(stop(say))))
}

fn stop(say: &Say) -> &str {
    say.stop.as_deref().unwrap_or("STOP")
}

fn chunks(part: &Part, cut: impl Fn(&str) -> Vec<String>) -> Vec<Value> {
    match part {
        Part::Thinking { text, .. } => {
            cut(text).into_iter().map(|text| json!({ "text": text, "thought": true })).collect()
        }
        Part::Text(text) => cut(text).into_iter().map(|text| json!({ "text": text })).collect(),
        Part::Call { name, arguments, .. } => {
            let args: Value = serde_json::from_str(arguments).unwrap();
            vec![json!({ "functionCall": { "name": name, "args": args } })]
        }
        Part::Redacted { .. } | Part::Detail { .. } => Vec::new(),
    }
}

fn answer(say: &Say, parts: Vec<Value>, stop: Option<&str>) -> Value {
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
