//! A scripted Claude Code: its messages, requests and calls, and what the turn makes of them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::{CliBackend, McpCallChannel, ProcessLimit, Spawner};
use tribune_runtime::{EventKind, PermissionOutcome, StopReason};

use super::fake_agent::{AgentPipes, AgentScript, FakeSpawner, profile};
use super::{TestToolbox, TurnLog, turn, turn_cancelled_by};

const IDLE: Duration = Duration::from_secs(600);

/// A script that begins with the handshake.
macro_rules! part {
    ($pipes:ident => $play:block) => {{
        let part: AgentScript = Box::new(move |mut $pipes| {
            Box::pin(async move {
                first_words(&mut $pipes).await;
                $play
            })
        });
        part
    }};
}

async fn first_words(pipes: &mut AgentPipes) {
    let hello = pipes.next().await;
    assert_eq!(hello["request"]["subtype"], "initialize");
    let hook = &hello["request"]["hooks"]["PreToolUse"][0];
    assert!(hook["matcher"].is_null() && hook["timeout"].as_u64() > Some(86_400), "{hook}");
    answer(pipes, &hello, &json!({ "commands": [] })).await;
}

async fn answer(pipes: &mut AgentPipes, asked: &Value, with: &Value) {
    let response = json!({ "subtype": "success", "request_id": asked["request_id"], "response": with });
    pipes.say(&json!({ "type": "control_response", "response": response })).await;
}

/// Waits for the user's message.
async fn prompted(pipes: &mut AgentPipes) -> String {
    let said = pipes.next().await;
    assert_eq!(said["type"], "user", "{said}");
    said["message"]["content"][0]["text"].as_str().unwrap().to_owned()
}

fn assistant(id: &str, block: &Value) -> Value {
    json!({ "type": "assistant", "session_id": "c-1", "parent_tool_use_id": null, "message": { "id": id, "content": [block] } })
}

fn tool_use(id: &str, tool: &str, input: &Value) -> Value {
    assistant("m", &json!({ "type": "tool_use", "id": id, "name": tool, "input": input }))
}

fn result_of(id: &str, is_error: bool, words: &str) -> Value {
    let block = json!({ "type": "tool_result", "tool_use_id": id, "is_error": is_error, "content": words });
    json!({ "type": "user", "session_id": "c-1", "message": { "role": "user", "content": [block] } })
}

fn over() -> Value {
    json!({ "type": "result", "subtype": "success", "is_error": false, "stop_reason": "end_turn", "session_id": "c-1",
            "usage": { "input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 7 }, "total_cost_usd": 0.5 })
}

/// Asks in one of the two ways. Returns the answer.
async fn asks(pipes: &mut AgentPipes, way: &str, id: &str, tool: &str, input: &Value) -> Value {
    question(pipes, way, id, tool, input).await;
    let answer = pipes.next().await;
    assert_eq!(answer["response"]["request_id"], format!("q-{way}-{id}"), "{answer}");
    answer["response"]["response"].clone()
}

async fn question(pipes: &mut AgentPipes, way: &str, id: &str, tool: &str, input: &Value) {
    let request = match way {
        "hook" => json!({ "subtype": "hook_callback", "callback_id": "tribune", "tool_use_id": id,
                          "input": { "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input, "tool_use_id": id } }),
        _ => json!({ "subtype": "can_use_tool", "tool_name": tool, "input": input, "tool_use_id": id }),
    };
    pipes
        .say(&json!({ "type": "control_request", "request_id": format!("q-{way}-{id}"), "request": request }))
        .await;
}

fn decision(answer: &Value) -> &str {
    answer["hookSpecificOutput"]["permissionDecision"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

fn fake_spawner(parts: Vec<AgentScript>) -> Arc<FakeSpawner> {
    Arc::new(FakeSpawner::new(profile("claude-stream-json"), parts))
}

fn backend(spawner: &Arc<FakeSpawner>) -> CliBackend {
    CliBackend::claude_code(Arc::clone(spawner) as Arc<dyn Spawner>, IDLE, &ProcessLimit::new(32))
}

/// Plays one script for one turn.
async fn played(part: AgentScript, toolbox: &Arc<TestToolbox>) -> TurnLog {
    turn(&backend(&fake_spawner(vec![part])), "a", toolbox).await
}

fn stopped(log: &TurnLog) -> StopReason {
    match log.events.last() {
        Some(EventKind::Done { stop_reason }) => *stop_reason,
        _ => panic!("{log:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn text_arrives_once_and_the_agent_is_kept_between_turns() {
    let part = part!(pipes => {
        for _ in 0..2 {
            assert_eq!(prompted(&mut pipes).await, "hello");
            let event = |event: Value| json!({ "type": "stream_event", "event": event, "parent_tool_use_id": null });
            pipes.say(&json!({ "type": "system", "subtype": "init", "session_id": "c-1" })).await;
            pipes.say(&event(json!({ "type": "message_start", "message": { "id": "m1" } }))).await;
            let thought = json!({ "type": "thinking_delta", "thinking": "hm" });
            pipes.say(&event(json!({ "type": "content_block_delta", "delta": thought }))).await;
            for word in ["good ", "day"] {
                let delta = json!({ "type": "text_delta", "text": word });
                pipes.say(&event(json!({ "type": "content_block_delta", "delta": delta }))).await;
            }
            pipes.say(&assistant("m1", &json!({ "type": "thinking", "thinking": "hm" }))).await;
            pipes.say(&assistant("m1", &json!({ "type": "text", "text": "good day" }))).await;
            // A sub-agent's message is not its own.
            let mut helper = assistant("m9", &json!({ "type": "text", "text": "psst" }));
            helper["parent_tool_use_id"] = json!("t");
            pipes.say(&helper).await;
            pipes.say(&json!({ "type": "weather", "sun": 1 })).await;
            pipes.say(&json!({ "type": "system", "subtype": "api_retry" })).await;
            pipes.say(&over()).await;
        }
        pipes.wait_for_close().await;
    });
    let spawner = fake_spawner(vec![part]);
    let backend = backend(&spawner);
    for _ in 0..2 {
        let log = turn(&backend, "a", &TestToolbox::strict()).await;
        assert_eq!((log.text().as_str(), stopped(&log)), ("good day", StopReason::EndTurn), "{log:?}");
        let thoughts = EventKind::ReasoningDelta { text: "hm".into() };
        assert_eq!(log.events.iter().filter(|event| **event == thoughts).count(), 1);
        let usage = EventKind::UsageUpdate { input_tokens: 15, output_tokens: 7 };
        assert!(log.events.contains(&usage), "{log:?}");
        let handed_on: Vec<&str> = log
            .events
            .iter()
            .filter_map(|event| match event {
                EventKind::AgentUpdate { kind, .. } => Some(kind.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(handed_on, ["weather", "system/api_retry", "result"]);
    }
    assert_eq!(*spawner.started.lock().unwrap(), [None]);
    assert_eq!(spawner.remembered.lock().unwrap().as_deref(), Some("c-1"));
    backend.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn both_ways_of_asking_are_one_permission_request() {
    let input = json!({ "command": "ls" });
    let part = part!(pipes => {
        prompted(&mut pipes).await;
        pipes.say(&tool_use("t", "Bash", &input)).await;
        assert_eq!(decision(&asks(&mut pipes, "hook", "t", "Bash", &input).await), "allow");
        let permission = asks(&mut pipes, "permission", "t", "Bash", &input).await;
        assert_eq!(permission, json!({ "behavior": "allow", "updatedInput": input }));
        pipes.say(&result_of("t", false, "notes.txt")).await;
        // The same id again is another call, and another permission request.
        assert_eq!(decision(&asks(&mut pipes, "hook", "t", "Bash", &input).await), "allow");
        pipes.say(&result_of("t", false, "again")).await;
        pipes.say(&over()).await;
    });
    let toolbox = TestToolbox::after_asking();
    let log = played(part, &toolbox).await;
    assert_eq!(stopped(&log), StopReason::EndTurn, "{log:?}");
    let asked = |id: &str| (id.to_owned(), "exec".to_owned(), "ls".to_owned());
    assert_eq!(toolbox.asked(), [asked("t"), asked("t.2")]);
    let reported: Vec<_> =
        toolbox.reported().into_iter().map(|(id, outcome)| (id, outcome.content)).collect();
    assert_eq!(reported, [("t".to_owned(), "notes.txt".to_owned()), ("t.2".to_owned(), "again".to_owned())]);
}

/// The second way of asking comes while a person decides about the first.
#[tokio::test(start_paused = true)]
async fn a_pending_request_is_answered_in_every_way_of_asking() {
    let input = json!({ "file_path": "/workspace/a", "content": "x" });
    let part = part!(pipes => {
        prompted(&mut pipes).await;
        question(&mut pipes, "hook", "t", "Write", &input).await;
        question(&mut pipes, "permission", "t", "Write", &input).await;
        // Another input is another request, whatever its id.
        let other = json!({ "file_path": "/workspace/b", "content": "x" });
        question(&mut pipes, "permission", "t", "Write", &other).await;
        let mut answers = Vec::new();
        for _ in 0..3 {
            answers.push(pipes.next().await["response"]["response"].clone());
        }
        let allowed = |answer: &&Value| answer["behavior"] == "allow" || answer["hookSpecificOutput"]["permissionDecision"] == "allow";
        assert_eq!(answers.iter().filter(allowed).count(), 2, "{answers:?}");
        pipes.say(&over()).await;
    });
    let toolbox = TestToolbox::with(|call| match call.call.input["path"].as_str() {
        Some("a") => PermissionOutcome::Granted,
        _ => PermissionOutcome::Denied("not that".to_owned()),
    });
    let log = played(part, &toolbox).await;
    assert_eq!(stopped(&log), StopReason::EndTurn, "{log:?}");
    assert_eq!(toolbox.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn l1_a_denial_reaches_the_agent_with_its_reason() {
    let input = json!({ "file_path": "/workspace/private.txt" });
    let part = part!(pipes => {
        prompted(&mut pipes).await;
        pipes.say(&tool_use("t", "Read", &input)).await;
        let denied = asks(&mut pipes, "hook", "t", "Read", &input).await;
        assert_eq!(decision(&denied), "deny");
        assert_eq!(denied["hookSpecificOutput"]["permissionDecisionReason"], "the law says no");
        let mut kept_back = result_of("t", true, "the law says no");
        kept_back["tool_result_meta"] = json!([{ "id": "t", "non_execution_kind": "permission-rule" }]);
        pipes.say(&kept_back).await;
        // There is no such tool, so it did not ask, and nothing was executed.
        pipes.say(&tool_use("u", "Nonesuch", &json!({}))).await;
        pipes.say(&result_of("u", true, "<tool_use_error>no such tool</tool_use_error>")).await;
        let refused = asks(&mut pipes, "permission", "v", "Bash", &json!({ "command": "ls" })).await;
        assert_eq!(refused, json!({ "behavior": "deny", "message": "the law says no" }));
        // A request that is not about a call.
        let odd = json!({ "type": "control_request", "request_id": "odd", "request": { "subtype": "elicitation" } });
        pipes.say(&odd).await;
        assert_eq!(pipes.next().await["response"]["subtype"], "error");
        pipes.say(&over()).await;
    });
    let log = played(part, &TestToolbox::strict()).await;
    assert_eq!((stopped(&log), log.is_ungoverned()), (StopReason::EndTurn, false), "{log:?}");
}

/// A call without permission ends the turn.
#[tokio::test(start_paused = true)]
async fn l1_a_call_without_permission_is_ungoverned() {
    let (ls, rm) = (json!({ "command": "ls" }), json!({ "command": "rm -rf src" }));
    let cases: Vec<(&str, Vec<Value>)> = vec![
        ("never asked", vec![tool_use("t", "Bash", &rm), result_of("t", false, "gone")]),
        (
            "never asked, and it went wrong",
            vec![tool_use("t", "Bash", &rm), result_of("t", true, "Exit code 1")],
        ),
        ("never told how it ended", vec![tool_use("t", "Bash", &rm), over()]),
        ("a result of nothing", vec![result_of("t", false, "gone")]),
        (
            "something else than was allowed",
            vec![json!({ "ask": ls }), tool_use("a", "Bash", &rm), result_of("a", false, "gone")],
        ),
        (
            "twice under one permission",
            vec![
                json!({ "ask": ls }),
                result_of("a", false, "fine"),
                tool_use("a", "Bash", &ls),
                result_of("a", false, "again"),
            ],
        ),
        (
            "something else under its old id",
            vec![
                json!({ "ask": ls }),
                result_of("a", false, "fine"),
                tool_use("a", "Bash", &rm),
                result_of("a", false, "gone"),
            ],
        ),
    ];
    for (what, lines) in cases {
        let part = part!(pipes => {
            prompted(&mut pipes).await;
            for line in lines {
                if line.get("ask").is_some() {
                    pipes.say(&tool_use("a", "Bash", &line["ask"])).await;
                    assert_eq!(decision(&asks(&mut pipes, "hook", "a", "Bash", &line["ask"]).await), "allow");
                } else {
                    pipes.say(&line).await;
                }
            }
            pipes.wait_for_close().await;
        });
        let log = played(part, &TestToolbox::after_asking()).await;
        assert!(log.is_ungoverned(), "{what}: {log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn l1_a_call_against_the_law_is_ungoverned() {
    let input = json!({ "command": "rm -rf src" });
    let part = part!(pipes => {
        prompted(&mut pipes).await;
        assert_eq!(decision(&asks(&mut pipes, "hook", "t", "Bash", &input).await), "deny");
        pipes.say(&result_of("t", true, "refused")).await;
        pipes.say(&result_of("t", false, "gone all the same")).await;
        pipes.wait_for_close().await;
    });
    let log = played(part, &TestToolbox::strict()).await;
    assert!(log.is_ungoverned(), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn an_allowed_call_may_be_reported_afterwards() {
    let part = part!(pipes => {
        prompted(&mut pipes).await;
        pipes.say(&tool_use("t", "Read", &json!({ "file_path": "/workspace/notes.txt" }))).await;
        pipes.say(&result_of("t", false, "notes")).await;
        pipes.say(&over()).await;
    });
    let toolbox = TestToolbox::with(|_| PermissionOutcome::Granted);
    let log = played(part, &toolbox).await;
    assert_eq!((stopped(&log), log.is_ungoverned()), (StopReason::EndTurn, false), "{log:?}");
    assert_eq!(toolbox.asked(), [("t".to_owned(), "read".to_owned(), "notes.txt".to_owned())]);
    assert_eq!(toolbox.reported().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn between_turns_requests_are_refused_and_work_is_a_violation() {
    let input = json!({ "command": "ls" });
    for does_it in [false, true] {
        let input = input.clone();
        let part = part!(pipes => {
            prompted(&mut pipes).await;
            pipes.say(&over()).await;
            let refused = asks(&mut pipes, "hook", "t", "Bash", &input).await;
            assert_eq!(decision(&refused), "deny");
            if does_it {
                pipes.say(&result_of("t", false, "done")).await;
            }
            let odd = json!({ "type": "control_request", "request_id": "odd", "request": { "subtype": "x" } });
            pipes.say(&odd).await;
            pipes.next().await;
            prompted(&mut pipes).await;
            pipes.say(&over()).await;
            pipes.wait_for_close().await;
        });
        let spawner = fake_spawner(vec![part]);
        let backend = backend(&spawner);
        let toolbox = TestToolbox::with(|_| PermissionOutcome::Granted);
        assert_eq!(stopped(&turn(&backend, "a", &toolbox).await), StopReason::EndTurn);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = turn(&backend, "a", &toolbox).await;
        assert_eq!(after.is_ungoverned(), does_it, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn l8_a_cancelled_turn_is_interrupted_and_the_next_runs() {
    let cancel = CancellationToken::new();
    let inside = cancel.clone();
    let part = part!(pipes => {
        prompted(&mut pipes).await;
        question(&mut pipes, "hook", "t", "Bash", &json!({ "command": "wait" })).await;
        inside.cancel();
        let interrupt = pipes.next().await;
        assert_eq!(interrupt["request"]["subtype"], "interrupt");
        let answered = pipes.next().await;
        assert_eq!(decision(&answered["response"]["response"]), "deny");
        pipes.say(&json!({ "type": "control_cancel_request", "request_id": "q-hook-t" })).await;
        answer(&mut pipes, &interrupt, &json!({ "still_queued": [] })).await;
        let late = asks(&mut pipes, "hook", "u", "Bash", &json!({ "command": "ls" })).await;
        assert_eq!(decision(&late), "deny", "what is asked after that is refused");
        pipes.say(&result_of("t", true, "interrupted")).await;
        pipes.say(&json!({ "type": "result", "subtype": "error_during_execution", "is_error": true })).await;
        prompted(&mut pipes).await;
        pipes.say(&over()).await;
        pipes.wait_for_close().await;
    });
    let spawner = fake_spawner(vec![part]);
    let backend = backend(&spawner);
    let log = turn_cancelled_by(&backend, "a", &TestToolbox::after_asking(), cancel).await;
    assert_eq!(stopped(&log), StopReason::Cancelled, "{log:?}");
    assert_eq!(stopped(&turn(&backend, "a", &TestToolbox::strict()).await), StopReason::EndTurn);
    assert_eq!(spawner.started.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_resumed_or_the_loss_is_a_notice() {
    let says = |word: &'static str| {
        part!(pipes => {
            prompted(&mut pipes).await;
            pipes.say(&assistant("m", &json!({ "type": "text", "text": word }))).await;
            pipes.say(&over()).await;
        })
    };
    let refuses: AgentScript = Box::new(|mut pipes| {
        Box::pin(async move {
            pipes.next().await;
            let errors = json!(["No conversation found"]);
            pipes
                .say(&json!({ "type": "result", "subtype": "error_during_execution", "errors": errors }))
                .await;
        })
    });
    let breaks: AgentScript = Box::new(|mut pipes| Box::pin(async move { drop(pipes.next().await) }));
    let spawner = fake_spawner(vec![says("one"), says("two"), breaks, refuses, says("three")]);
    let backend = backend(&spawner);
    for word in ["one", "two"] {
        assert_eq!(turn(&backend, "a", &TestToolbox::strict()).await.text(), word);
        // Until its end is noticed.
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let broken = turn(&backend, "a", &TestToolbox::strict()).await;
    assert_eq!(broken.error().0, "agent_ended", "one that breaks loses nothing");
    let lost = turn(&backend, "a", &TestToolbox::strict()).await;
    assert_eq!(lost.text(), "three");
    let is_notice =
        |event: &EventKind| matches!(event, EventKind::Notice { code, .. } if code == "context_lost");
    assert!(lost.events.iter().any(is_notice), "{lost:?}");
    let known = Some("c-1".to_owned());
    assert_eq!(
        *spawner.started.lock().unwrap(),
        [None, known.clone(), known.clone(), known, None],
        "started with what was said before, and then without"
    );
}

/// A conversation id that would be an option of its next start is not kept.
#[tokio::test(start_paused = true)]
async fn l3_a_conversation_id_is_never_an_option() {
    let part = part!(pipes => {
        prompted(&mut pipes).await;
        let mut said = assistant("m", &json!({ "type": "text", "text": "x" }));
        said["session_id"] = json!("--dangerously-skip-permissions");
        pipes.say(&said).await;
        pipes.say(&over()).await;
    });
    let spawner = fake_spawner(vec![part]);
    turn(&backend(&spawner), "a", &TestToolbox::strict()).await;
    assert_eq!(*spawner.remembered.lock().unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_protocol_violation_ends_the_turn_with_one_sentence() {
    let stray =
        json!({ "type": "control_response", "response": { "subtype": "success", "request_id": "4711" } });
    let cases: Vec<(&str, String, &str, &str)> = vec![
        ("garbage", "%%%\n".repeat(100), "agent_ended", "it writes what is no stream-json"),
        ("a line without an end", "x".repeat(17 << 20), "agent_ended", "it wrote a line of more than"),
        ("a wrong answer", format!("{stray}\n"), "agent_ended", "a request that was not made"),
        (
            "a call without an id",
            format!("{}\n", tool_use("", "Bash", &json!({ "command": "ls" }))),
            "agent_protocol",
            "a call without an id",
        ),
        (
            "a failure",
            format!(
                "{}\n",
                json!({ "type": "result", "subtype": "success", "is_error": true, "result": "API Error: 500" })
            ),
            "agent_failed",
            "API Error: 500",
        ),
    ];
    for (what, text, code, sentence) in cases {
        let part = part!(pipes => {
            prompted(&mut pipes).await;
            pipes.write(&text).await;
            pipes.wait_for_close().await;
        });
        let log = played(part, &TestToolbox::strict()).await;
        let (found, message) = log.error();
        assert_eq!(found, code, "{what}: {message}");
        assert!(message.contains(sentence), "{what}: {message}");
    }
    let part = part!(pipes => {
        prompted(&mut pipes).await;
        pipes.say(&assistant("m", &json!({ "type": "text", "text": "so " }))).await;
    });
    let log = played(part, &TestToolbox::strict()).await;
    assert_eq!((log.text().as_str(), log.error().0), ("so ", "agent_ended"));
}

/// It tolerates late and double answers, lines of another kind, and more requests than may wait.
#[tokio::test(start_paused = true)]
async fn harmless_violations_are_tolerated() {
    let part: AgentScript = Box::new(|mut pipes| {
        Box::pin(async move {
            let hello = pipes.next().await;
            pipes.write("Warning: something\n\n[]\n{\"type\":\"keep_alive\"}\n").await;
            answer(&mut pipes, &hello, &json!({})).await;
            answer(&mut pipes, &hello, &json!({})).await;
            prompted(&mut pipes).await;
            let wait = json!({ "command": "wait" });
            for n in 0..64 {
                question(&mut pipes, "hook", &format!("t{n}"), "Bash", &wait).await;
            }
            let one_more = asks(&mut pipes, "hook", "more", "Bash", &wait).await;
            assert_eq!(decision(&one_more), "deny");
            pipes.say(&over()).await;
            for _ in 0..64 {
                let answered = pipes.next().await;
                assert_eq!(decision(&answered["response"]["response"]), "deny");
            }
        })
    });
    let log = played(part, &TestToolbox::after_asking()).await;
    assert_eq!(stopped(&log), StopReason::EndTurn, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn the_profile_mode_is_set_or_no_turn_runs() {
    for (set, goes_on) in [("default", true), ("bypassPermissions", false)] {
        let part = part!(pipes => {
            let mode = pipes.next().await;
            assert_eq!((&mode["request"]["subtype"], &mode["request"]["mode"]), (&json!("set_permission_mode"), &json!("default")));
            answer(&mut pipes, &mode, &json!({ "mode": set })).await;
            if pipes.next().await["type"] == "user" {
                pipes.say(&over()).await;
            }
        });
        let mut profile = profile("claude-stream-json");
        profile["mode"] = json!("default");
        let spawner = Arc::new(FakeSpawner::new(profile, vec![part]));
        let log = turn(&backend(&spawner), "a", &TestToolbox::strict()).await;
        assert_eq!(log.error.is_none(), goes_on, "{log:?}");
    }
}

/// A tool of an MCP server that the host runs: asked about in two ways, decided once, executed by the host.
#[tokio::test(start_paused = true)]
async fn l1_an_mcp_call_is_decided_once_and_executed_by_the_host() {
    let (tool, input) = ("mcp__probe__add", json!({ "word": "one" }));
    let (hand, taken) = tokio::sync::oneshot::channel::<Arc<McpCallChannel>>();
    let part = part!(pipes => {
        let channel = taken.await.unwrap();
        prompted(&mut pipes).await;
        pipes.say(&tool_use("t", tool, &input)).await;
        assert_eq!(decision(&asks(&mut pipes, "hook", "t", tool, &input).await), "allow");
        let permission = asks(&mut pipes, "permission", "t", tool, &input).await;
        assert_eq!(permission["behavior"], "allow");
        let outcome = channel.call(tool.to_owned(), input.clone()).await;
        assert!(!outcome.is_error, "{outcome:?}");
        pipes.say(&result_of("t", false, "5")).await;
        // Another input was not asked about, and is a request of its own.
        let outcome = channel.call(tool.to_owned(), json!({ "word": "no" })).await;
        assert!(outcome.is_error, "{outcome:?}");
        // It reports a result of a call that was never made.
        pipes.say(&tool_use("u", tool, &input)).await;
        assert_eq!(decision(&asks(&mut pipes, "hook", "u", tool, &input).await), "allow");
        pipes.say(&result_of("u", false, "6")).await;
        pipes.say(&over()).await;
    });
    let mut profile = profile("claude-stream-json");
    profile["system"] = json!({ "servers.json": {} });
    profile["perServer"] = json!({ "servers.json": { "{server}": "{server_url}" } });
    let (spawner, channel) = FakeSpawner::new(profile, vec![part]).with_server();
    hand.send(channel).unwrap();
    let toolbox = TestToolbox::after_asking();
    let log = turn(&backend(&Arc::new(spawner)), "a", &toolbox).await;
    assert!(log.is_ungoverned() && log.notices().is_empty(), "{log:?}");
    let asked = |id: &str, tool: &str| (id.to_owned(), tool.to_owned(), "one".to_owned());
    // The last is the call that was reported as done, judged then: it was no MCP call.
    assert_eq!(toolbox.asked(), [asked("t", tool), asked("u", tool), asked("u.2", "cli.mcp__probe__add")]);
    let made = toolbox.made.lock().unwrap();
    let made: Vec<&str> = made.iter().map(tribune_runtime::HostExecutedCall::id).collect();
    assert_eq!(made, ["t", "tribune-served-1"]);
    assert_eq!((toolbox.unused(), toolbox.reported()), (vec!["u".to_owned()], Vec::new()));
}
