//! What sessions promise beyond a single turn.

use serde_json::json;
use tribune_client::{Client, Incoming};
use tribune_testkit::{TestDaemon, say};

const KEY: &str = "agent:main:cli:local:dm:rules";

/// The answers to requests, in the order they come.
async fn answers(client: &mut Client, n: usize) -> Vec<(u64, Result<serde_json::Value, String>)> {
    let mut answers = Vec::new();
    while answers.len() < n {
        if let Incoming::Answer(id, answer) = client.next().await.unwrap() {
            answers.push((id, answer.map_err(|error| error.code().unwrap_or("none").to_owned())));
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_one_connection_run_in_the_order_they_were_asked_for() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    for _ in 0..20 {
        let mut asked = Vec::new();
        for n in 0..6 {
            asked.push(client.send("turn.run", &say(KEY, &format!("!say {n}"))).await.unwrap());
        }
        let ended: Vec<u64> = answers(&mut client, 6).await.into_iter().map(|(id, _)| id).collect();
        assert_eq!(ended, asked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_the_running_turn_and_refuses_those_that_wait() {
    let daemon = TestDaemon::start().await;
    let (mut client, mut closer) = (daemon.operator().await, daemon.operator().await);
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    let running = client.send("turn.run", &say(KEY, "!hang")).await.unwrap();
    let waiting = client.send("turn.run", &say(KEY, "!hang")).await.unwrap();
    while !matches!(client.next().await.unwrap(), Incoming::Notification(_)) {}
    let closed = closer.call("session.close", &json!({ "session_key": KEY })).await.unwrap();
    assert_eq!(closed["state"], "closed");
    let mut ended = answers(&mut client, 2).await;
    ended.sort_by_key(|(id, _)| *id);
    let [(first, cancelled), (second, refused)] = ended.try_into().unwrap();
    assert_eq!((first, second), (running, waiting));
    assert_eq!(cancelled.unwrap()["stop_reason"], "cancelled");
    assert_eq!(refused.unwrap_err(), "session_closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_its_mode_until_another_is_asked_for() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    let mut init = async |params| client.call("session.init", &params).await.unwrap()["mode"].clone();
    assert_eq!(init(json!({ "session_key": KEY })).await, "domain");
    assert_eq!(init(json!({ "session_key": KEY, "mode": "persistent" })).await, "persistent");
    assert_eq!(init(json!({ "session_key": KEY })).await, "persistent");
    let standing = "agent:main:standing:local:dm:main";
    assert_eq!(init(json!({ "session_key": standing })).await, "persistent", "a look does not change it");
    assert_eq!(init(json!({ "session_key": KEY, "mode": "oneshot" })).await, "oneshot");
    client.call("turn.run", &say(KEY, "!say once")).await.unwrap();
    let status = async |client: &mut Client| {
        client.call("session.status", &json!({ "session_key": KEY })).await.unwrap()["state"].clone()
    };
    // The answer comes with the turn's end; the session closes behind it.
    while status(&mut client).await != "closed" {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_cannot_be_added_is_told_why_by_the_right_word() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    let mut add =
        async |params| client.call("agent.add", &params).await.unwrap_err().code().unwrap().to_owned();
    assert_eq!(add(json!({ "agent_id": "main" })).await, "conflict");
    assert_eq!(add(json!({ "agent_id": "a", "pubkey": "ed25519:nonsense" })).await, "invalid_params");
}
