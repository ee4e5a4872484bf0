//! The official SDK's client over its network transports.

use std::process::Command;

use serde_json::{Value, json};

use super::{EditorHome, node, programs};

/// Initialize, prompt with a call and a permission request, load, list, close.
fn drives(transport: &str) {
    let desk = EditorHome::new();
    let started: Value = serde_json::from_str(&desk.place.ok(&["up", "--detach", "--json"])).unwrap();
    let address = started["address"].as_str().unwrap();
    let token = std::fs::read_to_string(desk.place.home().join("run/token")).unwrap();
    let project = desk.project();
    let mut client = Command::new(node());
    client.arg(programs().join("client.mjs")).args([transport, address, token.trim()]).arg(&project);
    let said = crate::fixture::cli_output(client.output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    let seen: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        (&seen["version"], &seen["stopReason"], &seen["closed"]),
        (&json!(1), &json!("end_turn"), &json!(true))
    );
    assert_eq!(std::fs::read_to_string(project.join("from-sdk.txt")).unwrap(), "by the SDK");
    assert!(seen["said"].as_str().unwrap().starts_with("I write.\nIt said: "), "{seen}");
    assert_eq!(seen["statuses"], json!(["pending", "in_progress", "completed"]));
    let kinds = json!(["allow_once", "allow_always", "allow_always", "reject_once"]);
    assert_eq!(seen["asked"], json!([{ "title": "write from-sdk.txt", "kinds": kinds }]));
    // Loaded: the same messages again, once and in order.
    let replayed: Vec<(&str, &str)> = seen["replayed"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|chunk| Some((chunk[0].as_str()?, chunk[1].as_str()?)))
        .collect();
    assert_eq!(replayed[0].0, "user_message_chunk");
    let text: String = replayed[1..].iter().map(|(_, text)| *text).collect();
    assert_eq!(text, seen["said"].as_str().unwrap());
    assert_eq!(seen["listed"], json!([{ "cwd": project, "title": "!say I write." }]));
    assert_eq!(seen["valid"]["faults"], json!([]));
    assert!(seen["valid"]["checked"].as_u64().unwrap() > 20);
}

#[test]
fn over_a_websocket() {
    drives("ws");
}

#[test]
fn over_http_and_server_sent_events() {
    drives("http");
}
