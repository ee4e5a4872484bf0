//! A completion as streamed by `POST /chat/completions`: unnamed chunks, calls interleaved by index, usage in a
//! separate chunk without choices, and `[DONE]`.

use serde_json::{Value, json};

use super::model_output::{ModelOutput, SayPart, text_chunks};

pub(super) fn events(say: &ModelOutput) -> Vec<(Option<&'static str>, String)> {
    let mut chunks =
        vec![choice(json!({ "role": "assistant", "content": "", "refusal": null }), Value::Null)];
    let mut calls = Vec::new();
    for part in &say.parts {
        match part {
            SayPart::Thinking { text, .. } => {
                chunks.extend(
                    text_chunks(text)
                        .iter()
                        .map(|chunk| choice(json!({ "reasoning_content": chunk }), Value::Null)),
                );
            }
            SayPart::Redacted { .. } => {}
            SayPart::Detail { text, detail } => {
                let delta = json!({ "content": "", "reasoning": text, "reasoning_details": [detail] });
                chunks.push(choice(delta, Value::Null));
            }
            SayPart::Text(text) => {
                chunks.extend(
                    text_chunks(text).iter().map(|chunk| choice(json!({ "content": chunk }), Value::Null)),
                );
            }
            SayPart::Call { id, name, arguments } => {
                let index = calls.len();
                let begin = json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": "" } });
                let more = text_chunks(arguments)
                    .into_iter()
                    .map(|chunk| json!({ "index": index, "function": { "arguments": chunk } }));
                calls.push(std::iter::once(begin).chain(more).collect::<Vec<_>>());
            }
        }
    }
    chunks
        .extend(calls.into_iter().flatten().map(|call| choice(json!({ "tool_calls": [call] }), Value::Null)));
    let stop = say.stop.as_deref().unwrap_or(if say.has_calls() { "tool_calls" } else { "stop" });
    chunks.push(choice(json!({}), stop.into()));
    let prompt = say.usage.input + say.usage.cached;
    let usage = json!({
        "prompt_tokens": prompt, "completion_tokens": say.usage.output, "total_tokens": prompt + say.usage.output,
        "prompt_tokens_details": { "cached_tokens": say.usage.cached, "audio_tokens": 0 },
        "completion_tokens_details": { "reasoning_tokens": 0 },
    });
    chunks.push(chunk(json!([]), usage));
    let mut events: Vec<_> = chunks.into_iter().map(|chunk| (None, chunk.to_string())).collect();
    events.push((None, "[DONE]".to_owned()));
    events
}

fn choice(delta: Value, finish_reason: Value) -> Value {
    let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
    chunk(json!([choice]), Value::Null)
}

fn chunk(choices: Value, usage: Value) -> Value {
    json!({
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT", "object": "chat.completion.chunk", "created": 1741569952,
        "model": "gpt-4.1-2025-04-14", "service_tier": "default", "system_fingerprint": "fp_06737a9306",
        "choices": choices, "usage": usage,
    })
}
