//! Secrets of every known shape, planted in every input and searched for in everything that is stored, shown or sent.

use std::path::Path;

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_redact::fakes::{Fake, fakes};
use tribune_testkit::upstream::{FakeUpstream, ModelOutput, UpstreamReply};
use tribune_testkit::{assert_sound, output_text, run_turn};

use crate::models::{SECRET, home, models, start, upstream};

/// A channel that outsiders read.
const OUTSIDE: &str = "agent:main:telegram:1:dm:2";

/// Texts without a secret that resemble one.
const ORDINARY: &str = include_str!("../../../redact/src/ordinary.txt");

/// All of them, each on its own line, and the key of the provider.
fn planted() -> (Vec<Fake>, String) {
    let fakes = fakes();
    let mut lines: Vec<String> = fakes.iter().map(Fake::text).collect();
    lines.push(format!("the key is {SECRET}"));
    (fakes, lines.join("\n"))
}

/// The planted secrets that these bytes contain.
fn found<'f>(fakes: &'f [Fake], bytes: &[u8]) -> Vec<&'f str> {
    let holds = |secret: &str| memchr::memmem::find(bytes, secret.as_bytes()).is_some();
    let shapes = fakes.iter().filter(|fake| holds(&fake.secret)).map(|fake| fake.kind);
    shapes.chain(holds(SECRET).then_some("the provider key")).collect()
}

/// Every file of a home with its bytes, without the agent's own workspace.
fn files(folder: &Path, into: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("workspace") {
            files(&path, into);
        } else if path.is_file() {
            into.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

async fn open(client: &mut RpcClient) {
    client.call("session.init", &json!({ "session_key": OUTSIDE })).await.unwrap();
}

/// Everything that was sent to the model, without its own signed reasoning.
fn bytes_sent(upstream: &FakeUpstream) -> Vec<u8> {
    let mut sent = crate::models::asked(upstream);
    for message in sent.iter_mut().flat_map(|asked| asked["messages"].as_array_mut().unwrap()) {
        if let Some(parts) = message["content"].as_array_mut() {
            parts.retain(|part| part["type"] != "thinking");
        }
    }
    serde_json::to_vec(&sent).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn p8_no_secret_is_stored_shown_or_sent() {
    let (fakes, lines) = planted();
    let upstream = upstream().await;
    let home = home();
    home.write("agents/main/workspace/secrets.txt", &lines);
    let daemon = start(home, &models(&upstream, "")).await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    let mut seen: Vec<Value> = Vec::new();

    // In a prompt, in a file that a tool reads, in a file that the model writes, in its reasoning and its text, in
    // small pieces.
    let write = json!({ "path": "copy.txt", "content": lines }).to_string();
    upstream
        .reply(ModelOutput::new().call("c1", "read", r#"{"path":"secrets.txt"}"#).anthropic())
        .reply(ModelOutput::new().call("c2", "write", &write).anthropic().in_writes_of(61))
        .reply(ModelOutput::new().thinking(&lines, "c2ln").text(&lines).anthropic().in_writes_of(37));
    let (events, end) = run_turn(&mut client, OUTSIDE, &lines).await.unwrap();
    seen.extend(events);
    seen.push(end);
    // In an error and in its headers.
    let error = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": lines } });
    upstream.reply(UpstreamReply::json(400, &error).header("request-id", SECRET).header("x-echo", SECRET));
    let (events, end) = run_turn(&mut client, OUTSIDE, "and now?").await.unwrap();
    assert_eq!(end["stop_reason"], "error");
    seen.extend(events);
    seen.push(end);
    // In the name of a tool and of a file, and in a mailbox message.
    let names = json!({ "path": fakes[0].secret, "content": "x" }).to_string();
    let message = json!({ "to": "main", "text": lines }).to_string();
    upstream
        .reply(
            ModelOutput::new().call("c3", "write", &names).call("c4", "send_message", &message).anthropic(),
        )
        .reply(ModelOutput::new().text("done").anthropic())
        .reply(ModelOutput::new().text("read").anthropic());
    for words in ["write it down", "and your messages?"] {
        seen.extend(run_turn(&mut client, OUTSIDE, words).await.unwrap().0);
    }

    for event in &seen {
        assert_eq!(found(&fakes, event.to_string().as_bytes()), Vec::<&str>::new(), "in {event}");
    }
    assert_eq!(found(&fakes, &bytes_sent(&upstream)), Vec::<&str>::new(), "sent to the model");
    let page = client.call("session.history", &json!({ "session_key": OUTSIDE })).await.unwrap();
    assert_eq!(found(&fakes, page.to_string().as_bytes()), Vec::<&str>::new(), "in the history");
    drop(client);
    let stopped = daemon.stop().await;
    assert_sound(&stopped.home);
    let mut kept = Vec::new();
    files(stopped.home.root(), &mut kept);
    assert!(
        kept.iter().any(|(path, _)| path.contains("transcript") || path.ends_with(".md")),
        "nothing was kept"
    );
    for (path, bytes) in &kept {
        assert_eq!(found(&fakes, bytes), Vec::<&str>::new(), "in {path}");
    }
    // The workspace belongs to the agent and keeps what it wrote.
    let copy = std::fs::read_to_string(stopped.home.root().join("agents/main/workspace/copy.txt")).unwrap();
    assert_eq!(copy, lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn p8_text_that_resembles_a_secret_is_unchanged() {
    let upstream = upstream().await;
    let daemon = start(home(), &models(&upstream, "")).await;
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": crate::models::KEY })).await.unwrap();
    upstream.reply(ModelOutput::new().text(ORDINARY).anthropic().in_writes_of(53));
    let (events, _) = run_turn(&mut client, crate::models::KEY, ORDINARY).await.unwrap();
    assert_eq!(output_text(&events), ORDINARY);
    let sent = crate::models::asked(&upstream)[0]["messages"].to_string();
    let words: Value = serde_json::from_str(&sent).unwrap();
    assert!(words[0]["content"].as_array().unwrap().iter().any(|part| part["text"] == ORDINARY), "{words}");
    drop(client);
    assert_sound(&daemon.stop().await.home);
}
