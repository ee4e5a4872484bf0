//! Agents over ACP: when they are started, kept and ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::{Berths, CliBackend, Spawner};
use tribune_runtime::{AgentRuntime, CloseReason, ContentBlock, Leave, Speaker, TurnInput};

use super::fake_agent::{Part, Stage, Troupe, profile};
use super::{Court, handle, heard_of, input, turn, turn_until};

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
    CliBackend::acp(Arc::clone(troupe) as Arc<dyn Spawner>, IDLE, &Berths::new(32))
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

/// Says again what it is told, text by text. `cancel` is fired by the first prompt, which then ends when it is told to.
async fn echo(mut stage: Stage, mut cancel: Option<CancellationToken>) {
    loop {
        let message = stage.next().await;
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
                stage.say(&json!({ "method": "session/update", "params": params })).await;
                if let Some(cancel) = cancel.take() {
                    cancel.cancel();
                    assert_eq!(stage.next().await["method"], "session/cancel");
                }
                json!({ "stopReason": "end_turn" })
            }
            Some(_) => json!({}),
            None => return,
        };
        stage.say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).await;
    }
}

fn echoing(profile: Value, starts: usize) -> Troupe {
    let part = |_| -> Part { Box::new(|stage| Box::pin(echo(stage, None))) };
    Troupe::new(profile, (0..starts).map(part).collect())
}

/// What a workspace has to say to agents is read by the house: judged, and told as words, once in a conversation.
#[tokio::test(start_paused = true)]
async fn l1_instructions_of_a_workspace_are_read_under_the_law() {
    let mut quirky = profile("acp");
    quirky["quirks"] = json!(["reads-mentions"]);
    let troupe = Arc::new(echoing(quirky, 2).instructed("AGENTS.md"));
    let backend = backend(&troupe);
    let asked = ("workspace-instructions", "read", "AGENTS.md");
    let asked = [asked].map(|(id, tool, path)| (id.to_owned(), tool.to_owned(), path.to_owned()));

    let open = Court::with(|_| Leave::Given);
    let heard = turn(&backend, "a", &open).await;
    assert_eq!(open.asked(), asked);
    let text = heard.text();
    let (instructions, said) = text.split_once('|').unwrap();
    assert!(instructions.starts_with("[`AGENTS.md` of the workspace"), "{text}");
    assert!(instructions.contains("workspace-instructions, and @\u{2060}private.txt"), "{text}");
    assert_eq!(said, "hello");
    let again = turn(&backend, "a", &open).await;
    assert_eq!((again.text().as_str(), open.asked().len()), ("hello", 1), "it knows them");
    // Taken up, it knows them too.
    tokio::time::sleep(2 * IDLE).await;
    assert_eq!(turn(&backend, "a", &open).await.text(), "hello");
    assert_eq!((open.asked().len(), troupe.started.lock().unwrap().len()), (1, 2));
    backend.leave().await;
}

/// What programs take for a command is words, whoever says it, but for what the profile names and the owner says.
#[tokio::test(start_paused = true)]
async fn l1_commands_of_a_program_are_words_unless_its_profile_names_them() {
    let mut named = profile("acp");
    named["commands"] = json!(["compact"]);
    let backend = backend(&Arc::new(echoing(named, 1)));
    for (speaker, said, heard) in [
        (Speaker::Owner, "/init", "\u{2060}/init"),
        (Speaker::Owner, " /init", "\u{2060} /init"),
        (Speaker::Owner, "/compact", "/compact"),
        (Speaker::Owner, "/compactor", "\u{2060}/compactor"),
        (Speaker::Guest, "/compact", "\u{2060}/compact"),
        (Speaker::Agent, "/compact", "\u{2060}/compact"),
        (Speaker::Schedule, "/compact", "\u{2060}/compact"),
    ] {
        let input = TurnInput { content: vec![ContentBlock::text(said)], speaker, ..input(&Court::strict()) };
        assert_eq!(heard_of(&backend, "a", input).await.text(), heard, "{speaker:?}: {said}");
    }
    backend.leave().await;
}

#[tokio::test(start_paused = true)]
async fn l1_instructions_that_the_law_keeps_are_told_of_and_not_told() {
    for court in [Court::strict(), Court::after_asking()] {
        let troupe = Arc::new(echoing(profile("acp"), 1).instructed("AGENTS.md"));
        let backend = backend(&troupe);
        let heard = turn(&backend, "a", &court).await;
        assert_eq!(heard.text(), "hello");
        let notices: Vec<&str> = heard.notices();
        assert_eq!(notices, ["instructions_not_read"]);
        backend.leave().await;
    }
}

/// What a cancelled turn had started and its agent leaves running ends with the agent's box; the next turn takes it up.
#[tokio::test]
async fn l8_commands_that_outlive_a_cancelled_turn_end_with_their_box() {
    for (left, starts) in [(0, 1), (1, 2)] {
        let cancel = CancellationToken::new();
        let fired = cancel.clone();
        let first: Part = Box::new(|stage| Box::pin(echo(stage, Some(fired))));
        let second: Part = Box::new(|stage| Box::pin(echo(stage, None)));
        let troupe = Arc::new(Troupe::new(profile("acp"), vec![first, second]));
        troupe.census.0.store(left, Ordering::Relaxed);
        let backend = backend(&troupe);
        let heard = turn_until(&backend, "a", &Court::strict(), cancel).await;
        assert_eq!(heard.error, None);
        turn(&backend, "a", &Court::strict()).await;
        assert_eq!(troupe.started.lock().unwrap().len(), starts, "{left} left");
        backend.leave().await;
    }
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
