//! A message as streamed by `POST /v1/messages`: named events, pings, an empty first delta of arguments.

use serde_json::{Value, json};

use super::model_output::{ModelOutput, SayPart, text_chunks};

pub(super) fn events(say: &ModelOutput) -> Vec<(Option<&'static str>, String)> {
    let mut events = vec![event(
        "message_start",
        json!({ "message": {
            "id": format!("msg_01XFDUDYJgAACzvn{:08}", say.number), "type": "message", "role": "assistant",
            "model": "claude-haiku-4-5-20251001", "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {
                "input_tokens": say.usage.input, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": say.usage.cached,
                "cache_creation": { "ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0 },
                "output_tokens": 1, "service_tier": "standard",
            },
        } }),
    )];
    let parts = say.parts.iter().filter(|part| !matches!(part, SayPart::Detail { .. }));
    for (index, part) in parts.enumerate() {
        let (begin, deltas) = block(part);
        events.push(event("content_block_start", json!({ "index": index, "content_block": begin })));
        if index == 0 {
            events.push(event("ping", json!({})));
        }
        let deltas = deltas.into_iter();
        events.extend(
            deltas.map(|delta| event("content_block_delta", json!({ "index": index, "delta": delta }))),
        );
        events.push(event("content_block_stop", json!({ "index": index })));
    }
    let stop = say.stop.as_deref().unwrap_or(if say.has_calls() { "tool_use" } else { "end_turn" });
    events.push(event(
        "message_delta",
        json!({
            "delta": { "stop_reason": stop, "stop_sequence": null },
            "usage": { "output_tokens": say.usage.output },
        }),
    ));
    events.push(event("message_stop", json!({})));
    events
}

/// The start of a block, and its deltas.
fn block(part: &SayPart) -> (Value, Vec<Value>) {
    let deltas = |kind: &str, key: &str, text: &str| -> Vec<Value> {
        text_chunks(text).into_iter().map(|chunk| json!({ "type": kind, key: chunk })).collect()
    };
    match part {
        SayPart::Thinking { text, signature } => {
            let mut more = deltas("thinking_delta", "thinking", text);
            more.push(json!({ "type": "signature_delta", "signature": signature }));
            (json!({ "type": "thinking", "thinking": "", "signature": "" }), more)
        }
        SayPart::Redacted { data } => (json!({ "type": "redacted_thinking", "data": data }), Vec::new()),
        SayPart::Text(text) => (json!({ "type": "text", "text": "" }), deltas("text_delta", "text", text)),
        SayPart::Detail { .. } => (json!({ "type": "text", "text": "" }), Vec::new()),
        SayPart::Call { id, name, arguments } => {
            let mut more = vec![json!({ "type": "input_json_delta", "partial_json": "" })];
            more.extend(deltas("input_json_delta", "partial_json", arguments));
            (json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), more)
        }
    }
}

fn event(kind: &'static str, mut data: Value) -> (Option<&'static str>, String) {
    data["type"] = kind.into();
    (Some(kind), data.to_string())
}
