//! A message of `POST /v1/messages`. Its stream has named events, a ping, and an empty first delta of arguments.

use serde_json::{Value, json};

use super::{ModelReply, ReplyPart, StreamEvent, parsed};

pub(super) fn whole(reply: &ModelReply) -> Value {
    let content = parts(reply).map(complete_block).collect();
    message(reply, content, stop(reply).into(), reply.usage.output)
}

pub(super) fn stream(reply: &ModelReply) -> Vec<StreamEvent> {
    let opened = message(reply, Vec::new(), Value::Null, 1);
    let mut events = vec![StreamEvent::named("message_start", json!({ "message": opened }))];
    for (index, part) in parts(reply).enumerate() {
        let (begin, deltas) = streamed_block(reply, part);
        let begin = json!({ "index": index, "content_block": begin });
        events.push(StreamEvent::named("content_block_start", begin));
        if index == 0 {
            events.push(StreamEvent::named("ping", json!({})));
        }
        let delta =
            |delta| StreamEvent::named("content_block_delta", json!({ "index": index, "delta": delta }));
        events.extend(deltas.into_iter().map(delta));
        events.push(StreamEvent::named("content_block_stop", json!({ "index": index })));
    }
    let end = json!({
        "delta": { "stop_reason": stop(reply), "stop_sequence": null },
        "usage": { "output_tokens": reply.usage.output },
    });
    events.push(StreamEvent::named("message_delta", end));
    events.push(StreamEvent::named("message_stop", json!({})));
    events
}

/// The parts that the API has.
fn parts(reply: &ModelReply) -> impl Iterator<Item = &ReplyPart> {
    reply.parts.iter().filter(|part| !matches!(part, ReplyPart::ReasoningDetail { .. }))
}

fn stop(reply: &ModelReply) -> &str {
    reply.stop.as_deref().unwrap_or(if reply.has_calls() { "tool_use" } else { "end_turn" })
}

fn message(reply: &ModelReply, content: Vec<Value>, stop: Value, output: u64) -> Value {
    json!({
        "id": format!("msg_01XFDUDYJgAACzvn{:08}", reply.number), "type": "message", "role": "assistant",
        "model": reply.model("claude-haiku-4-5-20251001"), "content": content, "stop_reason": stop,
        "stop_sequence": null,
        "usage": {
            "input_tokens": reply.usage.input, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": reply.usage.cached,
            "cache_creation": { "ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0 },
            "output_tokens": output, "service_tier": "standard",
        },
    })
}

fn complete_block(part: &ReplyPart) -> Value {
    match part {
        ReplyPart::Thinking { text, signature } => {
            json!({ "type": "thinking", "thinking": text, "signature": signature })
        }
        ReplyPart::RedactedThinking { data } => json!({ "type": "redacted_thinking", "data": data }),
        ReplyPart::Text(text) | ReplyPart::ReasoningDetail { text, .. } => {
            json!({ "type": "text", "text": text })
        }
        ReplyPart::Call { id, name, arguments, .. } => {
            json!({ "type": "tool_use", "id": id, "name": name, "input": parsed(arguments) })
        }
    }
}

/// The start of a block, and its deltas.
fn streamed_block(reply: &ModelReply, part: &ReplyPart) -> (Value, Vec<Value>) {
    let deltas = |kind: &str, key: &str, text: &str| -> Vec<Value> {
        reply.deltas(text).into_iter().map(|delta| json!({ "type": kind, key: delta })).collect()
    };
    match part {
        ReplyPart::Thinking { text, signature } => {
            let mut more = deltas("thinking_delta", "thinking", text);
            more.push(json!({ "type": "signature_delta", "signature": signature }));
            (json!({ "type": "thinking", "thinking": "", "signature": "" }), more)
        }
        ReplyPart::RedactedThinking { .. } => (complete_block(part), Vec::new()),
        ReplyPart::Text(text) | ReplyPart::ReasoningDetail { text, .. } => {
            (json!({ "type": "text", "text": "" }), deltas("text_delta", "text", text))
        }
        ReplyPart::Call { id, name, arguments, .. } => {
            let mut more = vec![json!({ "type": "input_json_delta", "partial_json": "" })];
            more.extend(deltas("input_json_delta", "partial_json", arguments));
            (json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), more)
        }
    }
}
