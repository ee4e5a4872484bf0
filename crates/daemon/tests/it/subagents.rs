//! Sub-agents: which tools they get, which they do not, and how they end.

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, run_turn, turn_params};

const KEY: &str = "agent:main:cli:local:dm:op";

async fn daemon() -> TestDaemon {
    let home = TempHome::new();
    home.write("mandates/dev.md", "---\ntools: read, write, send_message, memory, cron, spawn\n---\n");
    home.write("data/agent-roster.jsonl", "{\"id\":\"main\",\"mandate\":\"dev\",\"standing\":false}\n");
    TestDaemon::start_at(home, &config()).await
}

async fn open(client: &mut RpcClient) {
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
}

/// A line that makes a sub-agent play `script`.
fn spawn(script: &str, tools: Option<&[&str]>) -> String {
    let mut input = json!({ "task": script });
    if let Some(tools) = tools {
        input["tools"] = json!(tools);
    }
    format!("!call spawn {input}\n")
}

fn results(events: &[Value]) -> Vec<String> {
    let results = events.iter().filter(|event| event["type"] == "tool_result");
    results.map(|event| event["content"].as_str().unwrap().to_owned()).collect()
}

/// The sessions of the sub-agents.
async fn children(client: &mut RpcClient) -> Vec<Value> {
    let sessions = client.call("session.list", &json!({})).await.unwrap();
    let all = sessions["sessions"].as_array().unwrap().clone();
    all.into_iter().filter(|one| one["session_key"].as_str().unwrap().contains(":subagent:")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_subagent_is_bound_by_every_mandate_of_its_ancestors() {
    let daemon = daemon().await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    let script = spawn("!call read {\"path\":\"nothing\"}\n!say the answer", None);
    let (events, _) = run_turn(&mut client, KEY, &script).await.unwrap();
    assert_eq!(results(&events), ["the answer"]);
    let children = children(&mut client).await;
    assert_eq!(children.len(), 1);
    assert_eq!((&children[0]["state"], &children[0]["mode"]), (&json!("closed"), &json!("oneshot")));
    let key = children[0]["session_key"].as_str().unwrap();
    let tail = client.call("ledger.tail", &json!({ "entity_id": key, "limit": 1000 })).await.unwrap();
    let verdicts: Vec<&Value> = tail["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["entry"])
        .filter(|entry| entry["quality"] == "policy_verdict")
        .map(|entry| &entry["payload"]["facts"])
        .collect();
    assert!(!verdicts.is_empty());
    for facts in verdicts {
        assert_eq!((&facts["kind"], &facts["mandates"]), (&json!("subagent"), &json!(["dev", "dev"])));
        assert_eq!(facts["labels"]["trust"], "verified");
    }
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_subagent_has_and_delegates_only_its_given_tools() {
    let daemon = daemon().await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    let write = "!call write {\"path\":\"a\",\"content\":\"b\"}\n!say $result";
    let (events, _) = run_turn(&mut client, KEY, &spawn(write, Some(&["read"]))).await.unwrap();
    assert!(results(&events)[0].contains("denied (hook.spawn.narrowed)"), "{events:?}");
    // A sub-agent cannot delegate a tool that it does not have, neither by name nor by default.
    for inner in [spawn(write, Some(&["write"])), spawn(write, None)] {
        let outer = spawn(&format!("{inner}!say $result"), Some(&["spawn"]));
        let (events, _) = run_turn(&mut client, KEY, &outer).await.unwrap();
        let result = &results(&events)[0];
        assert!(result.contains("is not one of your tools") || result.contains("spawn.narrowed"), "{result}");
    }
    let (events, _) = run_turn(&mut client, KEY, &spawn(write, Some(&["exec"]))).await.unwrap();
    assert!(results(&events)[0].contains("`exec` is not one of your tools"), "{events:?}");
    let workspace = daemon.home.home.root().join("agents/main/workspace/a");
    assert!(!workspace.exists());
    // The owner's words in the parent's turn do not have the owner's trust in the sub-agent's.
    let cron = "!call cron {\"action\":\"list\"}\n!say $result";
    let (events, _) = run_turn(&mut client, KEY, &spawn(cron, None)).await.unwrap();
    assert!(results(&events)[0].contains("denied (trust.below)"), "{events:?}");
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn subagents_nest_three_deep() {
    let daemon = daemon().await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    let mut script = "!say the bottom".to_owned();
    for _ in 0..3 {
        script = format!("{}!say $result", spawn(&script, None));
    }
    let (events, _) = run_turn(&mut client, KEY, &script).await.unwrap();
    assert_eq!(results(&events), ["the bottom"]);
    let (events, _) =
        run_turn(&mut client, KEY, &format!("{}!say $result", spawn(&script, None))).await.unwrap();
    assert!(results(&events)[0].contains("3 deep and no deeper"), "{events:?}");
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn subagent_ends_with_the_turn_that_waits_for_it() {
    let daemon = daemon().await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    let mut other = daemon.operator().await;
    client.send("turn.run", &turn_params(KEY, &spawn("!hang", None))).await.unwrap();
    while !children(&mut other).await.iter().any(|child| child["state"] == "running") {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    other.call("session.cancel", &json!({ "session_key": KEY })).await.unwrap();
    while !children(&mut other).await.iter().all(|child| child["state"] == "closed") {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    drop((client, other));
    assert_sound(&daemon.stop().await.home);
}
