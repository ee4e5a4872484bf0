//! A completion of `POST /chat/completions`. Its stream has unnamed chunks, calls interleaved by index, usage in a separate
//! chunk without choices, and `[DONE]`.

use serde_json::{Value, json};

use super::{ModelReply, ReplyPart, StreamEvent};

pub(super) fn whole(reply: &ModelReply) -> Value {
    let (mut content, mut calls) = (String::new(), Vec::new());
    for part in &reply.parts {
        match part {
            ReplyPart::Text(text) => content.push_str(text),
            ReplyPart::Call { id, name, arguments, .. } => {
                let function = json!({ "name": name, "arguments": arguments });
                calls.push(json!({ "id": id, "type": "function", "function": function }));
            }
            ReplyPart::Thinking { .. }
            | ReplyPart::RedactedThinking { .. }
            | ReplyPart::ReasoningDetail { .. } => {}
        }
    }
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": stop(reply) });
    completion(reply, "chat.completion", json!([choice]), usage(reply))
}

pub(super) fn stream(reply: &ModelReply) -> Vec<StreamEvent> {
    let first = json!({ "role": "assistant", "content": "", "refusal": null });
    let mut chunks = vec![choice(reply, first, Value::Null)];
    let mut calls = Vec::new();
    let deltas = |key: &str, text: &str| -> Vec<Value> {
        reply
            .deltas(text)
            .into_iter()
            .map(|delta| choice(reply, json!({ key: delta }), Value::Null))
            .collect()
    };
    for part in &reply.parts {
        match part {
            ReplyPart::Thinking { text, .. } => chunks.extend(deltas("reasoning_content", text)),
            ReplyPart::RedactedThinking { .. } => {}
            ReplyPart::ReasoningDetail { text, detail } => {
                let delta = json!({ "content": "", "reasoning": text, "reasoning_details": [detail] });
                chunks.push(choice(reply, delta, Value::Null));
            }
            ReplyPart::Text(text) => chunks.extend(deltas("content", text)),
            ReplyPart::Call { id, name, arguments, .. } => {
                let index = calls.len();
                let function = json!({ "name": name, "arguments": "" });
                let begin = json!({ "index": index, "id": id, "type": "function", "function": function });
                let more = reply.deltas(arguments).into_iter();
                let more = more.map(|delta| json!({ "index": index, "function": { "arguments": delta } }));
                calls.push(std::iter::once(begin).chain(more).collect::<Vec<_>>());
            }
        }
    }
    let call = |call| choice(reply, json!({ "tool_calls": [call] }), Value::Null);
    chunks.extend(calls.into_iter().flatten().map(call));
    chunks.push(choice(reply, json!({}), stop(reply).into()));
    chunks.push(completion(reply, CHUNK, json!([]), usage(reply)));
    let end = StreamEvent { name: None, data: "[DONE]".to_owned() };
    chunks.iter().map(StreamEvent::unnamed).chain([end]).collect()
}

const CHUNK: &str = "chat.completion.chunk";

fn stop(reply: &ModelReply) -> &str {
    reply.stop.as_deref().unwrap_or(if reply.has_calls() { "tool_calls" } else { "stop" })
}

fn usage(reply: &ModelReply) -> Value {
    let prompt = reply.usage.input + reply.usage.cached;
    json!({
        "prompt_tokens": prompt, "completion_tokens": reply.usage.output,
        "total_tokens": prompt + reply.usage.output,
        "prompt_tokens_details": { "cached_tokens": reply.usage.cached, "audio_tokens": 0 },
        "completion_tokens_details": { "reasoning_tokens": 0 },
    })
}

fn choice(reply: &ModelReply, delta: Value, finish_reason: Value) -> Value {
    let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
    completion(reply, CHUNK, json!([choice]), Value::Null)
}

fn completion(reply: &ModelReply, object: &str, choices: Value, usage: Value) -> Value {
    json!({
        "id": format!("chatcmpl-B9MBs8CjcvOU2jLn4n570{:08}", reply.number), "object": object,
        "created": 1_741_569_952, "model": reply.model("gpt-4.1-2025-04-14"), "service_tier": "default",
        "system_fingerprint": "fp_06737a9306", "choices": choices, "usage": usage,
    })
}
