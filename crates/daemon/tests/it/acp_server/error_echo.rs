//! Errors do not repeat input in the wrong place: it may be a token.

use serde_json::{Value, json};

use super::{Editor, path, setup};
use crate::raw_clients::http;

const TOKEN: &str = "sk-ant-api03-qX7vT2mLr9";

/// Every version of a value in which one text is the token.
fn with_token_inserted(value: &Value) -> Vec<Value> {
    match value {
        Value::String(_) => vec![TOKEN.into()],
        Value::Array(items) => (0..items.len())
            .flat_map(|at| {
                with_token_inserted(&items[at]).into_iter().map(move |inner| {
                    let mut items = items.clone();
                    items[at] = inner;
                    items.into()
                })
            })
            .collect(),
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, member)| {
                with_token_inserted(member).into_iter().map(move |inner| {
                    let mut members = members.clone();
                    members.insert(name.clone(), inner);
                    members.into()
                })
            })
            .collect(),
        // A member of another type may hold the token by mistake.
        _ => vec![TOKEN.into()],
    }
}

#[tokio::test]
async fn l5_no_error_repeats_the_input() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&cwd).await;
    let server =
        json!({ "name": "x", "command": "x", "args": ["a"], "env": [{ "name": "A", "value": "b" }] });
    let open =
        json!({ "sessionId": session, "cwd": cwd, "mcpServers": [server], "additionalDirectories": [cwd] });
    let blocks = json!([
        { "type": "text", "text": "!say hello" },
        { "type": "image", "data": "AA==", "mimeType": "image/png" },
        { "type": "resource_link", "uri": "file:///a", "name": "a" },
        { "type": "resource", "resource": { "uri": "file:///a", "text": "a" } },
    ]);
    let mut refused = 0;
    for (method, params) in [
        ("authenticate", json!({ "methodId": "tribune-token" })),
        ("session/new", open.clone()),
        ("session/load", open.clone()),
        ("session/resume", open.clone()),
        ("session/list", json!({ "cwd": cwd, "cursor": "x" })),
        ("session/prompt", json!({ "sessionId": session, "prompt": blocks })),
        ("session/set_mode", json!({ "sessionId": session, "modeId": "ask" })),
        ("session/set_config_option", json!({ "sessionId": session, "configId": "agent", "value": "main" })),
        ("session/set_config_option", json!({ "sessionId": session, "configId": "model", "value": "main" })),
        ("session/close", json!({ "sessionId": "x" })),
        ("session/delete", json!({ "sessionId": "x" })),
        ("session/fork", open),
        (TOKEN, json!({})),
    ] {
        let as_a_whole = [json!(TOKEN), json!([TOKEN])];
        for wrong in with_token_inserted(&params).into_iter().chain(as_a_whole).chain([params.clone()]) {
            let answer = editor.call(method, wrong.clone()).await;
            let Some(error) = answer.get("error") else { continue };
            refused += 1;
            assert!(!error.to_string().contains(TOKEN), "{method} {wrong}: {error}");
        }
    }
    assert!(refused > 30, "{refused} were refused");
    // Invalid messages, and the request target.
    for text in [
        TOKEN.to_owned(),
        format!("{{\"{TOKEN}\":"),
        json!({ "jsonrpc": TOKEN, "id": 1, "method": "x" }).to_string(),
    ] {
        editor.send_text(&text).await;
        let answer = editor.until(|message| message["error"]["code"].is_i64()).await;
        assert!(!answer.to_string().contains(TOKEN), "{text}: {answer}");
    }
    for query in [format!("agent={TOKEN}%20x"), format!("session={TOKEN}"), format!("{TOKEN}=1")] {
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } })
                .to_string();
        let request = format!(
            "POST /acp?{query} HTTP/1.1\r\nHost: {0}\r\nAuthorization: Bearer {1}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {2}\r\nConnection: close\r\n\r\n{body}",
            daemon.address(),
            daemon.token(),
            body.len(),
        );
        let answer = http(&daemon.address(), request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400") && !answer.contains(TOKEN), "{query}: {answer}");
    }
}
