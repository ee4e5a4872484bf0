//! Commands that an agent has run by the house: joined to what it said before, watched, ended, and none left behind.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::{Berths, CliBackend, IDLE, Spawner};
use tribune_runtime::{Errand, EventKind, TERMINAL};

use super::acp_agent::Agent;
use super::fake_agent::{Part, Troupe, profile};
use super::{Court, Heard, turn_until};

impl Agent {
    async fn create(&mut self, command: &str) -> Result<String, String> {
        let created = self.ask("terminal/create", json!({ "command": command })).await?;
        Ok(created["terminalId"].as_str().unwrap().to_owned())
    }

    async fn of(&mut self, what: &str, terminal: &str) -> Result<Value, String> {
        self.ask(&format!("terminal/{what}"), json!({ "terminalId": terminal })).await
    }

    async fn permission(&mut self, call: &str, command: &str) -> Value {
        self.asks(json!({ "toolCallId": call, "kind": "execute", "title": command, "rawInput": { "command": command } }))
            .await
    }
}

/// Plays one turn of an agent that is offered terminals.
async fn play<F: Future<Output = ()> + Send + 'static>(
    court: &Arc<Court>,
    cancel: CancellationToken,
    part: impl FnOnce(Agent) -> F + Send + 'static,
) -> Heard {
    let part: Part = Box::new(|stage| {
        Box::pin(async move {
            let (agent, first) = Agent::begin(stage, json!({})).await;
            assert_eq!(first[0]["params"]["clientCapabilities"]["terminal"], true);
            part(agent).await;
        })
    });
    let mut profile = profile("acp");
    profile["capabilities"] = json!({ "terminal": true });
    let troupe = Arc::new(Troupe::new(profile, vec![part]));
    let backend = CliBackend::acp(troupe as Arc<dyn Spawner>, IDLE, &Berths::new(32));
    let heard = turn_until(&backend, "a", court, cancel).await;
    backend.leave().await;
    heard
}

fn command(errand: &Errand) -> (&str, &str) {
    match errand {
        Errand::Call(call) => (&call.id, call.input["command"].as_str().unwrap()),
        Errand::Allowed(id) => (id, "as allowed"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_is_watched_while_it_runs_and_ended_when_nobody_wants_it() {
    let court = Court::strict();
    let heard = play(&court, CancellationToken::new(), |mut agent| async move {
        let name = agent.create("run").await.unwrap();
        let output = agent.of("output", &name).await.unwrap();
        assert_eq!(output, json!({ "output": "hello", "truncated": false }));
        let waiting = agent.send("terminal/wait_for_exit", json!({ "terminalId": name })).await;
        let kill = agent.send("terminal/kill", json!({ "terminalId": name })).await;
        assert_eq!(agent.answer(waiting).await["result"], json!({ "exitCode": null, "signal": "SIGKILL" }));
        assert_eq!(agent.answer(kill).await["result"], json!({}));
        let output = agent.of("output", &name).await.unwrap();
        let exit = json!({ "exitCode": null, "signal": "SIGKILL" });
        assert_eq!(output, json!({ "output": "hello", "truncated": false, "exitStatus": exit }));
        assert_eq!(agent.of("kill", &name).await, Ok(json!({})), "one that is over is not ended again");
        assert_eq!(agent.of("release", &name).await, Ok(json!({})));
        for what in ["output", "wait_for_exit", "kill", "release"] {
            let unknown = agent.of(what, &name).await.unwrap_err();
            assert!(unknown.starts_with(&format!("there is no terminal `{name}`")), "{unknown}");
        }
        agent.end().await;
    })
    .await;
    assert_eq!(heard.error, None);
    let opened =
        |event: &&EventKind| matches!(event, EventKind::AgentUpdate { kind, .. } if kind == TERMINAL);
    assert_eq!(heard.events.iter().filter(opened).count(), 1);
    assert_eq!(
        court.followed.lock().unwrap().iter().map(command).collect::<Vec<_>>(),
        [("callback-1", "run")]
    );
}

/// One decision about a command: under the leave that it has, or as the call that tells of it.
#[tokio::test(start_paused = true)]
async fn l1_a_command_is_joined_to_what_was_said_of_it() {
    let court = Court::after_asking();
    let heard = play(&court, CancellationToken::new(), |mut agent| async move {
        assert_eq!(agent.permission("asked", "one").await, "y");
        let one = agent.create("one").await.unwrap();
        let told = |id: &str, command: &str| json!({ "toolCallId": id, "kind": "execute", "title": "Run", "status": "pending",
                                                     "rawInput": { "command": command } });
        agent.tell("tool_call", told("told", "two")).await;
        let two = agent.create("two").await.unwrap();
        // Told of when it runs already, in words that nobody here knows.
        let three = agent.create("three").await.unwrap();
        for (id, name) in [("asked", &one), ("told", &two), ("shown", &three)] {
            let content = json!([{ "type": "terminal", "terminalId": name }]);
            let update = json!({ "toolCallId": id, "kind": "execute", "title": "Running", "status": "in_progress", "content": content });
            agent.tell("tool_call_update", update).await;
        }
        for (id, name) in [("asked", &one), ("told", &two), ("shown", &three)] {
            agent.of("release", name).await.unwrap();
            agent.tell("tool_call_update", json!({ "toolCallId": id, "status": "completed" })).await;
        }
        // And one that is told of when it is long gone.
        let four = agent.create("four").await.unwrap();
        agent.of("release", &four).await.unwrap();
        let content = json!([{ "type": "terminal", "terminalId": four }]);
        let update = json!({ "toolCallId": "late", "kind": "execute", "title": "Ran", "status": "completed", "content": content });
        agent.tell("tool_call", update).await;
        agent.end().await;
    })
    .await;
    assert!(heard.error.is_none() && !heard.is_ungoverned(), "{heard:?}");
    let followed = court.followed.lock().unwrap();
    let followed: Vec<_> = followed.iter().map(command).collect();
    assert_eq!(
        followed,
        [("asked", "as allowed"), ("told", "two"), ("callback-1", "three"), ("callback-2", "four")]
    );
    assert_eq!(court.asked().len(), 1, "nobody is asked twice: {:?}", court.asked());
    let told: Vec<String> = court.told().into_iter().map(|(id, _)| id).collect();
    assert_eq!(told, ["asked", "told", "callback-1", "callback-2"]);
}

/// Whoever was refused and does it all the same has no leave for it, whichever way it was refused.
#[tokio::test(start_paused = true)]
async fn l1_what_was_not_run_and_is_told_as_done_is_ungoverned() {
    let told = |status: &str| json!({ "toolCallId": "t", "kind": "execute", "title": "x", "status": status, "rawInput": { "command": "no" } });
    let refused = play(&Court::after_asking(), CancellationToken::new(), move |mut agent| async move {
        agent.tell("tool_call", told("pending")).await;
        assert_eq!(agent.create("no").await.unwrap_err(), "denied: the law says no");
        assert_eq!(agent.create("no").await.unwrap_err(), "denied: the law says no", "and stays so");
        agent.tell("tool_call_update", told("completed")).await;
        agent.end().await;
    })
    .await;
    assert!(refused.is_ungoverned(), "{refused:?}");

    let told = |status: &str| json!({ "toolCallId": "t", "kind": "execute", "title": "x", "status": status, "rawInput": { "command": "other" } });
    let court = Court::after_asking();
    let another = play(&court, CancellationToken::new(), move |mut agent| async move {
        let name = agent.create("harmless").await.unwrap();
        let mut update = told("completed");
        update["content"] = json!([{ "type": "terminal", "terminalId": name }]);
        agent.tell("tool_call", update).await;
        agent.end().await;
    })
    .await;
    assert!(another.is_ungoverned(), "another command is no part of a terminal: {another:?}");

    // One terminal is one call.
    let told = |id: &str| json!({ "toolCallId": id, "kind": "execute", "title": "x", "status": "completed", "rawInput": { "command": "run" } });
    let twice = play(&Court::after_asking(), CancellationToken::new(), move |mut agent| async move {
        let name = agent.create("run").await.unwrap();
        for id in ["first", "second"] {
            let mut update = told(id);
            update["content"] = json!([{ "type": "terminal", "terminalId": name }]);
            agent.tell("tool_call", update).await;
        }
        agent.end().await;
    })
    .await;
    assert!(twice.is_ungoverned(), "{twice:?}");
}

#[tokio::test(start_paused = true)]
async fn l1_a_command_that_is_asked_about_waits_for_the_answer() {
    let court = Court::strict();
    let heard = play(&court, CancellationToken::new(), |mut agent| async move {
        assert_eq!(agent.permission("r", "rm x").await, "n");
        assert_eq!(agent.create("rm x").await.unwrap_err(), "the law says no");
        let call = json!({ "toolCallId": "w", "kind": "execute", "rawInput": { "command": "wait" } });
        agent.send("session/request_permission", json!({ "toolCall": call, "options": [] })).await;
        let early = agent.create("wait").await.unwrap_err();
        assert!(early.contains("not given yet"), "{early}");
        agent.end().await;
    })
    .await;
    assert_eq!(heard.error, None);
    assert_eq!(court.followed.lock().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn l9_so_many_terminals_and_no_more() {
    let court = Court::strict();
    let heard = play(&court, CancellationToken::new(), |mut agent| async move {
        let mut names = Vec::new();
        let full = loop {
            match agent.create("run").await {
                Ok(name) => names.push(name),
                Err(full) => break full,
            }
        };
        assert_eq!(names.len(), 16);
        assert!(full.contains("16 terminals are open"), "{full}");
        agent.of("kill", &names[0]).await.unwrap();
        assert!(agent.create("run").await.is_err(), "one that is over is still there");
        agent.of("release", &names[0]).await.unwrap();
        assert!(agent.create("run").await.is_ok());
        // Waiting is bounded too.
        let mut waits = 0;
        let refused = loop {
            let id = agent.send("terminal/wait_for_exit", json!({ "terminalId": names[1] })).await;
            let output = agent.send("terminal/output", json!({ "terminalId": names[1] })).await;
            let message = agent.stage.next().await;
            if message["id"] == id {
                agent.answer(output).await;
                break message;
            }
            assert_eq!(message["id"], output);
            waits += 1;
        };
        assert!(
            waits > 16 && refused["error"]["message"].as_str().unwrap().contains("too much"),
            "{refused}"
        );
        agent.end().await;
    })
    .await;
    assert_eq!(heard.error, None);
    let (followed, told) = (court.followed.lock().unwrap().len(), court.told().len());
    assert_eq!((followed, told), (17, 17), "none is left behind");
}

/// Whatever ends a turn ends its commands, and answers who waits.
#[tokio::test(start_paused = true)]
async fn l8_nothing_outlives_its_turn() {
    let cancel = CancellationToken::new();
    let fired = cancel.clone();
    let court = Court::strict();
    let heard = play(&court, cancel, |mut agent| async move {
        let name = agent.create("run").await.unwrap();
        let waiting = agent.send("terminal/wait_for_exit", json!({ "terminalId": name })).await;
        let parked = agent.send("terminal/create", json!({ "command": "wait" })).await;
        agent.of("output", &name).await.unwrap();
        fired.cancel();
        let first = agent.stage.next().await;
        assert_eq!(first["method"], "session/cancel");
        let (mut ended, mut unstarted) = (Value::Null, Value::Null);
        for _ in 0..2 {
            let message = agent.stage.next().await;
            match message["id"].as_u64() {
                Some(id) if id == waiting => ended = message,
                Some(id) if id == parked => unstarted = message,
                _ => panic!("{message}"),
            }
        }
        assert_eq!(ended["result"]["signal"], "SIGKILL");
        assert!(unstarted["error"]["message"].as_str().unwrap().contains("not started"), "{unstarted}");
        let late = agent.create("run").await.unwrap_err();
        assert!(late.contains("cancelled"), "{late}");
        agent.end().await;
    })
    .await;
    assert_eq!((heard.error, court.told().len()), (None, 1));

    // It ends by itself, dies, or speaks of a session that is not its own.
    for how in ["ends", "dies", "strays"] {
        let court = Court::strict();
        let heard = play(&court, CancellationToken::new(), move |mut agent| async move {
            let name = agent.create("run").await.unwrap();
            match how {
                "ends" => agent.end().await,
                "dies" => {}
                _ => {
                    let params = json!({ "sessionId": "s2", "terminalId": name });
                    let stray =
                        json!({ "jsonrpc": "2.0", "id": 1, "method": "terminal/output", "params": params });
                    agent.stage.say(&stray).await;
                    agent.stage.linger().await;
                }
            }
        })
        .await;
        // Of one that was stopped, whoever runs the turn writes it off.
        let told = court.told().len();
        assert_eq!((heard.error.is_some(), told), (how != "ends", usize::from(how != "strays")), "{how}");
    }
}

/// Without a word in the profile there are none.
#[tokio::test(start_paused = true)]
async fn terminals_are_not_offered_unless_the_profile_says_so() {
    let part: Part = Box::new(|mut stage| {
        Box::pin(async move {
            let hello = stage.next().await;
            assert_eq!(hello["params"]["clientCapabilities"]["terminal"], false);
            let answer = json!({ "protocolVersion": 1, "agentCapabilities": {} });
            stage.say(&json!({ "id": hello["id"], "result": answer })).await;
            let new = stage.next().await;
            stage.say(&json!({ "id": new["id"], "result": { "sessionId": "s1" } })).await;
            let prompt = stage.next().await["id"].clone();
            let mut agent = Agent::prompted(stage, prompt);
            assert_eq!(agent.create("run").await.unwrap_err(), "this is not offered here");
            agent.end().await;
        })
    });
    let troupe = Arc::new(Troupe::new(profile("acp"), vec![part]));
    let backend = CliBackend::acp(troupe as Arc<dyn Spawner>, IDLE, &Berths::new(32));
    let heard = turn_until(&backend, "a", &Court::strict(), CancellationToken::new()).await;
    assert_eq!(heard.error, None);
    backend.leave().await;
}
