//! ACP agents: when they are started, kept and ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::{CliBackend, ProcessLimit, Spawner};
use tribune_runtime::{AgentRuntime, CloseReason, ContentBlock, PermissionOutcome, Speaker, TurnInput};

use super::fake_agent::{AgentPipes, AgentScript, FakeSpawner, profile};
use super::{TestToolbox, handle, input, log_of, turn, turn_cancelled_by};

const IDLE: Duration = Duration::from_secs(600);

/// Answers `initialize`, `session/new`, `session/load` and every prompt until its input closes; sends the methods of
/// its requests as text.
async fn play(mut pipes: AgentPipes) {
    let mut asked = Vec::new();
    loop {
        let message = pipes.next().await;
        let Some(method) = message["method"].as_str() else { return };
        let result = match method {
            "initialize" => json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true } }),
            "session/new" => json!({ "sessionId": "s1" }),
            "session/prompt" => {
                let chunk = json!({ "type": "text", "text": asked.join(" ") });
                let update = json!({ "sessionUpdate": "agent_message_chunk", "content": chunk });
                let params = json!({ "sessionId": "s1", "update": update });
                pipes.say(&json!({ "method": "session/update", "params": params })).await;
                json!({ "stopReason": "end_turn" })
            }
            _ => json!({}),
        };
        asked.push(method.to_owned());
        pipes.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).await;
    }
}

fn fake_spawner(starts: usize) -> FakeSpawner {
    let part = |_| -> AgentScript { Box::new(|pipes| Box::pin(play(pipes))) };
    FakeSpawner::new(profile("acp"), (0..starts).map(part).collect())
}

fn backend(spawner: &Arc<FakeSpawner>) -> CliBackend {
    CliBackend::acp(Arc::clone(spawner) as Arc<dyn Spawner>, IDLE, &ProcessLimit::new(32))
}

async fn said(backend: &CliBackend, peer: &str) -> String {
    let log = turn(backend, peer, &TestToolbox::strict()).await;
    assert_eq!(log.error, None);
    log.text()
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_kept_until_idle_and_then_resumed() {
    let spawner = Arc::new(fake_spawner(2));
    let backend = backend(&spawner);
    assert_eq!(said(&backend, "a").await, "initialize session/new");
    tokio::time::sleep(IDLE / 2).await;
    assert_eq!(said(&backend, "a").await, "initialize session/new session/prompt");
    tokio::time::sleep(IDLE / 2 + Duration::from_secs(1)).await;
    assert_eq!(spawner.started.lock().unwrap().len(), 1, "used meanwhile, so it is not idle");
    tokio::time::sleep(IDLE).await;
    assert_eq!(*spawner.ends.lock().unwrap(), ["by itself"]);
    assert_eq!(said(&backend, "a").await, "initialize session/load");
    assert_eq!(spawner.started.lock().unwrap().len(), 2);
    backend.shutdown().await;
    assert_eq!(*spawner.ends.lock().unwrap(), ["by itself", "by itself"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_exit_is_killed() {
    let spawner = Arc::new(fake_spawner(2).that_never_exit());
    let backend = backend(&spawner);
    said(&backend, "a").await;
    said(&backend, "b").await;
    backend.close(&handle("a"), CloseReason::Requested).await.unwrap();
    assert_eq!(*spawner.ends.lock().unwrap(), ["killed"]);
    backend.shutdown().await;
    assert_eq!(*spawner.ends.lock().unwrap(), ["killed", "killed"]);
}

/// Repeats the texts of its prompts. The first prompt fires `cancel`, and then ends when the agent is told to.
async fn echo(mut pipes: AgentPipes, mut cancel: Option<CancellationToken>) {
    loop {
        let message = pipes.next().await;
        let result = match message["method"].as_str() {
            Some("initialize") => {
                json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true } })
            }
            Some("session/new") => json!({ "sessionId": "s1" }),
            Some("session/prompt") => {
                let texts = message["params"]["prompt"].as_array().unwrap().iter();
                let texts: Vec<&str> = texts.filter_map(|block| block["text"].as_str()).collect();
                let chunk = json!({ "type": "text", "text": texts.join("|") });
                let update = json!({ "sessionUpdate": "agent_message_chunk", "content": chunk });
                let params = json!({ "sessionId": "s1", "update": update });
                pipes.say(&json!({ "method": "session/update", "params": params })).await;
                if let Some(cancel) = cancel.take() {
                    cancel.cancel();
                    assert_eq!(pipes.next().await["method"], "session/cancel");
                }
                json!({ "stopReason": "end_turn" })
            }
            Some(_) => json!({}),
            None => return,
        };
        pipes.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).await;
    }
}

fn echoing(profile: Value, starts: usize) -> FakeSpawner {
    let part = |_| -> AgentScript { Box::new(|pipes| Box::pin(echo(pipes, None))) };
    FakeSpawner::new(profile, (0..starts).map(part).collect())
}

/// The host reads a workspace's instructions: judged, and sent as text, once in a conversation.
#[tokio::test(start_paused = true)]
async fn l1_project_instructions_are_read_under_the_law() {
    let mut quirky = profile("acp");
    quirky["quirks"] = json!(["reads-mentions"]);
    let spawner = Arc::new(echoing(quirky, 2).with_instructions("AGENTS.md"));
    let backend = backend(&spawner);
    let asked = ("tribune-workspace-instructions", "read", "AGENTS.md");
    let asked = [asked].map(|(id, tool, path)| (id.to_owned(), tool.to_owned(), path.to_owned()));

    let open = TestToolbox::with(|_| PermissionOutcome::Granted);
    let log = turn(&backend, "a", &open).await;
    assert_eq!(open.asked(), asked);
    let text = log.text();
    let (instructions, said) = text.split_once('|').unwrap();
    assert!(instructions.starts_with("[`AGENTS.md` of the workspace"), "{text}");
    assert!(instructions.contains("workspace-instructions, and @\u{2060}private.txt"), "{text}");
    assert_eq!(said, "hello");
    let again = turn(&backend, "a", &open).await;
    assert_eq!((again.text().as_str(), open.asked().len()), ("hello", 1), "it knows them");
    // A resumed conversation has them already.
    tokio::time::sleep(2 * IDLE).await;
    assert_eq!(turn(&backend, "a", &open).await.text(), "hello");
    assert_eq!((open.asked().len(), spawner.started.lock().unwrap().len()), (1, 2));
    backend.shutdown().await;
}

/// A command in a prompt is escaped for every sender, except for commands of the profile that the owner sends.
#[tokio::test(start_paused = true)]
async fn l1_commands_are_escaped_unless_the_profile_names_them() {
    let mut named = profile("acp");
    named["commands"] = json!(["compact"]);
    let backend = backend(&Arc::new(echoing(named, 1)));
    for (speaker, said, log) in [
        (Speaker::Owner, "/init", "\u{2060}/init"),
        (Speaker::Owner, " /init", "\u{2060} /init"),
        (Speaker::Owner, "/compact", "/compact"),
        (Speaker::Owner, "/compactor", "\u{2060}/compactor"),
        (Speaker::Guest, "/compact", "\u{2060}/compact"),
        (Speaker::Agent, "/compact", "\u{2060}/compact"),
        (Speaker::Schedule, "/compact", "\u{2060}/compact"),
    ] {
        let input =
            TurnInput { content: vec![ContentBlock::text(said)], speaker, ..input(&TestToolbox::strict()) };
        assert_eq!(log_of(&backend, "a", input).await.text(), log, "{speaker:?}: {said}");
    }
    backend.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn l1_denied_project_instructions_give_a_notice() {
    for toolbox in [TestToolbox::strict(), TestToolbox::after_asking()] {
        let spawner = Arc::new(echoing(profile("acp"), 1).with_instructions("AGENTS.md"));
        let backend = backend(&spawner);
        let log = turn(&backend, "a", &toolbox).await;
        assert_eq!(log.text(), "hello");
        let notices: Vec<&str> = log.notices();
        assert_eq!(notices, ["instructions_not_read"]);
        backend.shutdown().await;
    }
}

/// A command that a cancelled turn leaves running ends with the agent's sandbox; the next turn resumes the
/// conversation.
#[tokio::test]
async fn l8_commands_that_outlive_a_cancelled_turn_end_with_the_sandbox() {
    for (left, starts) in [(0, 1), (1, 2)] {
        let cancel = CancellationToken::new();
        let fired = cancel.clone();
        let first: AgentScript = Box::new(|pipes| Box::pin(echo(pipes, Some(fired))));
        let second: AgentScript = Box::new(|pipes| Box::pin(echo(pipes, None)));
        let spawner = Arc::new(FakeSpawner::new(profile("acp"), vec![first, second]));
        spawner.census.0.store(left, Ordering::Relaxed);
        let backend = backend(&spawner);
        let log = turn_cancelled_by(&backend, "a", &TestToolbox::strict(), cancel).await;
        assert_eq!(log.error, None);
        turn(&backend, "a", &TestToolbox::strict()).await;
        assert_eq!(spawner.started.lock().unwrap().len(), starts, "{left} left");
        backend.shutdown().await;
    }
}

/// An agent whose protocol is not its backend's gets no turn.
#[tokio::test(start_paused = true)]
async fn a_profile_of_another_protocol_is_refused() {
    let part: AgentScript = Box::new(|pipes| Box::pin(play(pipes)));
    let spawner = Arc::new(FakeSpawner::new(profile("claude-stream-json"), vec![part]));
    let log = turn(&backend(&spawner), "a", &TestToolbox::strict()).await;
    let (code, message) = log.error();
    assert_eq!(code, "no_profile");
    assert!(message.contains("is not for the backend `acp`"), "{message}");
}
