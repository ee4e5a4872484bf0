//! The canary and `tribune agents test` with the real agents: each asks for the call that its model orders, is refused,
//! and does not execute it.

use serde_json::{Value, json};

use super::{Agent, AgentDaemon};
use crate::acp::FREE;

async fn is_held(agent: Agent) {
    let daemon = AgentDaemon::tried(agent, FREE).await;
    let tested = daemon.rig.place.call(&["agents", "test", "coder", "--json"]);
    let told: Value = serde_json::from_str(&tested.out).unwrap_or_default();
    assert_eq!((tested.code, &told["outcome"], &told["ok"]), (0, &json!("live"), &json!(true)), "{tested:?}");
    let answered = told["steps"].as_array().unwrap().iter().find(|step| step["step"] == "answered").unwrap();
    assert_eq!(answered["ok"], true, "{told:#}");
    // The canary's scripted model never reached the configured one.
    assert!(!daemon.model_heard("checks that its gate works"));
    let status = daemon.rig.place.ok(&["status"]);
    assert!(status.contains(&format!("{}: live", agent.profile())), "{status}");
    daemon.rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_claude_is_held() {
    is_held(Agent::Claude).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_claude_code_is_held() {
    is_held(Agent::ClaudeCode).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_codex_is_held() {
    is_held(Agent::Codex).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_gemini_is_held() {
    is_held(Agent::Gemini).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_opencode_is_held() {
    is_held(Agent::Opencode).await;
}
