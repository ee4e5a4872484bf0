//! The limit of running agents, and agents that exit when they should not.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::{CliBackend, IDLE_TIMEOUT, ProcessLimit, Spawner};
use tribune_runtime::{AgentRuntime as _, CloseReason, EventKind, PermissionOutcome, TurnInput};

use super::fake_agent::{AgentPipes, AgentScript, FakeSpawner, profile};
use super::{TestToolbox, TurnLog, handle, input, log_of, turn, turn_cancelled_by};

/// How an agent is killed from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// On request, whatever it is doing.
    WhenTold,
    /// At its second prompt, before its first message.
    AtPrompt,
    /// The same, after a message.
    InTurn,
}

/// Answers prompts, after requesting permission for `command` if there is one. Sends how it was started.
async fn answers(mut pipes: AgentPipes, command: Option<&'static str>, death: Option<Death>) {
    let (mut began, mut prompts) = ("", 0);
    loop {
        let message = pipes.next().await;
        let id = &message["id"];
        let result = match message["method"].as_str() {
            Some("initialize") => {
                json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": true } })
            }
            Some("session/new") => {
                began = "new";
                json!({ "sessionId": "s1" })
            }
            Some("session/load") => {
                began = "taken up";
                json!({})
            }
            Some("session/prompt") => {
                prompts += 1;
                if death == Some(Death::AtPrompt) && prompts == 2 {
                    return;
                }
                if let Some(command) = command {
                    let call =
                        json!({ "toolCallId": "t", "kind": "execute", "rawInput": { "command": command } });
                    let params = json!({ "sessionId": "s1", "toolCall": call, "options": [] });
                    let ask = json!({ "id": 7, "method": "session/request_permission", "params": params });
                    pipes.say(&ask).await;
                    // The answer, or the end of the turn.
                    pipes.next().await;
                }
                let chunk = json!({ "type": "text", "text": began });
                let update = json!({ "sessionUpdate": "agent_message_chunk", "content": chunk });
                let params = json!({ "sessionId": "s1", "update": update });
                pipes.say(&json!({ "method": "session/update", "params": params })).await;
                if death == Some(Death::InTurn) && prompts == 2 {
                    return;
                }
                json!({ "stopReason": "end_turn" })
            }
            Some(_) => json!({}),
            None if message.is_null() => return,
            None => continue,
        };
        pipes.say(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    }
}

fn answering() -> AgentScript {
    Box::new(|pipes| Box::pin(answers(pipes, None, None)))
}

/// Asks about a command that is never decided.
fn waiting() -> AgentScript {
    Box::new(|pipes| Box::pin(answers(pipes, Some("wait"), None)))
}

fn mortal(death: Death, reported: CancellationToken) -> AgentScript {
    Box::new(move |pipes| {
        Box::pin(async move {
            tokio::select! {
                () = answers(pipes, None, Some(death)) => {}
                () = reported.cancelled() => {}
            }
        })
    })
}

fn setup(parts: Vec<AgentScript>, most: usize) -> (Arc<FakeSpawner>, CliBackend) {
    let spawner = Arc::new(FakeSpawner::new(profile("acp"), parts));
    let started_by = Arc::clone(&spawner) as Arc<dyn Spawner>;
    (spawner, CliBackend::acp(started_by, IDLE_TIMEOUT, &ProcessLimit::new(most)))
}

fn running(spawner: &FakeSpawner) -> usize {
    spawner.started.lock().unwrap().len() - spawner.ends.lock().unwrap().len()
}

async fn said(backend: &CliBackend, peer: &str) -> String {
    let log = turn(backend, peer, &TestToolbox::strict()).await;
    assert_eq!(log.error, None, "{peer}");
    log.text()
}

#[tokio::test(start_paused = true)]
async fn the_longest_idle_agent_makes_room_and_is_resumed_later() {
    let (spawner, backend) = setup((0..5).map(|_| answering()).collect(), 2);
    for (peer, how, starts) in [
        ("a", "new", 1),
        ("b", "taken up", 2),
        ("a", "new", 2),
        // `b` has been idle for longer than `a`.
        ("c", "taken up", 3),
        ("a", "new", 3),
        ("b", "taken up", 4),
        ("a", "new", 4),
        ("c", "taken up", 5),
    ] {
        assert_eq!(said(&backend, peer).await, how, "{peer}");
        assert_eq!(spawner.started.lock().unwrap().len(), starts, "{peer}");
        assert_eq!(running(&spawner), starts.min(2), "{peer}");
    }
    backend.shutdown().await;
    assert_eq!(running(&spawner), 0);
}

/// Begins a turn and waits until its agent asked something.
async fn asks(
    backend: &CliBackend,
    peer: &'static str,
    toolbox: &Arc<TestToolbox>,
) -> (CancellationToken, tokio::task::JoinHandle<TurnLog>) {
    let (cancel, asked) = (CancellationToken::new(), toolbox.asked().len());
    let (own, reported, toolbox) = (backend.clone(), cancel.clone(), Arc::clone(toolbox));
    let asking = Arc::clone(&toolbox);
    let running = tokio::spawn(async move { turn_cancelled_by(&own, peer, &asking, reported).await });
    while toolbox.asked().len() == asked {
        tokio::task::yield_now().await;
    }
    (cancel, running)
}

#[tokio::test(start_paused = true)]
async fn starts_wait_in_order_while_all_agents_are_busy() {
    let (spawner, backend) = setup(vec![waiting(), waiting(), answering(), answering()], 2);
    let toolbox = TestToolbox::with(|_| PermissionOutcome::Granted);
    let began = tokio::time::Instant::now();
    let (end_a, a) = asks(&backend, "a", &toolbox).await;
    let (end_b, b) = asks(&backend, "b", &toolbox).await;
    let mut third = backend.run_turn(&handle("c"), input(&toolbox));
    let notice = third.next().await.unwrap().unwrap().kind;
    assert!(matches!(&notice, EventKind::Notice { code, .. } if code == "waiting_for_room"), "{notice:?}");
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let listening = Arc::clone(&order);
    let third = tokio::spawn(async move {
        while let Some(event) = third.next().await {
            if let EventKind::TextDelta { .. } = event.unwrap().kind {
                listening.lock().unwrap().push("c");
            }
        }
    });
    // It is in the queue before the next one comes.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (own, listening, law) = (backend.clone(), Arc::clone(&order), Arc::clone(&toolbox));
    let fourth = tokio::spawn(async move {
        let log = turn(&own, "d", &law).await;
        assert_eq!((log.notices(), &log.error), (vec!["waiting_for_room"], &None));
        listening.lock().unwrap().push("d");
    });
    // A start that is given up does not block others.
    let gone = CancellationToken::new();
    let (own, law, cancel) = (backend.clone(), Arc::clone(&toolbox), gone.clone());
    let fifth = tokio::spawn(async move { turn_cancelled_by(&own, "e", &law, cancel).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    gone.cancel();
    assert_eq!(fifth.await.unwrap().error, None);
    assert_eq!((running(&spawner), order.lock().unwrap().len()), (2, 0));
    end_a.cancel();
    a.await.unwrap();
    third.await.unwrap();
    fourth.await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["c", "d"]);
    assert_eq!(running(&spawner), 2, "`b` and `d`");
    assert!(began.elapsed() < IDLE_TIMEOUT, "an agent that becomes idle makes room, not a timeout");
    end_b.cancel();
    b.await.unwrap();
    backend.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_start_does_not_hold_up_a_shutdown() {
    let (_spawner, backend) = setup(vec![waiting()], 1);
    let toolbox = TestToolbox::with(|_| PermissionOutcome::Granted);
    let (end, busy) = asks(&backend, "a", &toolbox).await;
    let (own, law) = (backend.clone(), Arc::clone(&toolbox));
    let waits = tokio::spawn(async move { turn(&own, "b", &law).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    backend.shutdown().await;
    assert_eq!(waits.await.unwrap().error().0, "draining");
    end.cancel();
    busy.await.unwrap();
}

/// The agent is killed between two turns, at every moment before and while its end is noticed.
#[tokio::test]
async fn an_agent_killed_between_turns_is_started_again() {
    for moment in 0..200 {
        let reported = CancellationToken::new();
        let (spawner, backend) = setup(vec![mortal(Death::WhenTold, reported.clone()), answering()], 2);
        assert_eq!(said(&backend, "a").await, "new");
        reported.cancel();
        for _ in 0..moment % 50 {
            tokio::task::yield_now().await;
        }
        let log = turn(&backend, "a", &TestToolbox::strict()).await;
        assert_eq!((log.text().as_str(), &log.error), ("taken up", &None), "moment {moment}");
        assert_eq!(spawner.started.lock().unwrap().len(), 2);
        backend.shutdown().await;
        assert_eq!(running(&spawner), 0);
    }
}

/// It is killed while it gets a prompt: before its first message nothing is lost, after one the turn is.
#[tokio::test]
async fn a_prompt_is_repeated_only_if_the_agent_exited_silently() {
    for (death, error) in [(Death::AtPrompt, None), (Death::InTurn, Some("agent_ended"))] {
        let mortal = || mortal(death, CancellationToken::new());
        let (spawner, backend) = setup(vec![mortal(), answering()], 2);
        assert_eq!(said(&backend, "a").await, "new");
        let log = turn(&backend, "a", &TestToolbox::strict()).await;
        assert_eq!(log.error.as_ref().map(|error| error.code()), error, "{death:?}");
        assert_eq!(said(&backend, "a").await, "taken up", "{death:?}");
        assert_eq!(spawner.started.lock().unwrap().len(), 2, "{death:?}");
        backend.shutdown().await;
    }
}

/// An agent that always exits is not started again for ever.
#[tokio::test]
async fn an_agent_that_exits_at_each_prompt_is_started_once_for_a_turn() {
    let dies = || -> AgentScript {
        Box::new(|mut pipes| {
            Box::pin(async move {
                for result in [json!({ "protocolVersion": 1 }), json!({ "sessionId": "s1" })] {
                    let id = pipes.next().await["id"].clone();
                    pipes.say(&json!({ "id": id, "result": result })).await;
                }
                pipes.next().await;
            })
        })
    };
    let (spawner, backend) = setup(vec![dies(), dies()], 2);
    for starts in 1..=2 {
        let log = turn(&backend, "a", &TestToolbox::strict()).await;
        assert_eq!((log.error().0, log.text().as_str()), ("agent_ended", ""));
        assert_eq!(spawner.started.lock().unwrap().len(), starts);
    }
    backend.shutdown().await;
}

/// An agent that was stopped on purpose stays stopped, even without a message.
#[tokio::test]
async fn l8_stop_all_starts_no_agent_again() {
    let silent: AgentScript = Box::new(|mut pipes| {
        Box::pin(async move {
            for result in [
                json!({ "protocolVersion": 1 }),
                json!({ "sessionId": "s1" }),
                json!({ "stopReason": "end_turn" }),
            ] {
                let id = pipes.next().await["id"].clone();
                pipes.say(&json!({ "id": id, "result": result })).await;
            }
            pipes.wait_for_close().await;
        })
    });
    let (spawner, backend) = setup(vec![silent], 2);
    said(&backend, "a").await;
    let own = backend.clone();
    let stopped = tokio::spawn(async move {
        let input = TurnInput { ..input(&TestToolbox::strict()) };
        log_of(&own, "a", input).await
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    backend.stop_all();
    assert_eq!(stopped.await.unwrap().error().0, "agent_ended");
    assert_eq!(spawner.started.lock().unwrap().len(), 1);
    backend.close(&handle("a"), CloseReason::Requested).await.unwrap();
    backend.shutdown().await;
}
