//! A real CLI agent behind Tribune, behind a real client: permission requests for its changes appear in the client.

use serde_json::Value;

use super::{Agent, AgentDaemon, ModelOrder};
use crate::acp::ASK;
use crate::editors::{acpx, assert_valid};

#[tokio::test(flavor = "multi_thread")]
async fn claude_writes_a_file_that_the_editor_allows() {
    let daemon = AgentDaemon::open(Agent::Claude, ASK).await;
    let project = tempfile::tempdir().unwrap();
    let words = daemon.orders(&[ModelOrder::Write("made.txt", "by Claude")]);
    let (place, folder) = (&daemon.rig.place, project.path().canonicalize().unwrap());
    let told = tokio::task::block_in_place(|| {
        acpx(place, &folder, "--agent coder", &["--approve-all", "--format", "json", "exec", &words])
    });
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(std::fs::read_to_string(folder.join("made.txt")).unwrap().trim_end(), "by Claude", "{told:?}");
    assert!(told.out.contains("session/request_permission"), "{}", told.out);
    assert_valid(place, &told.out);
    // The chain: prompt, call, verdict that asks, approval, verdict that allows, result; each names its parent.
    let session = told.out.split("\"sessionId\":\"").nth(1).unwrap().split('"').next().unwrap();
    let mut operator = daemon.rig.operator().await;
    let tail = serde_json::json!({ "entity_id": session, "limit": 500 });
    let entries = operator.call("ledger.tail", &tail).await.unwrap()["entries"].take();
    let entries: Vec<Value> =
        entries.as_array().unwrap().iter().map(|entry| entry["entry"].clone()).collect();
    let of = |quality: &str| entries.iter().filter(|entry| entry["quality"] == quality).collect::<Vec<_>>();
    let follows = |entry: &Value, from: &Value| entry["parents"].as_array().unwrap().contains(&from["cid"]);
    let call = *of("tool_call").iter().find(|call| call["target"] == "write").unwrap();
    let turn = *of("turn").iter().find(|turn| follows(call, turn)).expect("the call follows from the prompt");
    assert_eq!(turn["entity_id"], session);
    let verdicts = of("policy_verdict");
    let judged: Vec<&str> = verdicts
        .iter()
        .filter(|verdict| follows(verdict, call))
        .filter_map(|verdict| verdict["payload"]["decision"].as_str())
        .collect();
    assert_eq!(judged, ["ask", "allow"]);
    let asked = *of("approval")
        .iter()
        .find(|asked| follows(asked, call))
        .expect("the question follows from the call");
    let result = *of("tool_result")
        .iter()
        .find(|result| follows(result, call))
        .expect("the result follows from the call");
    assert_eq!(result["payload"]["outcome"], "ran");
    let approval = asked["payload"]["id"].as_str().unwrap();
    let shown = operator.call("approval.show", &serde_json::json!({ "id": approval })).await.unwrap();
    assert_eq!((&shown["state"], &shown["decided_by"]), (&"allowed".into(), &"operator".into()));
    daemon.rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_writes_nothing_that_the_editor_denies() {
    let daemon = AgentDaemon::open(Agent::Claude, ASK).await;
    let project = tempfile::tempdir().unwrap();
    let words = daemon.orders(&[ModelOrder::Write("made.txt", "by Claude")]);
    let folder = project.path().canonicalize().unwrap();
    let told = tokio::task::block_in_place(|| {
        acpx(&daemon.rig.place, &folder, "--agent coder", &["--deny-all", "--format", "json", "exec", &words])
    });
    assert!(!folder.join("made.txt").exists(), "{told:?}");
    assert_valid(&daemon.rig.place, &told.out);
    daemon.rig.end();
}
