//! The answers of a canary's scripted model, in the four API formats that agents use. Pure: takes an answer, returns a response
//! body.

use serde_json::{Value, json};

/// The API format of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI Responses.
    Responses,
    Gemini,
}

/// One answer of the model: text, and optionally a tool call after it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Say {
    pub(super) text: String,
    pub(super) call: Option<Call>,
    /// Makes the ids of an answer unique: agents take two answers with the same id for one.
    pub(super) number: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(super) name: String,
    pub(super) arguments: Value,
}

/// An HTTP response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self { status, content_type: "application/json", body: body.to_string() }
    }

    fn events(events: impl IntoIterator<Item = (Option<&'static str>, String)>) -> Self {
        let mut body = String::new();
        for (name, data) in events {
            if let Some(name) = name {
                body += &format!("event: {name}\n");
            }
            body += &format!("data: {data}\n\n");
        }
        Self { status: 200, content_type: "text/event-stream", body }
    }
}

impl Dialect {
    /// The API format of a path, and whether the path itself requests a stream.
    pub(super) fn of(path: &str) -> Option<(Self, bool)> {
        let ends = |end: &str| path.ends_with(end);
        if ends("/messages") {
            Some((Self::Messages, false))
        } else if ends("/chat/completions") {
            Some((Self::Chat, false))
        } else if ends("/responses") {
            Some((Self::Responses, false))
        } else if ends(":generateContent") || ends(":streamGenerateContent") {
            Some((Self::Gemini, ends(":streamGenerateContent")))
        } else {
            None
        }
    }

    /// Encodes the answer, as a stream or as one body.
    pub(super) fn write(self, say: &Say, is_stream: bool) -> Reply {
        match (self, is_stream) {
            (Self::Messages, true) => Reply::events(messages(say)),
            (Self::Messages, false) => Reply::json(200, &message(say)),
            (Self::Chat, true) => Reply::events(chunks(say)),
            (Self::Chat, false) => Reply::json(200, &completion(say)),
            (Self::Responses, true) => Reply::events(responses(say)),
            (Self::Responses, false) => Reply::json(200, &response(say, "completed")),
            (Self::Gemini, true) => Reply::events([(None, gemini(say).to_string())]),
            (Self::Gemini, false) => Reply::json(200, &gemini(say)),
        }
    }
}

impl Say {
    fn id(&self, prefix: &str) -> String {
        format!("{prefix}canary{:08}", self.number)
    }
}

impl Call {
    fn text(&self) -> String {
        self.arguments.to_string()
    }
}

const USAGE: (u32, u32) = (20, 10);

fn blocks(say: &Say) -> Vec<Value> {
    let text = json!({ "type": "text", "text": say.text });
    let call = say.call.as_ref().map(
        |call| json!({ "type": "tool_use", "id": say.id("toolu_"), "name": call.name, "input": call.arguments }),
    );
    std::iter::once(text).chain(call).collect()
}

fn message(say: &Say) -> Value {
    let stop = if say.call.is_some() { "tool_use" } else { "end_turn" };
    json!({
        "id": say.id("msg_"), "type": "message", "role": "assistant", "model": "canary", "content": blocks(say),
        "stop_reason": stop, "stop_sequence": null, "usage": { "input_tokens": USAGE.0, "output_tokens": USAGE.1 },
    })
}

fn messages(say: &Say) -> Vec<(Option<&'static str>, String)> {
    let whole = message(say);
    let mut opened = whole.clone();
    opened["content"] = json!([]);
    opened["stop_reason"] = Value::Null;
    let mut events = vec![("message_start", json!({ "message": opened }))];
    for (index, block) in blocks(say).iter().enumerate() {
        let (begin, delta) = match (&say.call, block["type"] == "tool_use") {
            (Some(call), true) => {
                let mut begin = block.clone();
                begin["input"] = json!({});
                (begin, json!({ "type": "input_json_delta", "partial_json": call.text() }))
            }
            _ => (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": say.text })),
        };
        events.push(("content_block_start", json!({ "index": index, "content_block": begin })));
        events.push(("content_block_delta", json!({ "index": index, "delta": delta })));
        events.push(("content_block_stop", json!({ "index": index })));
    }
    let delta = json!({ "stop_reason": whole["stop_reason"], "stop_sequence": null });
    events.push(("message_delta", json!({ "delta": delta, "usage": { "output_tokens": USAGE.1 } })));
    events.push(("message_stop", json!({})));
    named(events)
}

fn named(events: Vec<(&'static str, Value)>) -> Vec<(Option<&'static str>, String)> {
    let event = |(kind, mut data): (&'static str, Value)| {
        data["type"] = kind.into();
        (Some(kind), data.to_string())
    };
    events.into_iter().map(event).collect()
}

fn tool_calls(say: &Say, index: Option<u32>) -> Option<Value> {
    let call = say.call.as_ref()?;
    let function = json!({ "name": call.name, "arguments": call.text() });
    let mut entry = json!({ "id": say.id("call_"), "type": "function", "function": function });
    if let Some(index) = index {
        entry["index"] = index.into();
    }
    Some(json!([entry]))
}

const fn finish(say: &Say) -> &'static str {
    if say.call.is_some() { "tool_calls" } else { "stop" }
}

fn completion_with(say: &Say, object: &str, choices: Value) -> Value {
    json!({
        "id": say.id("chatcmpl-"), "object": object, "created": 1_760_000_000, "model": "canary", "choices": choices,
        "usage": { "prompt_tokens": USAGE.0, "completion_tokens": USAGE.1, "total_tokens": USAGE.0 + USAGE.1 },
    })
}

fn completion(say: &Say) -> Value {
    let mut message = json!({ "role": "assistant", "content": say.text });
    if let Some(calls) = tool_calls(say, None) {
        message["tool_calls"] = calls;
    }
    let choice = json!({ "index": 0, "message": message, "finish_reason": finish(say) });
    completion_with(say, "chat.completion", json!([choice]))
}

fn chunks(say: &Say) -> Vec<(Option<&'static str>, String)> {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        let mut chunk = completion_with(say, "chat.completion.chunk", json!([choice]));
        chunk["usage"] = Value::Null;
        chunk
    };
    let mut all = vec![chunk(json!({ "role": "assistant", "content": say.text }), Value::Null)];
    if let Some(calls) = tool_calls(say, Some(0)) {
        all.push(chunk(json!({ "tool_calls": calls }), Value::Null));
    }
    all.push(chunk(json!({}), finish(say).into()));
    all.push(completion_with(say, "chat.completion.chunk", json!([])));
    all.into_iter().map(|chunk| (None, chunk.to_string())).chain([(None, "[DONE]".to_owned())]).collect()
}

fn items(say: &Say) -> Vec<Value> {
    let part = json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": say.text });
    let text = json!({ "id": say.id("msg_"), "type": "message", "status": "completed", "role": "assistant", "content": [part] });
    let call = say.call.as_ref().map(|call| {
        json!({
            "id": say.id("fc_"), "type": "function_call", "status": "completed", "call_id": say.id("call_"), "name": call.name,
            "arguments": call.text(),
        })
    });
    std::iter::once(text).chain(call).collect()
}

fn response(say: &Say, status: &str) -> Value {
    let is_over = status == "completed";
    let output = if is_over { items(say) } else { Vec::new() };
    let usage = json!({
        "input_tokens": USAGE.0, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": USAGE.1, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": USAGE.0 + USAGE.1,
    });
    json!({
        "id": say.id("resp_"), "object": "response", "created_at": 1_760_000_000, "status": status, "error": null,
        "incomplete_details": null, "instructions": null, "model": "canary", "output": output, "parallel_tool_calls": true,
        "previous_response_id": null, "store": false, "tool_choice": "auto", "tools": [],
        "usage": if is_over { usage } else { Value::Null },
    })
}

fn responses(say: &Say) -> Vec<(Option<&'static str>, String)> {
    let mut events = vec![("response.created", json!({ "response": response(say, "in_progress") }))];
    for (index, item) in items(say).into_iter().enumerate() {
        let mut opened = item.clone();
        opened["status"] = "in_progress".into();
        let at = json!({ "output_index": index, "item_id": item["id"] });
        let with = |more: Value| {
            let mut event = at.clone();
            if let (Value::Object(event), Value::Object(more)) = (&mut event, more) {
                event.extend(more);
            }
            event
        };
        let between = if item["type"] == "message" {
            opened["content"] = json!([]);
            let mut part = item["content"][0].clone();
            part["text"] = "".into();
            vec![
                ("response.content_part.added", with(json!({ "content_index": 0, "part": part }))),
                (
                    "response.output_text.delta",
                    with(json!({ "content_index": 0, "delta": say.text, "logprobs": [] })),
                ),
                (
                    "response.output_text.done",
                    with(json!({ "content_index": 0, "text": say.text, "logprobs": [] })),
                ),
                (
                    "response.content_part.done",
                    with(json!({ "content_index": 0, "part": item["content"][0] })),
                ),
            ]
        } else {
            opened["arguments"] = "".into();
            vec![
                ("response.function_call_arguments.delta", with(json!({ "delta": item["arguments"] }))),
                ("response.function_call_arguments.done", with(json!({ "arguments": item["arguments"] }))),
            ]
        };
        events.push(("response.output_item.added", json!({ "output_index": index, "item": opened })));
        events.extend(between);
        events.push(("response.output_item.done", json!({ "output_index": index, "item": item })));
    }
    events.push(("response.completed", json!({ "response": response(say, "completed") })));
    for (number, (_, event)) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    named(events)
}

fn gemini(say: &Say) -> Value {
    let call = say.call.as_ref();
    let call = call.map(|call| json!({ "functionCall": { "name": call.name, "args": call.arguments } }));
    let parts: Vec<Value> = std::iter::once(json!({ "text": say.text })).chain(call).collect();
    json!({
        "candidates": [{ "content": { "parts": parts, "role": "model" }, "finishReason": "STOP", "index": 0 }],
        "usageMetadata": { "promptTokenCount": USAGE.0, "candidatesTokenCount": USAGE.1, "totalTokenCount": USAGE.0 + USAGE.1 },
        "modelVersion": "canary", "responseId": say.id(""),
    })
}
