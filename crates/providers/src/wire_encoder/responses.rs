//! A response of `POST /v1/responses`. Its stream has named and numbered events that open an item, send its deltas and
//! close it, and the complete response at the end.

use serde_json::{Value, json};

use super::{ModelReply, ReplyPart, StreamEvent};

/// The events of one output item.
struct OutputItem {
    /// The item in its opening and in its closing event.
    opened: Value,
    closed: Value,
    /// The events in between.
    between: Vec<(&'static str, Value)>,
}

pub(super) fn whole(reply: &ModelReply) -> Value {
    let output: Vec<Value> = items(reply).map(|item| item.closed).collect();
    response(reply, end(reply).1, &output, usage(reply))
}

pub(super) fn stream(reply: &ModelReply) -> Vec<StreamEvent> {
    let begun = || json!({ "response": response(reply, "in_progress", &[], Value::Null) });
    let mut events: Vec<(&'static str, Value)> =
        vec![("response.created", begun()), ("response.in_progress", begun())];
    let mut output = Vec::new();
    for (index, item) in items(reply).enumerate() {
        events.push(("response.output_item.added", json!({ "output_index": index, "item": item.opened })));
        for (kind, mut event) in item.between {
            event["output_index"] = index.into();
            event["item_id"] = item.closed["id"].clone();
            events.push((kind, event));
        }
        events.push(("response.output_item.done", json!({ "output_index": index, "item": item.closed })));
        output.push(item.closed);
    }
    let (kind, status) = end(reply);
    events.push((kind, json!({ "response": response(reply, status, &output, usage(reply)) })));
    let event = |(number, (kind, mut data)): (usize, (&'static str, Value))| {
        data["type"] = kind.into();
        data["sequence_number"] = number.into();
        StreamEvent { name: Some(kind), data: data.to_string() }
    };
    events.into_iter().enumerate().map(event).collect()
}

/// The last event, and the status of the complete response.
fn end(reply: &ModelReply) -> (&'static str, &'static str) {
    match reply.stop.as_deref() {
        Some("incomplete") => ("response.incomplete", "incomplete"),
        Some("failed") => ("response.failed", "failed"),
        _ => ("response.completed", "completed"),
    }
}

fn usage(reply: &ModelReply) -> Value {
    let input = reply.usage.input + reply.usage.cached;
    json!({
        "input_tokens": input, "input_tokens_details": { "cached_tokens": reply.usage.cached },
        "output_tokens": reply.usage.output, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": input + reply.usage.output,
    })
}

fn items(reply: &ModelReply) -> impl Iterator<Item = OutputItem> {
    (reply.number * 100..).zip(&reply.parts).filter_map(|(number, part)| match part {
        ReplyPart::Thinking { text, .. } => Some(thinking(reply, number, text)),
        ReplyPart::Text(text) => Some(message(reply, number, text)),
        ReplyPart::Call { .. } => call(reply, number, part),
        // Only Chat Completions and the Messages API have these.
        ReplyPart::RedactedThinking { .. } | ReplyPart::ReasoningDetail { .. } => None,
    })
}

fn thinking(reply: &ModelReply, number: u64, text: &str) -> OutputItem {
    let part = |text: &str| json!({ "type": "summary_text", "text": text });
    let item =
        |summary: Value| json!({ "id": format!("rs_{number:04}"), "type": "reasoning", "summary": summary });
    let mut between =
        vec![("response.reasoning_summary_part.added", json!({ "summary_index": 0, "part": part("") }))];
    between.extend(reply.deltas(text).into_iter().map(|delta| {
        ("response.reasoning_summary_text.delta", json!({ "summary_index": 0, "delta": delta }))
    }));
    between.push(("response.reasoning_summary_text.done", json!({ "summary_index": 0, "text": text })));
    between.push(("response.reasoning_summary_part.done", json!({ "summary_index": 0, "part": part(text) })));
    OutputItem { opened: item(json!([])), closed: item(json!([part(text)])), between }
}

fn message(reply: &ModelReply, number: u64, text: &str) -> OutputItem {
    let part = |text: &str| json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": text });
    let item = |status: &str, content: Value| json!({ "id": format!("msg_{number:04}"), "type": "message", "status": status, "role": "assistant", "content": content });
    let mut between = vec![("response.content_part.added", json!({ "content_index": 0, "part": part("") }))];
    between.extend(reply.deltas(text).into_iter().map(|delta| {
        ("response.output_text.delta", json!({ "content_index": 0, "delta": delta, "logprobs": [] }))
    }));
    between.push(("response.output_text.done", json!({ "content_index": 0, "text": text, "logprobs": [] })));
    between.push(("response.content_part.done", json!({ "content_index": 0, "part": part(text) })));
    let closed = item("completed", json!([part(text)]));
    OutputItem { opened: item("in_progress", json!([])), closed, between }
}

fn call(reply: &ModelReply, number: u64, part: &ReplyPart) -> Option<OutputItem> {
    let ReplyPart::Call { id, namespace, name, arguments } = part else { return None };
    let item = |status: &str, arguments: &str| {
        let mut call = json!({ "id": format!("fc_{number:04}"), "type": "function_call", "status": status, "arguments": arguments, "call_id": id, "name": name });
        if let Some(namespace) = namespace {
            call["namespace"] = namespace.as_str().into();
        }
        call
    };
    let delta = |delta| ("response.function_call_arguments.delta", json!({ "delta": delta }));
    let mut between: Vec<_> = reply.deltas(arguments).into_iter().map(delta).collect();
    between.push(("response.function_call_arguments.done", json!({ "arguments": arguments })));
    Some(OutputItem { opened: item("in_progress", ""), closed: item("completed", arguments), between })
}

fn response(reply: &ModelReply, status: &str, output: &[Value], usage: Value) -> Value {
    let error = match status {
        "failed" => json!({ "code": "server_error", "message": "The model failed." }),
        _ => Value::Null,
    };
    json!({
        "id": format!("resp_68af4030592c81938ec0a5fb{:08}", reply.number), "object": "response",
        "created_at": 1_756_315_696, "status": status, "background": false, "error": error,
        "incomplete_details": null, "instructions": null, "max_output_tokens": null,
        "model": reply.model("gpt-5.1-2025-11-13"), "output": output, "parallel_tool_calls": true,
        "previous_response_id": null, "store": false, "temperature": 1.0, "tool_choice": "auto", "tools": [],
        "top_p": 1.0, "usage": usage,
    })
}
