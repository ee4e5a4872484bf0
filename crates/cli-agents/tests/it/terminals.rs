//! Commands that the host runs for an agent: joined to its reports, watched, ended, and none left behind.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::{CliBackend, IDLE_TIMEOUT, ProcessLimit, Spawner};
use tribune_runtime::{EventKind, HostExecutedCall, TERMINAL_CREATED};

use super::acp_agent::AcpAgent;
use super::fake_agent::{AgentScript, FakeSpawner, profile};
use super::{TestToolbox, TurnLog, turn_cancelled_by};

impl AcpAgent {
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
    toolbox: &Arc<TestToolbox>,
    cancel: CancellationToken,
    part: impl FnOnce(AcpAgent) -> F + Send + 'static,
) -> TurnLog {
    let part: AgentScript = Box::new(|pipes| {
        Box::pin(async move {
            let (agent, first) = AcpAgent::begin(pipes, json!({})).await;
            assert_eq!(first[0]["params"]["clientCapabilities"]["terminal"], true);
            part(agent).await;
        })
    });
    let mut profile = profile("acp");
    profile["capabilities"] = json!({ "terminal": true });
    let spawner = Arc::new(FakeSpawner::new(profile, vec![part]));
    let backend = CliBackend::acp(spawner as Arc<dyn Spawner>, IDLE_TIMEOUT, &ProcessLimit::new(32));
    let log = turn_cancelled_by(&backend, "a", toolbox, cancel).await;
    backend.shutdown().await;
    log
}

fn command(call: &HostExecutedCall) -> (&str, &str) {
    match call {
        HostExecutedCall::Call(call) => (&call.id, call.input["command"].as_str().unwrap()),
        HostExecutedCall::Granted(id) => (id, "as allowed"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminal_shows_its_command_and_ends_it_on_request() {
    let toolbox = TestToolbox::strict();
    let log = play(&toolbox, CancellationToken::new(), |mut agent| async move {
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
    assert_eq!(log.error, None);
    let opened =
        |event: &&EventKind| matches!(event, EventKind::AgentUpdate { kind, .. } if kind == TERMINAL_CREATED);
    assert_eq!(log.events.iter().filter(opened).count(), 1);
    assert_eq!(
        toolbox.followed.lock().unwrap().iter().map(command).collect::<Vec<_>>(),
        [("tribune-callback-1", "run")]
    );
}

/// One decision about a command: under its permission, or as the call that reports it.
#[tokio::test(start_paused = true)]
async fn l1_a_command_is_joined_to_its_reports() {
    let toolbox = TestToolbox::after_asking();
    let log = play(&toolbox, CancellationToken::new(), |mut agent| async move {
        assert_eq!(agent.permission("asked", "one").await, "y");
        let one = agent.create("one").await.unwrap();
        let reported = |id: &str, command: &str| json!({ "toolCallId": id, "kind": "execute", "title": "Run", "status": "pending",
                                                     "rawInput": { "command": command } });
        agent.tell("tool_call", reported("told", "two")).await;
        let two = agent.create("two").await.unwrap();
        // Reported when it runs already, under an unknown name.
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
        // Reported when it is over.
        let four = agent.create("four").await.unwrap();
        agent.of("release", &four).await.unwrap();
        let content = json!([{ "type": "terminal", "terminalId": four }]);
        let update = json!({ "toolCallId": "late", "kind": "execute", "title": "Ran", "status": "completed", "content": content });
        agent.tell("tool_call", update).await;
        agent.end().await;
    })
    .await;
    assert!(log.error.is_none() && !log.is_ungoverned(), "{log:?}");
    let followed = toolbox.followed.lock().unwrap();
    let followed: Vec<_> = followed.iter().map(command).collect();
    assert_eq!(
        followed,
        [
            ("asked", "as allowed"),
            ("told", "two"),
            ("tribune-callback-1", "three"),
            ("tribune-callback-2", "four")
        ]
    );
    assert_eq!(toolbox.asked().len(), 1, "no call is asked about twice: {:?}", toolbox.asked());
    let reported: Vec<String> = toolbox.reported().into_iter().map(|(id, _)| id).collect();
    assert_eq!(reported, ["asked", "told", "tribune-callback-1", "tribune-callback-2"]);
}

/// A refused command that the agent runs all the same has no permission, whichever way it was refused.
#[tokio::test(start_paused = true)]
async fn l1_a_refused_command_reported_as_done_is_ungoverned() {
    let reported = |status: &str| json!({ "toolCallId": "t", "kind": "execute", "title": "x", "status": status, "rawInput": { "command": "no" } });
    let refused = play(&TestToolbox::after_asking(), CancellationToken::new(), move |mut agent| async move {
        agent.tell("tool_call", reported("pending")).await;
        assert_eq!(agent.create("no").await.unwrap_err(), "denied: the law says no");
        assert_eq!(agent.create("no").await.unwrap_err(), "denied: the law says no", "and stays so");
        agent.tell("tool_call_update", reported("completed")).await;
        agent.end().await;
    })
    .await;
    assert!(refused.is_ungoverned(), "{refused:?}");

    let reported = |status: &str| json!({ "toolCallId": "t", "kind": "execute", "title": "x", "status": status, "rawInput": { "command": "other" } });
    let toolbox = TestToolbox::after_asking();
    let another = play(&toolbox, CancellationToken::new(), move |mut agent| async move {
        let name = agent.create("harmless").await.unwrap();
        let mut update = reported("completed");
        update["content"] = json!([{ "type": "terminal", "terminalId": name }]);
        agent.tell("tool_call", update).await;
        agent.end().await;
    })
    .await;
    assert!(another.is_ungoverned(), "another command is no part of a terminal: {another:?}");

    // One terminal is one call.
    let reported = |id: &str| json!({ "toolCallId": id, "kind": "execute", "title": "x", "status": "completed", "rawInput": { "command": "run" } });
    let twice = play(&TestToolbox::after_asking(), CancellationToken::new(), move |mut agent| async move {
        let name = agent.create("run").await.unwrap();
        for id in ["first", "second"] {
            let mut update = reported(id);
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
    let toolbox = TestToolbox::strict();
    let log = play(&toolbox, CancellationToken::new(), |mut agent| async move {
        assert_eq!(agent.permission("r", "rm x").await, "n");
        assert_eq!(agent.create("rm x").await.unwrap_err(), "the law says no");
        let call = json!({ "toolCallId": "w", "kind": "execute", "rawInput": { "command": "wait" } });
        agent.send("session/request_permission", json!({ "toolCall": call, "options": [] })).await;
        let early = agent.create("wait").await.unwrap_err();
        assert!(early.contains("not decided yet"), "{early}");
        agent.end().await;
    })
    .await;
    assert_eq!(log.error, None);
    assert_eq!(toolbox.followed.lock().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn l9_open_terminals_are_bounded() {
    let toolbox = TestToolbox::strict();
    let log = play(&toolbox, CancellationToken::new(), |mut agent| async move {
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
            let message = agent.pipes.next().await;
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
    assert_eq!(log.error, None);
    let (followed, reported) = (toolbox.followed.lock().unwrap().len(), toolbox.reported().len());
    assert_eq!((followed, reported), (17, 17), "none is left behind");
}

/// Any end of a turn ends its commands and answers the requests that wait.
#[tokio::test(start_paused = true)]
async fn l8_nothing_outlives_its_turn() {
    let cancel = CancellationToken::new();
    let fired = cancel.clone();
    let toolbox = TestToolbox::strict();
    let log = play(&toolbox, cancel, |mut agent| async move {
        let name = agent.create("run").await.unwrap();
        let waiting = agent.send("terminal/wait_for_exit", json!({ "terminalId": name })).await;
        let parked = agent.send("terminal/create", json!({ "command": "wait" })).await;
        agent.of("output", &name).await.unwrap();
        fired.cancel();
        let first = agent.pipes.next().await;
        assert_eq!(first["method"], "session/cancel");
        let (mut ended, mut unstarted) = (Value::Null, Value::Null);
        for _ in 0..2 {
            let message = agent.pipes.next().await;
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
    assert_eq!((log.error, toolbox.reported().len()), (None, 1));

    // The turn ends, the agent exits, or it names another session.
    for how in ["ends", "dies", "strays"] {
        let toolbox = TestToolbox::strict();
        let log = play(&toolbox, CancellationToken::new(), move |mut agent| async move {
            let name = agent.create("run").await.unwrap();
            match how {
                "ends" => agent.end().await,
                "dies" => {}
                _ => {
                    let params = json!({ "sessionId": "s2", "terminalId": name });
                    let stray =
                        json!({ "jsonrpc": "2.0", "id": 1, "method": "terminal/output", "params": params });
                    agent.pipes.say(&stray).await;
                    agent.pipes.wait_for_close().await;
                }
            }
        })
        .await;
        // The host gives up a command of a turn that was stopped.
        let reported = toolbox.reported().len();
        assert_eq!((log.error.is_some(), reported), (how != "ends", usize::from(how != "strays")), "{how}");
    }
}

/// Without the capability in the profile there are no terminals.
#[tokio::test(start_paused = true)]
async fn terminals_are_not_offered_unless_the_profile_says_so() {
    let part: AgentScript = Box::new(|mut pipes| {
        Box::pin(async move {
            let hello = pipes.next().await;
            assert_eq!(hello["params"]["clientCapabilities"]["terminal"], false);
            let answer = json!({ "protocolVersion": 1, "agentCapabilities": {} });
            pipes.say(&json!({ "id": hello["id"], "result": answer })).await;
            let new = pipes.next().await;
            pipes.say(&json!({ "id": new["id"], "result": { "sessionId": "s1" } })).await;
            let prompt = pipes.next().await["id"].clone();
            let mut agent = AcpAgent::prompted(pipes, prompt);
            assert_eq!(agent.create("run").await.unwrap_err(), "this is not offered here");
            agent.end().await;
        })
    });
    let spawner = Arc::new(FakeSpawner::new(profile("acp"), vec![part]));
    let backend = CliBackend::acp(spawner as Arc<dyn Spawner>, IDLE_TIMEOUT, &ProcessLimit::new(32));
    let log = turn_cancelled_by(&backend, "a", &TestToolbox::strict(), CancellationToken::new()).await;
    assert_eq!(log.error, None);
    backend.shutdown().await;
}
