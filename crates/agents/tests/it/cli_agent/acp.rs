//! Agents over ACP: when they are started, kept and ended.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tribune_agents::cli_agent::{CliBackend, Spawner};
use tribune_agents::{AgentRuntime, CloseReason};

use super::played::{Part, Stage, Troupe, profile};
use super::{Court, handle, turn};

const IDLE: Duration = Duration::from_secs(600);

/// Answers `initialize`, `session/new`, `session/load` and every prompt until its input closes; says which methods it was asked.
async fn play(mut stage: Stage) {
    let mut asked = Vec::new();
    loop {
        let message = stage.next().await;
        let Some(method) = message["method"].as_str() else { return };
        let result = match method {
            "initialize" => json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true } }),
            "session/new" => json!({ "sessionId": "s1" }),
            "session/prompt" => {
                let chunk = json!({ "type": "text", "text": asked.join(" ") });
                let update = json!({ "sessionUpdate": "agent_message_chunk", "content": chunk });
                let params = json!({ "sessionId": "s1", "update": update });
                stage.say(&json!({ "method": "session/update", "params": params })).await;
                json!({ "stopReason": "end_turn" })
            }
            _ => json!({}),
        };
        asked.push(method.to_owned());
        stage.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).await;
    }
}

fn troupe(starts: usize) -> Troupe {
    let part = |_| -> Part { Box::new(|stage| Box::pin(play(stage))) };
    Troupe::new(profile("acp"), (0..starts).map(part).collect())
}

fn backend(troupe: &Arc<Troupe>) -> CliBackend {
    CliBackend::acp(Arc::clone(troupe) as Arc<dyn Spawner>, IDLE)
}

async fn said(backend: &CliBackend, peer: &str) -> String {
    let heard = turn(backend, peer, &Court::strict()).await;
    assert_eq!(heard.error, None);
    heard.text()
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_kept_for_its_session_until_it_is_idle_and_then_taken_up_again() {
    let troupe = Arc::new(troupe(2));
    let backend = backend(&troupe);
    assert_eq!(said(&backend, "a").await, "initialize session/new");
    tokio::time::sleep(IDLE / 2).await;
    assert_eq!(said(&backend, "a").await, "initialize session/new session/prompt");
    tokio::time::sleep(IDLE / 2 + Duration::from_secs(1)).await;
    assert_eq!(troupe.started.lock().unwrap().len(), 1, "used meanwhile, so it is not idle");
    tokio::time::sleep(IDLE).await;
    assert_eq!(*troupe.ends.lock().unwrap(), ["by itself"]);
    assert_eq!(said(&backend, "a").await, "initialize session/load");
    assert_eq!(troupe.started.lock().unwrap().len(), 2);
    backend.leave().await;
    assert_eq!(*troupe.ends.lock().unwrap(), ["by itself", "by itself"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_go_is_ended() {
    let troupe = Arc::new(troupe(2).stubborn());
    let backend = backend(&troupe);
    said(&backend, "a").await;
    said(&backend, "b").await;
    backend.close(&handle("a"), CloseReason::Requested).await.unwrap();
    assert_eq!(*troupe.ends.lock().unwrap(), ["killed"]);
    backend.leave().await;
    assert_eq!(*troupe.ends.lock().unwrap(), ["killed", "killed"]);
}

/// An agent that speaks something else than its backend is not spoken with.
#[tokio::test(start_paused = true)]
async fn a_profile_of_another_protocol_is_refused() {
    let part: Part = Box::new(|stage| Box::pin(play(stage)));
    let troupe = Arc::new(Troupe::new(profile("claude-stream-json"), vec![part]));
    let heard = turn(&backend(&troupe), "a", &Court::strict()).await;
    let (code, message) = heard.error();
    assert_eq!(code, "no_profile");
    assert!(message.contains("is not for the backend `acp`"), "{message}");
}
