//! A fake model that follows instructions in the prompt, in all four API formats. It is for CLI agents, whose number
//! and kind of requests a test cannot predict.
//!
//! If the last user text contains `[[call NAME {…}]]`, the model makes these calls one after the other, each after the
//! previous result has arrived, and then reports the last result as text. Without such an instruction, and for requests
//! without tools, it responds with a fixed sentence.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::Method;
use serde_json::{Value, json};
use tribune_providers::relay::ApiFormat;
use tribune_providers::wire_encoder::requested_format;

use super::{ModelOutput, UpstreamReply};

/// The response without an instruction.
pub const GREETING: &str = "Good day. Nothing was asked of me.";

/// Precedes the last result in the final response.
pub const REPORT: &str = "It came to this:";

/// Number of the next response, counted over all fake models in this process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// A part of the conversation that the fake model reads.
#[derive(Debug, PartialEq, Eq)]
enum InputItem {
    User(String),
    Result(String),
}

/// The reply to a request, if it is a model request.
pub(super) fn answer(method: &Method, path: &str, body: &[u8]) -> Option<UpstreamReply> {
    let path = path.split('?').next().unwrap_or_default();
    if method != Method::POST {
        return None;
    }
    if path.ends_with("/count_tokens") {
        return Some(UpstreamReply::json(200, &json!({ "input_tokens": 25 })));
    }
    let (format, is_stream) = requested_format(path)?;
    let body: Value = serde_json::from_slice(body).ok()?;
    let has_tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let output = if has_tools { next(&input_items(format, &body)) } else { without_tools(&body) };
    let output = output.with_number(NEXT_NUMBER.fetch_add(1, Ordering::Relaxed));
    Some(match format {
        ApiFormat::Messages => output.anthropic(),
        ApiFormat::Chat => output.openai(),
        ApiFormat::Responses => output.responses(),
        ApiFormat::Gemini if is_stream => output.gemini(),
        ApiFormat::Gemini => output.gemini_unstreamed(),
    })
}

/// The next step of the instruction.
fn next(items: &[InputItem]) -> ModelOutput {
    // Texts that agents add to the user's text start with an angle bracket.
    let is_instruction =
        |item: &InputItem| matches!(item, InputItem::User(text) if !text.trim_start().starts_with('<'));
    let last = items.iter().rposition(is_instruction);
    let last = last.filter(|at| matches!(&items[*at], InputItem::User(text) if text.contains("[[call ")));
    let Some((InputItem::User(text), at)) = last.map(|at| (&items[at], at)) else {
        return ModelOutput::new().text(GREETING);
    };
    let calls = calls(text);
    let results: Vec<&str> = items[at..]
        .iter()
        .filter_map(|item| match item {
            InputItem::Result(text) => Some(text.as_str()),
            InputItem::User(_) => None,
        })
        .collect();
    match calls.get(results.len()) {
        Some((name, arguments)) => {
            let id = format!("call_{at}_{}", results.len());
            ModelOutput::new().text("I will.").call(&id, name, arguments)
        }
        None => ModelOutput::new().text(&format!("{REPORT} {}", results.last().unwrap_or(&"nothing"))),
    }
}

/// The name and the raw arguments of each `[[call NAME {…}]]`.
fn calls(text: &str) -> Vec<(&str, &str)> {
    text.split("[[call ").skip(1).filter_map(|rest| rest.split_once("]]")?.0.split_once(' ')).collect()
}

/// The response to requests for titles, summaries and model routing: a sentence, or the smallest JSON that fits the
/// schema.
fn without_tools(body: &Value) -> ModelOutput {
    let wants_json = body["generationConfig"]["responseMimeType"] == "application/json"
        || body["output_config"]["format"]["type"] == "json_schema"
        || body["text"]["format"]["type"] == "json_schema";
    let text = if wants_json {
        json!({ "title": "a test", "complexity_reasoning": "none", "complexity_score": 1, "reasoning": "none", "model_choice": "pro" })
            .to_string()
    } else {
        "A test".to_owned()
    };
    ModelOutput::new().text(&text)
}

fn input_items(format: ApiFormat, body: &Value) -> Vec<InputItem> {
    let list = |name: &str| body[name].as_array().map(Vec::as_slice).unwrap_or_default();
    match format {
        ApiFormat::Messages => list("messages").iter().flat_map(message_items).collect(),
        ApiFormat::Chat => list("messages")
            .iter()
            .filter_map(|message| match message["role"].as_str()? {
                "user" => Some(InputItem::User(texts(&message["content"]))),
                "tool" => Some(InputItem::Result(texts(&message["content"]))),
                _ => None,
            })
            .collect(),
        ApiFormat::Responses => list("input")
            .iter()
            .filter_map(|item| match (item["type"].as_str()?, item["role"].as_str()) {
                ("message", Some("user")) => Some(InputItem::User(texts(&item["content"]))),
                ("function_call_output" | "custom_tool_call_output", _) => {
                    Some(InputItem::Result(texts(&item["output"])))
                }
                _ => None,
            })
            .collect(),
        ApiFormat::Gemini => list("contents")
            .iter()
            .filter(|content| content["role"] != "model")
            .flat_map(|content| content["parts"].as_array().into_iter().flatten())
            .map(|part| match part.get("functionResponse") {
                Some(result) => InputItem::Result(result["response"].to_string()),
                None => InputItem::User(texts(part)),
            })
            .collect(),
    }
}

/// The items of a message of the Messages API, in which results are part of user messages.
fn message_items(message: &Value) -> Vec<InputItem> {
    if message["role"] != "user" {
        return Vec::new();
    }
    match &message["content"] {
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| match block["type"].as_str() {
                Some("tool_result") => InputItem::Result(texts(&block["content"])),
                _ => InputItem::User(texts(block)),
            })
            .collect(),
        content => vec![InputItem::User(texts(content))],
    }
}

/// All texts of a value of any shape.
fn texts(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(texts).collect::<Vec<_>>().join("\n"),
        Value::Object(members) => {
            members.get("text").or_else(|| members.get("content")).map(texts).unwrap_or_default()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTRUCTION: &str = r#"please [[call write {"path":"a"}]] [[call run {"cmd":["x","y"]}]]"#;

    fn response(path: &str, body: &Value) -> String {
        let reply = answer(&Method::POST, path, body.to_string().as_bytes()).unwrap();
        String::from_utf8(reply.bytes()).unwrap()
    }

    #[test]
    fn every_api_format_executes_the_calls_one_by_one() {
        let tools = json!([{ "name": "write" }]);
        let messages = |more: Value| {
            let mut all =
                vec![json!({ "role": "user", "content": [{ "type": "text", "text": INSTRUCTION }] })];
            all.extend(more.as_array().unwrap().clone());
            response("/v1/messages?beta=true", &json!({ "tools": tools, "messages": all }))
        };
        assert!(messages(json!([])).contains(r#""name":"write""#));
        let result = json!({ "role": "user", "content": [{ "type": "tool_result", "content": "wrote" }] });
        // Messages that agents add after the user's text do not matter.
        let noise = json!({ "role": "system", "content": "remember" });
        assert!(messages(json!([noise, result])).contains(r#""name":"run""#));
        assert!(messages(json!([result, result])).contains("It came"));

        let chat = json!({ "tools": tools, "messages": [
            { "role": "user", "content": INSTRUCTION }, { "role": "tool", "content": "wrote" },
        ] });
        assert!(response("/v1/chat/completions", &chat).contains(r#""name":"run""#));
        let responses = json!({ "tools": tools, "input": [
            { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": INSTRUCTION }] },
            { "type": "function_call", "name": "write" },
            { "type": "function_call_output", "output": "wrote" },
        ] });
        let said = response("/v1/responses", &responses);
        assert!(said.contains(r#""name":"run""#) && said.contains("response.completed"), "{said}");
        let gemini = json!({ "tools": tools, "contents": [
            { "role": "user", "parts": [{ "text": INSTRUCTION }] },
            { "role": "model", "parts": [{ "functionCall": {} }] },
            { "role": "user", "parts": [{ "functionResponse": { "response": { "output": "wrote" } } }] },
        ] });
        let said = response("/v1beta/models/m:streamGenerateContent?alt=sse", &gemini);
        assert!(said.contains(r#""name":"run""#) && said.contains(r#""args":{"cmd":["x","y"]}"#), "{said}");
    }

    #[test]
    fn requests_without_instruction_or_tools_get_text() {
        let plain = json!({ "tools": [{}], "messages": [{ "role": "user", "content": "hello" }] });
        assert!(response("/v1/messages", &plain).contains("Good"));
        let later = json!({ "tools": [{}], "messages": [
            { "role": "user", "content": INSTRUCTION }, { "role": "user", "content": "hello" }, { "role": "user", "content": "<reminder>" },
        ] });
        assert!(response("/v1/messages", &later).contains("Good"), "an earlier instruction no longer counts");
        let title = json!({ "messages": [{ "role": "user", "content": INSTRUCTION }] });
        assert!(!response("/v1/messages", &title).contains("tool_use"));
        let router =
            json!({ "contents": [], "generationConfig": { "responseMimeType": "application/json" } });
        assert!(response("/v1beta/models/m:generateContent", &router).contains("complexity_score"));
        assert!(answer(&Method::GET, "/v1/messages", b"{}").is_none());
        assert!(answer(&Method::POST, "/v1/files", b"{}").is_none());
    }
}
