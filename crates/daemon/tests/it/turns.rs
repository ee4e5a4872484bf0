//! Turns end to end: RPC in, events out, everything in the ledger.

use serde_json::{Value, json};
use tribune_testkit::{TestDaemon, assert_sound, output_text, run_turn};

const KEY: &str = "agent:main:cli:local:dm:operator";

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_streams_its_events_and_ends_with_a_result() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    let opened = client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    assert_eq!((&opened["state"], &opened["mandate"]), (&json!("idle"), &json!("default")));
    let (events, result) = run_turn(&mut client, KEY, "hello there").await.unwrap();
    assert_eq!(result["stop_reason"], "end_turn");
    assert!(output_text(&events).contains("hello there"), "{}", output_text(&events));
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert_eq!(kinds(&events)[..2], ["turn_started", "ledger_append"]);
    assert_eq!(kinds(&events).last(), Some(&"done"));
    assert_eq!(kinds(&events).iter().filter(|kind| **kind == "policy_gate").count(), 3, "one per tool");

    let (second, _) = run_turn(&mut client, KEY, "again").await.unwrap();
    assert_eq!(second[0]["seq"], seqs.len() as u64 + 1, "numbers continue over turns");
    let status = client.call("session.status", &json!({ "session_key": KEY })).await.unwrap();
    assert_eq!((&status["turns"], &status["state"]), (&json!(2), &json!("idle")));

    let home = daemon.stop().await;
    assert_sound(&home.home);
}
