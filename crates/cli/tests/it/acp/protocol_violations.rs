//! Agents that violate the protocol or hang: each is bounded, reported in one sentence, and ended.

use serde_json::{Value, json};

use super::{KEY, Rig, Setting, until};
use crate::sandboxed_commands::{mark, sleeping};

/// An update for another session.
fn elsewhere() -> Value {
    let text =
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "psst" } });
    json!({ "session": "another", "update": text })
}

#[tokio::test(flavor = "multi_thread")]
async fn protocol_violation_ends_the_turn_and_the_agent() {
    for (what, act, sentence) in [
        ("garbage", json!({ "raw": "%%%", "times": 1000 }), "it writes what is no ACP"),
        ("a line without end", json!({ "megabytes": 50 }), "it wrote a line of more than"),
        ("another session", elsewhere(), "a session that is not this one"),
        (
            "a call without an id",
            json!({ "update": { "sessionUpdate": "tool_call" } }),
            "a call without an id",
        ),
        ("a wrong answer", json!({ "raw": "{\"id\":4711,\"result\":1}" }), "a request that was not made"),
        ("an exit", json!({ "exit": 9 }), "ended with code 9"),
    ] {
        let mark = mark();
        let mut rig = Rig::new(Setting::default()).await;
        let played = rig.plays(json!([{ "child": mark }, act, { "hang": true }])).await;
        let (_, message) = played.error();
        assert!(message.contains(sentence), "{what}: {message}");
        assert!(!played.text.contains("psst"), "{what}");
        until(what, || sleeping(&mark).is_empty()).await;
        let after = rig.plays(json!(["turns"])).await;
        assert_eq!(after.text, "turn 2", "{what}: {after:#?}");
        rig.end();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn harmless_violations_are_tolerated() {
    let mut rig = Rig::new(Setting { role: "twice", ..Setting::default() }).await;
    let noise = json!([
        { "raw": "Warning: something is deprecated" }, { "raw": "" }, { "raw": "[]" },
        { "stderr": 300 }, { "say": "still here" },
    ]);
    let played = rig.plays(noise).await;
    assert_eq!((played.text.as_str(), played.stop.as_str()), ("still here", "end_turn"), "{played:#?}");
    assert_eq!(rig.plays(json!(["turns"])).await.text, "turn 2");
    let shown = rig.client.call("session.status", &json!({ "session_key": KEY })).await.unwrap();
    let stderr = shown["agent_stderr"].as_str().unwrap();
    assert!(stderr.ends_with("the last complaint\n") && stderr.len() <= 16 << 10, "{}", stderr.len());
    let said = rig.place.ok(&["sessions", "show", KEY]);
    assert!(said.contains("the last complaint"), "{said}");
    rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_start_is_explained() {
    for (role, code, sentence) in [
        ("exit:initialize", "agent_ended", "no initialize for me"),
        ("exit:session/new", "agent_ended", "no session/new for me"),
        ("exit:session/prompt", "agent_ended", "ended with code 7"),
        ("garbage:initialize", "agent_ended", "it writes what is no ACP"),
        ("modern", "agent_protocol", "speaks version 9"),
    ] {
        let mut rig = Rig::new(Setting { role, ..Setting::default() }).await;
        let played = rig.plays(json!([{ "say": "never" }])).await;
        let (found, message) = played.error();
        assert_eq!((found.as_str(), played.text.as_str()), (code, ""), "{role}: {message}");
        assert!(message.contains(sentence), "{role}: {message}");
        rig.end();
    }
}

/// A silent agent: a cancel takes effect at once.
#[tokio::test(flavor = "multi_thread")]
async fn silent_agent_can_be_cancelled() {
    for role in ["silent:initialize", "silent:session/new", "silent:session/prompt", "deaf"] {
        let mark = mark();
        let mut rig = Rig::new(Setting { role, ..Setting::default() }).await;
        let mut operator = rig.operator().await;
        let running = rig.begins(json!([{ "child": mark }, { "hang": true }])).await;
        if role == "deaf" {
            rig.hangs().await;
        }
        loop {
            let asked = operator.call("session.cancel", &json!({ "session_key": KEY })).await.unwrap();
            if asked["cancelled"] == true {
                break;
            }
            tokio::task::yield_now().await;
        }
        let played = rig.ended(running).await;
        assert_eq!(played.stop, "cancelled", "{role}: {played:#?}");
        until(role, || sleeping(&mark).is_empty()).await;
        rig.end();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_outlives_its_session_or_the_daemon() {
    let (first, second) = (mark(), mark());
    let mut rig = Rig::new(Setting::default()).await;
    rig.plays(json!([{ "child": first }])).await;
    assert_eq!(sleeping(&first).len(), 1, "a child may outlive its turn");
    rig.client.call("session.close", &json!({ "session_key": KEY })).await.unwrap();
    until("the sandbox of a closed session is gone", || sleeping(&first).is_empty()).await;
    rig.client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    let again = rig.plays(json!([{ "child": second }, "turns"])).await;
    assert_eq!(again.text, "turn 2", "a reopened session is resumed");
    let folder = rig.place.home().join("agents/coder/cli");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    rig.client.call("session.close", &json!({ "session_key": KEY })).await.unwrap();
    rig.client.call("session.forget", &json!({ "session_key": KEY })).await.unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "forgotten texts are gone");
    rig.client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    let third = mark();
    let fresh = rig.plays(json!([{ "child": third }, "turns"])).await;
    assert_eq!(fresh.text, "turn 1");
    rig.end();
    assert!(sleeping(&third).is_empty() && sleeping(&second).is_empty(), "the daemon leaves nothing behind");
}
