//! `/tribune` in a conversation: the daemon answers the turn itself, for the owner, and no agent sees it.

use std::sync::Arc;

use ed25519_dalek::SigningKey;
use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_daemon::daemon::DaemonOverrides;
use tribune_runtime::AgentRuntime;
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, output_text, run_turn, turn_params};

use crate::approvals::{decide, id, pending};
use crate::fake_agent_scripted::ScriptedAgent;
use crate::principals::agent;
use crate::raw_clients::{body, http, start_with};

const KEY: &str = "agent:main:cli:local:dm:op";
const SCOUT: &str = "agent:scout:cli:local:dm:op";

/// A daemon whose agents make the calls of the test, and say "it is done" to everything.
async fn setup() -> (TestDaemon, ScriptedAgent) {
    let home = TempHome::new();
    home.write("mandates/dev.md", "---\ntools: read, write, send_message\n---\n");
    home.write(
        "policy/ask.cedar",
        r#"@id("ask-write") forbid(principal, action == Tribune::Action::"write", resource) unless { context.approved };"#,
    );
    let agent = |name: &str| {
        format!(
            "{{\"id\":\"{name}\",\"backend\":\"scripted\",\"mandate\":\"dev\",\"standing\":false,\"accepts_from\":[\"*\"]}}\n"
        )
    };
    home.write("data/agent-roster.jsonl", &format!("{}{}", agent("main"), agent("scout")));
    let scripted = ScriptedAgent::default();
    let backend = Arc::new(scripted.clone()) as Arc<dyn AgentRuntime>;
    let extras =
        DaemonOverrides { backends: vec![("scripted".to_owned(), backend)], ..DaemonOverrides::default() };
    (start_with(home, &config(), extras).await, scripted)
}

async fn open(client: &mut RpcClient, key: &str) {
    client.call("session.init", &json!({ "session_key": key })).await.unwrap();
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn c8_slash_tribune_reports_the_law_to_the_owner() {
    let (daemon, scripted) = setup().await;
    let mut client = daemon.operator().await;
    open(&mut client, KEY).await;
    let hash = client.call("daemon.status", &json!({})).await.unwrap()["constitution_hash"].clone();
    let hash = hash.as_str().unwrap().to_owned();
    scripted.prepare(vec![vec![("exec", json!({ "command": "ls" }))]]);
    run_turn(&mut client, KEY, "go on").await.unwrap();
    for word in ["/tribune", " /clawos\n"] {
        // An agent that received the text would make this call.
        scripted.prepare(vec![vec![("read", json!({ "path": "notes.txt" }))]]);
        scripted.answers();
        let (events, result) = run_turn(&mut client, KEY, word).await.unwrap();
        assert_eq!(
            kinds(&events),
            ["turn_started", "ledger_append", "text_delta", "ledger_append", "done"],
            "{word}"
        );
        assert_eq!(result["stop_reason"], "end_turn");
        let output = output_text(&events);
        for line in [
            "- mode: enforce: its decisions hold\n",
            &format!("- hash: `{hash}`\n"),
            "- manifests: 20, of which 0 from this instance\n",
            "- denied here:\n  - exec (mandate.not_listed): ",
            "- waits here for a person: nothing\n",
        ] {
            assert!(output.contains(line), "{line}{output}");
        }
        assert_eq!(scripted.answers(), [], "no agent receives it");
        // The ledger records the turn and who answered it.
        let completed = &events[3]["entry"];
        assert_eq!(
            (&completed["payload"]["skill_name"], &completed["payload"]["phase"]),
            (&json!("house"), &json!("completed"))
        );
    }
    let history = client.call("session.history", &json!({ "session_key": KEY })).await.unwrap();
    let last = history["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["role"], "assistant");

    // Over REST it is the same turn.
    let (address, token) = (daemon.address(), daemon.token());
    let asked = json!({ "input": { "content": [{ "type": "text", "text": "/tribune" }] } }).to_string();
    let request = format!(
        "POST /v1/sessions/{KEY}/turns HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{asked}",
        asked.len()
    );
    assert_eq!(body(&http(&address, request.as_bytes()).await)["stop_reason"], "end_turn");
    assert_eq!(scripted.answers(), []);
    let output = client.call("session.status", &json!({ "session_key": KEY })).await.unwrap();
    assert_eq!(output["turns"], 4);
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn c8_pending_calls_of_only_this_session_are_shown() {
    let (daemon, scripted) = setup().await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    for key in [KEY, SCOUT] {
        open(&mut talker, key).await;
        scripted.prepare(vec![vec![("write", json!({ "path": "a.txt", "content": "x" }))]]);
        talker.send("turn.run", &turn_params(key, "go on")).await.unwrap();
    }
    let waiting = pending(&mut operator, 2).await;
    let of = |key: &str| id(waiting.iter().find(|one| one["session_key"] == key).unwrap());
    let (own, other) = (of(KEY), of(SCOUT));
    // The turns have ended, and their requests stay pending.
    drop((talker, operator));
    let daemon = {
        let home = daemon.stop().await;
        let backend = Arc::new(scripted.clone()) as Arc<dyn AgentRuntime>;
        let extras = DaemonOverrides {
            backends: vec![("scripted".to_owned(), backend)],
            ..DaemonOverrides::default()
        };
        start_with(home, &config(), extras).await
    };
    let mut operator = daemon.operator().await;
    open(&mut operator, KEY).await;
    let (events, _) = run_turn(&mut operator, KEY, "/tribune").await.unwrap();
    let output = output_text(&events);
    assert!(output.contains(&format!("- waits here for a person:\n  - `{own}`: write (")), "{output}");
    assert!(!output.contains(&other), "{output}");
    for id in [own, other] {
        decide(&mut operator, &id, json!({ "decision": "deny" })).await.unwrap();
    }
    drop(operator);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn c8_other_callers_and_other_text_go_to_the_agent() {
    let (daemon, _) = setup().await;
    let mut operator = daemon.operator().await;
    open(&mut operator, KEY).await;
    for words in ["/tribune please", "/Tribune", "what does /tribune do?"] {
        let (events, _) = run_turn(&mut operator, KEY, words).await.unwrap();
        assert_eq!(output_text(&events), "it is done", "{words}");
    }
    let two = json!({ "session_key": KEY, "input": { "content": [
        { "type": "text", "text": "/tribune" }, { "type": "text", "text": "and more" }] } });
    operator.call("turn.run", &two).await.unwrap();
    let heard = operator
        .take_notifications()
        .into_iter()
        .map(|output| output.params["event"].clone())
        .collect::<Vec<_>>();
    assert_eq!(output_text(&heard), "it is done");

    let (mut unregistered, who) = agent(&daemon, &SigningKey::from_bytes(&[7; 32])).await;
    let own = unregistered.call("session.init", &json!({})).await.unwrap()["session_key"].clone();
    let own = own.as_str().unwrap().to_owned();
    let (events, _) = run_turn(&mut unregistered, &own, "/tribune").await.unwrap();
    let output = output_text(&events);
    assert!(!output.contains("mode: enforce") && !output.contains("manifests"), "{who}: {output}");
    drop((operator, unregistered));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn mailbox_messages_wait_for_the_next_agent_turn() {
    let (daemon, scripted) = setup().await;
    let mut client = daemon.operator().await;
    open(&mut client, KEY).await;
    open(&mut client, SCOUT).await;
    scripted.prepare(vec![vec![("send_message", json!({ "to": "scout", "text": "look north" }))]]);
    run_turn(&mut client, KEY, "go on").await.unwrap();
    let injected =
        |events: &[Value]| kinds(events).iter().filter(|kind| **kind == "mailbox_injected").count();
    let (events, _) = run_turn(&mut client, SCOUT, "/tribune").await.unwrap();
    assert_eq!(injected(&events), 0);
    let (events, _) = run_turn(&mut client, SCOUT, "anything?").await.unwrap();
    assert_eq!(injected(&events), 1);
    drop(client);
    assert_sound(&daemon.stop().await.home);
}
