//! A model that does as it is told, in all four dialects: for agents of other makes, which ask when and what they like.
//!
//! The last text of a user, if it holds `[[call NAME {…}]]`, says what to do: one call after the other, each when the one before has
//! its result, and then a text that tells the last result. Without such a word, and to requests that offer no tools, it
//! says a sentence.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::Method;
use serde_json::{Value, json};

use super::{Reply, Say};

/// What it says when nobody tells it to do anything.
pub const GREETING: &str = "Good day. Nothing was asked of me.";

/// Before the last result, in what it says at the end.
pub const REPORT: &str = "It came to this:";

/// Answers so far, of every model in this process.
static ANSWERS: AtomicU64 = AtomicU64::new(1);

/// How a request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Messages,
    Chat,
    Responses,
    Gemini { is_stream: bool },
}

/// One thing that was said, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    User(String),
    Result(String),
}

/// The answer to a request, if it is one for a model.
pub(super) fn answer(method: &Method, path: &str, body: &[u8]) -> Option<Reply> {
    let path = path.split('?').next().unwrap_or_default();
    if method != Method::POST {
        return None;
    }
    if path.ends_with("/count_tokens") {
        return Some(Reply::json(200, &json!({ "input_tokens": 25 })));
    }
    let dialect = dialect(path)?;
    let body: Value = serde_json::from_slice(body).ok()?;
    let has_tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let say = if has_tools { next(&said(dialect, &body)) } else { without_tools(&body) };
    let say = say.numbered(ANSWERS.fetch_add(1, Ordering::Relaxed));
    Some(match dialect {
        Dialect::Messages => say.anthropic(),
        Dialect::Chat => say.openai(),
        Dialect::Responses => say.responses(),
        Dialect::Gemini { is_stream: true } => say.gemini(),
        Dialect::Gemini { is_stream: false } => say.gemini_whole(),
    })
}

fn dialect(path: &str) -> Option<Dialect> {
    let ends = |end: &str| path.ends_with(end);
    if ends("/messages") {
        Some(Dialect::Messages)
    } else if ends("/chat/completions") {
        Some(Dialect::Chat)
    } else if ends("/responses") {
        Some(Dialect::Responses)
    } else if ends(":streamGenerateContent") || ends(":generateContent") {
        Some(Dialect::Gemini { is_stream: ends(":streamGenerateContent") })
    } else {
        None
    }
}

/// The next step of what was asked for.
fn next(said: &[Said]) -> Say {
    // What agents put beside the user's words stands in angle brackets.
    let order =
        said.iter().rposition(|said| matches!(said, Said::User(text) if !text.trim_start().starts_with('<')));
    let order = order.filter(|at| matches!(&said[*at], Said::User(text) if text.contains("[[call ")));
    let Some((Said::User(text), at)) = order.map(|at| (&said[at], at)) else {
        return Say::new().text(GREETING);
    };
    let calls = calls(text);
    let results: Vec<&str> = said[at..]
        .iter()
        .filter_map(|said| match said {
            Said::Result(text) => Some(text.as_str()),
            Said::User(_) => None,
        })
        .collect();
    match calls.get(results.len()) {
        Some((name, arguments)) => {
            let id = format!("call_{at}_{}", results.len());
            Say::new().text("I will.").call(&id, name, arguments)
        }
        None => Say::new().text(&format!("{REPORT} {}", results.last().unwrap_or(&"nothing"))),
    }
}

/// `[[call NAME {…}]]`, each with its arguments as they stand there.
fn calls(text: &str) -> Vec<(&str, &str)> {
    text.split("[[call ").skip(1).filter_map(|rest| rest.split_once("]]")?.0.split_once(' ')).collect()
}

/// Titles, summaries, and which model to ask: a sentence, or the least JSON that the schema takes.
fn without_tools(body: &Value) -> Say {
    let wants_json = body["generationConfig"]["responseMimeType"] == "application/json"
        || body["output_config"]["format"]["type"] == "json_schema"
        || body["text"]["format"]["type"] == "json_schema";
    let words = if wants_json {
        json!({ "title": "a test", "complexity_reasoning": "none", "complexity_score": 1, "reasoning": "none", "model_choice": "pro" })
            .to_string()
    } else {
        "A test".to_owned()
    };
    Say::new().text(&words)
}

fn said(dialect: Dialect, body: &Value) -> Vec<Said> {
    let list = |name: &str| body[name].as_array().map(Vec::as_slice).unwrap_or_default();
    match dialect {
        Dialect::Messages => list("messages").iter().flat_map(of_message).collect(),
        Dialect::Chat => list("messages")
            .iter()
            .filter_map(|message| match message["role"].as_str()? {
                "user" => Some(Said::User(texts(&message["content"]))),
                "tool" => Some(Said::Result(texts(&message["content"]))),
                _ => None,
            })
            .collect(),
        Dialect::Responses => list("input")
            .iter()
            .filter_map(|item| match (item["type"].as_str()?, item["role"].as_str()) {
                ("message", Some("user")) => Some(Said::User(texts(&item["content"]))),
                ("function_call_output" | "custom_tool_call_output", _) => {
                    Some(Said::Result(texts(&item["output"])))
                }
                _ => None,
            })
            .collect(),
        Dialect::Gemini { .. } => list("contents")
            .iter()
            .filter(|content| content["role"] != "model")
            .flat_map(|content| content["parts"].as_array().into_iter().flatten())
            .map(|part| match part.get("functionResponse") {
                Some(result) => Said::Result(result["response"].to_string()),
                None => Said::User(texts(part)),
            })
            .collect(),
    }
}

/// A message of the Messages API, in which results are a user's.
fn of_message(message: &Value) -> Vec<Said> {
    if message["role"] != "user" {
        return Vec::new();
    }
    match &message["content"] {
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| match block["type"].as_str() {
                Some("tool_result") => Said::Result(texts(&block["content"])),
                _ => Said::User(texts(block)),
            })
            .collect(),
        content => vec![Said::User(texts(content))],
    }
}

/// All texts of a value, whatever its shape.
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

    const ORDER: &str = r#"please [[call write {"path":"a"}]] [[call run {"cmd":["x","y"]}]]"#;

    fn asked(path: &str, body: &Value) -> String {
        let reply = answer(&Method::POST, path, body.to_string().as_bytes()).unwrap();
        String::from_utf8(reply.bytes()).unwrap()
    }

    #[test]
    fn each_dialect_is_told_what_to_do_and_does_it_step_by_step() {
        let tools = json!([{ "name": "write" }]);
        let messages = |more: Value| {
            let mut all = vec![json!({ "role": "user", "content": [{ "type": "text", "text": ORDER }] })];
            all.extend(more.as_array().unwrap().clone());
            asked("/v1/messages?beta=true", &json!({ "tools": tools, "messages": all }))
        };
        assert!(messages(json!([])).contains(r#""name":"write""#));
        let result = json!({ "role": "user", "content": [{ "type": "tool_result", "content": "wrote" }] });
        // What some put behind the user's words changes nothing.
        let noise = json!({ "role": "system", "content": "remember" });
        assert!(messages(json!([noise, result])).contains(r#""name":"run""#));
        assert!(messages(json!([result, result])).contains("It came"));

        let chat = json!({ "tools": tools, "messages": [
            { "role": "user", "content": ORDER }, { "role": "tool", "content": "wrote" },
        ] });
        assert!(asked("/v1/chat/completions", &chat).contains(r#""name":"run""#));
        let responses = json!({ "tools": tools, "input": [
            { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": ORDER }] },
            { "type": "function_call", "name": "write" },
            { "type": "function_call_output", "output": "wrote" },
        ] });
        let said = asked("/v1/responses", &responses);
        assert!(said.contains(r#""name":"run""#) && said.contains("response.completed"), "{said}");
        let gemini = json!({ "tools": tools, "contents": [
            { "role": "user", "parts": [{ "text": ORDER }] },
            { "role": "model", "parts": [{ "functionCall": {} }] },
            { "role": "user", "parts": [{ "functionResponse": { "response": { "output": "wrote" } } }] },
        ] });
        let said = asked("/v1beta/models/m:streamGenerateContent?alt=sse", &gemini);
        assert!(said.contains(r#""name":"run""#) && said.contains(r#""args":{"cmd":["x","y"]}"#), "{said}");
    }

    #[test]
    fn without_an_order_or_tools_it_only_speaks() {
        let plain = json!({ "tools": [{}], "messages": [{ "role": "user", "content": "hello" }] });
        assert!(asked("/v1/messages", &plain).contains("Good"));
        let later = json!({ "tools": [{}], "messages": [
            { "role": "user", "content": ORDER }, { "role": "user", "content": "hello" }, { "role": "user", "content": "<reminder>" },
        ] });
        assert!(asked("/v1/messages", &later).contains("Good"), "an order that was left is over");
        let title = json!({ "messages": [{ "role": "user", "content": ORDER }] });
        assert!(!asked("/v1/messages", &title).contains("tool_use"));
        let router =
            json!({ "contents": [], "generationConfig": { "responseMimeType": "application/json" } });
        assert!(asked("/v1beta/models/m:generateContent", &router).contains("complexity_score"));
        assert!(answer(&Method::GET, "/v1/messages", b"{}").is_none());
        assert!(answer(&Method::POST, "/v1/files", b"{}").is_none());
    }
}
