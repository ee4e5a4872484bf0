//! A response as streamed by `POST /v1/responses`: named and numbered events that open an item, send its deltas and
//! close it, and the complete response at the end.

use serde_json::{Value, json};

use super::model_output::{ModelOutput, SayPart, text_chunks};

/// The events of one output item.
struct OutputItem {
    /// The item in its opening and in its closing event.
    opened: Value,
    closed: Value,
    /// The events in between.
    between: Vec<(&'static str, Value)>,
}

pub(super) fn events(say: &ModelOutput) -> Vec<(Option<&'static str>, String)> {
    let mut events: Vec<(&'static str, Value)> = vec![
        ("response.created", json!({ "response": response(say, "in_progress", &[], Value::Null) })),
        ("response.in_progress", json!({ "response": response(say, "in_progress", &[], Value::Null) })),
    ];
    let mut output = Vec::new();
    for (index, item) in say
        .parts
        .iter()
        .enumerate()
        .filter_map(|(n, part)| item(say.number * 100 + n as u64, part))
        .enumerate()
    {
        events.push(("response.output_item.added", json!({ "output_index": index, "item": item.opened })));
        for (kind, mut event) in item.between {
            event["output_index"] = index.into();
            event["item_id"] = item.closed["id"].clone();
            events.push((kind, event));
        }
        events.push(("response.output_item.done", json!({ "output_index": index, "item": item.closed })));
        output.push(item.closed);
    }
    let input = say.usage.input + say.usage.cached;
    let usage = json!({
        "input_tokens": input, "input_tokens_details": { "cached_tokens": say.usage.cached },
        "output_tokens": say.usage.output, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": input + say.usage.output,
    });
    let (kind, status) = match say.stop.as_deref() {
        Some("incomplete") => ("response.incomplete", "incomplete"),
        Some("failed") => ("response.failed", "failed"),
        _ => ("response.completed", "completed"),
    };
    events.push((kind, json!({ "response": response(say, status, &output, usage) })));
    let event = |(number, (kind, mut data)): (usize, (&'static str, Value))| {
        data["type"] = kind.into();
        data["sequence_number"] = number.into();
        (Some(kind), data.to_string())
    };
    events.into_iter().enumerate().map(event).collect()
}

fn item(number: u64, part: &SayPart) -> Option<OutputItem> {
    match part {
        SayPart::Thinking { text, .. } => {
            let whole = json!({ "type": "summary_text", "text": text });
            let of = |summary: Value| json!({ "id": format!("rs_{number:04}"), "type": "reasoning", "summary": summary });
            let mut between = vec![(
                "response.reasoning_summary_part.added",
                json!({ "summary_index": 0, "part": { "type": "summary_text", "text": "" } }),
            )];
            between.extend(text_chunks(text).into_iter().map(|chunk| {
                ("response.reasoning_summary_text.delta", json!({ "summary_index": 0, "delta": chunk }))
            }));
            between
                .push(("response.reasoning_summary_text.done", json!({ "summary_index": 0, "text": text })));
            between
                .push(("response.reasoning_summary_part.done", json!({ "summary_index": 0, "part": whole })));
            Some(OutputItem { opened: of(json!([])), closed: of(json!([whole])), between })
        }
        SayPart::Text(text) => {
            let part = |text: &str| json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": text });
            let of = |status: &str, content: Value| json!({ "id": format!("msg_{number:04}"), "type": "message", "status": status, "role": "assistant", "content": content });
            let mut between =
                vec![("response.content_part.added", json!({ "content_index": 0, "part": part("") }))];
            between.extend(text_chunks(text).into_iter().map(|chunk| {
                ("response.output_text.delta", json!({ "content_index": 0, "delta": chunk, "logprobs": [] }))
            }));
            between.push((
                "response.output_text.done",
                json!({ "content_index": 0, "text": text, "logprobs": [] }),
            ));
            between.push(("response.content_part.done", json!({ "content_index": 0, "part": part(text) })));
            let closed = of("completed", json!([part(text)]));
            Some(OutputItem { opened: of("in_progress", json!([])), closed, between })
        }
        SayPart::Call { id, name, arguments } => {
            // A tool name may have a namespace: `NAMESPACE/NAME`.
            let (namespace, name) =
                name.split_once('/').map_or((None, name.as_str()), |(of, name)| (Some(of), name));
            let of = |status: &str, arguments: &str| {
                let mut call = json!({ "id": format!("fc_{number:04}"), "type": "function_call", "status": status, "arguments": arguments, "call_id": id, "name": name });
                if let Some(namespace) = namespace {
                    call["namespace"] = namespace.into();
                }
                call
            };
            let mut between: Vec<_> = text_chunks(arguments)
                .into_iter()
                .map(|chunk| ("response.function_call_arguments.delta", json!({ "delta": chunk })))
                .collect();
            between.push(("response.function_call_arguments.done", json!({ "arguments": arguments })));
            Some(OutputItem { opened: of("in_progress", ""), closed: of("completed", arguments), between })
        }
        // Only Chat Completions and the Messages API have these.
        SayPart::Redacted { .. } | SayPart::Detail { .. } => None,
    }
}

fn response(say: &ModelOutput, status: &str, output: &[Value], usage: Value) -> Value {
    let error = match status {
        "failed" => json!({ "code": "server_error", "message": "The model failed." }),
        _ => Value::Null,
    };
    json!({
        "id": format!("resp_68af4030592c81938ec0a5fb{:08}", say.number), "object": "response", "created_at": 1_756_315_696, "status": status,
        "background": false, "error": error, "incomplete_details": null, "instructions": null, "max_output_tokens": null,
        "model": "gpt-5.1-2025-11-13", "output": output, "parallel_tool_calls": true, "previous_response_id": null,
        "store": false, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": usage,
    })
}
