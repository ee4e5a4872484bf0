//! How many agents run at once, and what becomes of one that ends when it should not.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::{Berths, CliBackend, IDLE, Spawner};
use tribune_runtime::{AgentRuntime as _, CloseReason, EventKind, Leave, TurnInput};

use super::fake_agent::{Part, Stage, Troupe, profile};
use super::{Court, Heard, handle, heard_of, input, turn, turn_until};

/// How an agent is ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// When somebody says so, whatever it is at.
    WhenTold,
    /// When it is told its second prompt, before it says a word.
    AtPrompt,
    /// The same, behind a word.
    InTurn,
}

/// Answers prompts, and asks leave to run `command` first, if there is one. Says how it was started.
async fn answers(mut stage: Stage, command: Option<&'static str>, death: Option<Death>) {
    let (mut began, mut prompts) = ("", 0);
    loop {
        let message = stage.next().await;
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
                    stage.say(&ask).await;
                    // The answer, or the end of the turn.
                    stage.next().await;
                }
                let chunk = json!({ "type": "text", "text": began });
                let update = json!({ "sessionUpdate": "agent_message_chunk", "content": chunk });
                let params = json!({ "sessionId": "s1", "update": update });
                stage.say(&json!({ "method": "session/update", "params": params })).await;
                if death == Some(Death::InTurn) && prompts == 2 {
                    return;
                }
                json!({ "stopReason": "end_turn" })
            }
            Some(_) => json!({}),
            None if message.is_null() => return,
            None => continue,
        };
        stage.say(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    }
}

fn answering() -> Part {
    Box::new(|stage| Box::pin(answers(stage, None, None)))
}

/// Asks about a command that nobody decides.
fn waiting() -> Part {
    Box::new(|stage| Box::pin(answers(stage, Some("wait"), None)))
}

fn mortal(death: Death, told: CancellationToken) -> Part {
    Box::new(move |stage| {
        Box::pin(async move {
            tokio::select! {
                () = answers(stage, None, Some(death)) => {}
                () = told.cancelled() => {}
            }
        })
    })
}

fn house(parts: Vec<Part>, most: usize) -> (Arc<Troupe>, CliBackend) {
    let troupe = Arc::new(Troupe::new(profile("acp"), parts));
    let spawner = Arc::clone(&troupe) as Arc<dyn Spawner>;
    (troupe, CliBackend::acp(spawner, IDLE, &Berths::new(most)))
}

fn running(troupe: &Troupe) -> usize {
    troupe.started.lock().unwrap().len() - troupe.ends.lock().unwrap().len()
}

async fn said(backend: &CliBackend, peer: &str) -> String {
    let heard = turn(backend, peer, &Court::strict()).await;
    assert_eq!(heard.error, None, "{peer}");
    heard.text()
}

#[tokio::test(start_paused = true)]
async fn where_there_is_no_room_the_longest_idle_makes_it_and_is_taken_up_later() {
    let (troupe, backend) = house((0..5).map(|_| answering()).collect(), 2);
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
        assert_eq!(troupe.started.lock().unwrap().len(), starts, "{peer}");
        assert_eq!(running(&troupe), starts.min(2), "{peer}");
    }
    backend.leave().await;
    assert_eq!(running(&troupe), 0);
}

/// Begins a turn and waits until its agent asked something.
async fn asks(
    backend: &CliBackend,
    peer: &'static str,
    court: &Arc<Court>,
) -> (CancellationToken, tokio::task::JoinHandle<Heard>) {
    let (cancel, asked) = (CancellationToken::new(), court.asked().len());
    let (own, told, court) = (backend.clone(), cancel.clone(), Arc::clone(court));
    let asking = Arc::clone(&court);
    let running = tokio::spawn(async move { turn_until(&own, peer, &asking, told).await });
    while court.asked().len() == asked {
        tokio::task::yield_now().await;
    }
    (cancel, running)
}

#[tokio::test(start_paused = true)]
async fn where_all_are_at_work_whoever_comes_waits_in_order_and_is_told() {
    let (troupe, backend) = house(vec![waiting(), waiting(), answering(), answering()], 2);
    let court = Court::with(|_| Leave::Given);
    let began = tokio::time::Instant::now();
    let (end_a, a) = asks(&backend, "a", &court).await;
    let (end_b, b) = asks(&backend, "b", &court).await;
    let mut third = backend.run_turn(&handle("c"), input(&court));
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
    let (own, listening, law) = (backend.clone(), Arc::clone(&order), Arc::clone(&court));
    let fourth = tokio::spawn(async move {
        let heard = turn(&own, "d", &law).await;
        assert_eq!((heard.notices(), &heard.error), (vec!["waiting_for_room"], &None));
        listening.lock().unwrap().push("d");
    });
    // Whoever gives up waiting is in nobody's way.
    let gone = CancellationToken::new();
    let (own, law, cancel) = (backend.clone(), Arc::clone(&court), gone.clone());
    let fifth = tokio::spawn(async move { turn_until(&own, "e", &law, cancel).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    gone.cancel();
    assert_eq!(fifth.await.unwrap().error, None);
    assert_eq!((running(&troupe), order.lock().unwrap().len()), (2, 0));
    end_a.cancel();
    a.await.unwrap();
    third.await.unwrap();
    fourth.await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["c", "d"]);
    assert_eq!(running(&troupe), 2, "`b` and `d`");
    assert!(began.elapsed() < IDLE, "whoever comes to rest makes room, and not the clock");
    end_b.cancel();
    b.await.unwrap();
    backend.leave().await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_does_not_keep_the_daemon() {
    let (_troupe, backend) = house(vec![waiting()], 1);
    let court = Court::with(|_| Leave::Given);
    let (end, busy) = asks(&backend, "a", &court).await;
    let (own, law) = (backend.clone(), Arc::clone(&court));
    let waits = tokio::spawn(async move { turn(&own, "b", &law).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    backend.leave().await;
    assert_eq!(waits.await.unwrap().error().0, "draining");
    end.cancel();
    busy.await.unwrap();
}

/// The agent is killed between two turns, at every moment before and while its end is noticed.
#[tokio::test]
async fn an_agent_that_was_killed_between_two_turns_is_started_anew_whenever_that_was() {
    for moment in 0..200 {
        let told = CancellationToken::new();
        let (troupe, backend) = house(vec![mortal(Death::WhenTold, told.clone()), answering()], 2);
        assert_eq!(said(&backend, "a").await, "new");
        told.cancel();
        for _ in 0..moment % 50 {
            tokio::task::yield_now().await;
        }
        let heard = turn(&backend, "a", &Court::strict()).await;
        assert_eq!((heard.text().as_str(), &heard.error), ("taken up", &None), "moment {moment}");
        assert_eq!(troupe.started.lock().unwrap().len(), 2);
        backend.leave().await;
        assert_eq!(running(&troupe), 0);
    }
}

/// It ends while a turn is said to it: before its first word nothing was lost, behind one the turn is.
#[tokio::test]
async fn an_agent_that_dies_without_a_word_is_asked_again_and_one_that_spoke_is_not() {
    for (death, error) in [(Death::AtPrompt, None), (Death::InTurn, Some("agent_ended"))] {
        let mortal = || mortal(death, CancellationToken::new());
        let (troupe, backend) = house(vec![mortal(), answering()], 2);
        assert_eq!(said(&backend, "a").await, "new");
        let heard = turn(&backend, "a", &Court::strict()).await;
        assert_eq!(heard.error.as_ref().map(|error| error.code.as_str()), error, "{death:?}");
        assert_eq!(said(&backend, "a").await, "taken up", "{death:?}");
        assert_eq!(troupe.started.lock().unwrap().len(), 2, "{death:?}");
        backend.leave().await;
    }
}

/// One that always dies is not started for ever.
#[tokio::test]
async fn an_agent_that_dies_at_each_prompt_is_started_once_for_a_turn() {
    let dies = || -> Part {
        Box::new(|mut stage| {
            Box::pin(async move {
                for result in [json!({ "protocolVersion": 1 }), json!({ "sessionId": "s1" })] {
                    let id = stage.next().await["id"].clone();
                    stage.say(&json!({ "id": id, "result": result })).await;
                }
                stage.next().await;
            })
        })
    };
    let (troupe, backend) = house(vec![dies(), dies()], 2);
    for starts in 1..=2 {
        let heard = turn(&backend, "a", &Court::strict()).await;
        assert_eq!((heard.error().0, heard.text().as_str()), ("agent_ended", ""));
        assert_eq!(troupe.started.lock().unwrap().len(), starts);
    }
    backend.leave().await;
}

/// What was stopped on purpose stays stopped, though the agent had not said a word.
#[tokio::test]
async fn l8_a_stop_of_everything_starts_nobody_anew() {
    let silent: Part = Box::new(|mut stage| {
        Box::pin(async move {
            for result in [
                json!({ "protocolVersion": 1 }),
                json!({ "sessionId": "s1" }),
                json!({ "stopReason": "end_turn" }),
            ] {
                let id = stage.next().await["id"].clone();
                stage.say(&json!({ "id": id, "result": result })).await;
            }
            stage.linger().await;
        })
    });
    let (troupe, backend) = house(vec![silent], 2);
    said(&backend, "a").await;
    let own = backend.clone();
    let stopped = tokio::spawn(async move {
        let input = TurnInput { ..input(&Court::strict()) };
        heard_of(&own, "a", input).await
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    backend.stop_all();
    assert_eq!(stopped.await.unwrap().error().0, "agent_ended");
    assert_eq!(troupe.started.lock().unwrap().len(), 1);
    backend.close(&handle("a"), CloseReason::Requested).await.unwrap();
    backend.leave().await;
}
