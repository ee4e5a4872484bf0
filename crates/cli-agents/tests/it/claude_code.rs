//! Claude Code, played: what it says, asks and does, and what is made of that.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::{Berths, CliBackend, Hatch, Spawner};
use tribune_runtime::{EventKind, Leave, StopReason};

use super::fake_agent::{Part, Stage, Troupe, profile};
use super::{Court, Heard, turn, turn_until};

const IDLE: Duration = Duration::from_secs(600);

/// A part that begins with the first words and then goes on.
macro_rules! part {
    ($stage:ident => $play:block) => {{
        let part: Part = Box::new(move |mut $stage| {
            Box::pin(async move {
                first_words(&mut $stage).await;
                $play
            })
        });
        part
    }};
}

async fn first_words(stage: &mut Stage) {
    let hello = stage.next().await;
    assert_eq!(hello["request"]["subtype"], "initialize");
    let hook = &hello["request"]["hooks"]["PreToolUse"][0];
    assert!(hook["matcher"].is_null() && hook["timeout"].as_u64() > Some(86_400), "{hook}");
    answer(stage, &hello, &json!({ "commands": [] })).await;
}

async fn answer(stage: &mut Stage, asked: &Value, with: &Value) {
    let response = json!({ "subtype": "success", "request_id": asked["request_id"], "response": with });
    stage.say(&json!({ "type": "control_response", "response": response })).await;
}

/// Waits for what the user says.
async fn prompted(stage: &mut Stage) -> String {
    let said = stage.next().await;
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
async fn asks(stage: &mut Stage, way: &str, id: &str, tool: &str, input: &Value) -> Value {
    question(stage, way, id, tool, input).await;
    let answer = stage.next().await;
    assert_eq!(answer["response"]["request_id"], format!("q-{way}-{id}"), "{answer}");
    answer["response"]["response"].clone()
}

async fn question(stage: &mut Stage, way: &str, id: &str, tool: &str, input: &Value) {
    let request = match way {
        "hook" => json!({ "subtype": "hook_callback", "callback_id": "tribune", "tool_use_id": id,
                          "input": { "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input, "tool_use_id": id } }),
        _ => json!({ "subtype": "can_use_tool", "tool_name": tool, "input": input, "tool_use_id": id }),
    };
    stage
        .say(&json!({ "type": "control_request", "request_id": format!("q-{way}-{id}"), "request": request }))
        .await;
}

fn decision(answer: &Value) -> &str {
    answer["hookSpecificOutput"]["permissionDecision"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

fn troupe(parts: Vec<Part>) -> Arc<Troupe> {
    Arc::new(Troupe::new(profile("claude-stream-json"), parts))
}

fn backend(troupe: &Arc<Troupe>) -> CliBackend {
    CliBackend::claude_code(Arc::clone(troupe) as Arc<dyn Spawner>, IDLE, &Berths::new(32))
}

/// Plays one part for one turn.
async fn played(part: Part, court: &Arc<Court>) -> Heard {
    turn(&backend(&troupe(vec![part])), "a", court).await
}

fn stopped(heard: &Heard) -> StopReason {
    match heard.events.last() {
        Some(EventKind::Done { stop_reason }) => *stop_reason,
        _ => panic!("{heard:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_it_says_is_heard_once_and_it_is_kept_over_turns() {
    let part = part!(stage => {
        for _ in 0..2 {
            assert_eq!(prompted(&mut stage).await, "hello");
            let event = |event: Value| json!({ "type": "stream_event", "event": event, "parent_tool_use_id": null });
            stage.say(&json!({ "type": "system", "subtype": "init", "session_id": "c-1" })).await;
            stage.say(&event(json!({ "type": "message_start", "message": { "id": "m1" } }))).await;
            let thought = json!({ "type": "thinking_delta", "thinking": "hm" });
            stage.say(&event(json!({ "type": "content_block_delta", "delta": thought }))).await;
            for word in ["good ", "day"] {
                let delta = json!({ "type": "text_delta", "text": word });
                stage.say(&event(json!({ "type": "content_block_delta", "delta": delta }))).await;
            }
            stage.say(&assistant("m1", &json!({ "type": "thinking", "thinking": "hm" }))).await;
            stage.say(&assistant("m1", &json!({ "type": "text", "text": "good day" }))).await;
            // A helper of its own is not itself.
            let mut helper = assistant("m9", &json!({ "type": "text", "text": "psst" }));
            helper["parent_tool_use_id"] = json!("t");
            stage.say(&helper).await;
            stage.say(&json!({ "type": "weather", "sun": 1 })).await;
            stage.say(&json!({ "type": "system", "subtype": "api_retry" })).await;
            stage.say(&over()).await;
        }
        stage.linger().await;
    });
    let troupe = troupe(vec![part]);
    let backend = backend(&troupe);
    for _ in 0..2 {
        let heard = turn(&backend, "a", &Court::strict()).await;
        assert_eq!((heard.text().as_str(), stopped(&heard)), ("good day", StopReason::EndTurn), "{heard:?}");
        let thoughts = EventKind::ReasoningDelta { text: "hm".into() };
        assert_eq!(heard.events.iter().filter(|event| **event == thoughts).count(), 1);
        let usage = EventKind::UsageUpdate { input_tokens: 15, output_tokens: 7 };
        assert!(heard.events.contains(&usage), "{heard:?}");
        let handed_on: Vec<&str> = heard
            .events
            .iter()
            .filter_map(|event| match event {
                EventKind::AgentUpdate { kind, .. } => Some(kind.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(handed_on, ["weather", "system/api_retry", "result"]);
    }
    assert_eq!(*troupe.started.lock().unwrap(), [None]);
    assert_eq!(troupe.remembered.lock().unwrap().as_deref(), Some("c-1"));
    backend.leave().await;
}

#[tokio::test(start_paused = true)]
async fn both_questions_about_a_call_are_one() {
    let input = json!({ "command": "ls" });
    let part = part!(stage => {
        prompted(&mut stage).await;
        stage.say(&tool_use("t", "Bash", &input)).await;
        assert_eq!(decision(&asks(&mut stage, "hook", "t", "Bash", &input).await), "allow");
        let leave = asks(&mut stage, "leave", "t", "Bash", &input).await;
        assert_eq!(leave, json!({ "behavior": "allow", "updatedInput": input }));
        stage.say(&result_of("t", false, "notes.txt")).await;
        // The same again is another call, and another question.
        assert_eq!(decision(&asks(&mut stage, "hook", "t", "Bash", &input).await), "allow");
        stage.say(&result_of("t", false, "again")).await;
        stage.say(&over()).await;
    });
    let court = Court::after_asking();
    let heard = played(part, &court).await;
    assert_eq!(stopped(&heard), StopReason::EndTurn, "{heard:?}");
    let asked = |id: &str| (id.to_owned(), "exec".to_owned(), "ls".to_owned());
    assert_eq!(court.asked(), [asked("t"), asked("t.2")]);
    let told: Vec<_> = court.told().into_iter().map(|(id, outcome)| (id, outcome.content)).collect();
    assert_eq!(told, [("t".to_owned(), "notes.txt".to_owned()), ("t.2".to_owned(), "again".to_owned())]);
}

/// The second question comes while a person decides about the first.
#[tokio::test(start_paused = true)]
async fn a_question_that_waits_is_answered_in_every_way_it_was_asked() {
    let input = json!({ "file_path": "/workspace/a", "content": "x" });
    let part = part!(stage => {
        prompted(&mut stage).await;
        question(&mut stage, "hook", "t", "Write", &input).await;
        question(&mut stage, "leave", "t", "Write", &input).await;
        // Another input is another question, whatever id it has.
        let other = json!({ "file_path": "/workspace/b", "content": "x" });
        question(&mut stage, "leave", "t", "Write", &other).await;
        let mut answers = Vec::new();
        for _ in 0..3 {
            answers.push(stage.next().await["response"]["response"].clone());
        }
        let allowed = |answer: &&Value| answer["behavior"] == "allow" || answer["hookSpecificOutput"]["permissionDecision"] == "allow";
        assert_eq!(answers.iter().filter(allowed).count(), 2, "{answers:?}");
        stage.say(&over()).await;
    });
    let court = Court::with(|call| match call.call.input["path"].as_str() {
        Some("a") => Leave::Given,
        _ => Leave::Refused("not that".to_owned()),
    });
    let heard = played(part, &court).await;
    assert_eq!(stopped(&heard), StopReason::EndTurn, "{heard:?}");
    assert_eq!(court.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn l1_what_the_law_refuses_is_refused_in_its_words() {
    let input = json!({ "file_path": "/workspace/private.txt" });
    let part = part!(stage => {
        prompted(&mut stage).await;
        stage.say(&tool_use("t", "Read", &input)).await;
        let denied = asks(&mut stage, "hook", "t", "Read", &input).await;
        assert_eq!(decision(&denied), "deny");
        assert_eq!(denied["hookSpecificOutput"]["permissionDecisionReason"], "the law says no");
        let mut kept_back = result_of("t", true, "the law says no");
        kept_back["tool_result_meta"] = json!([{ "id": "t", "non_execution_kind": "permission-rule" }]);
        stage.say(&kept_back).await;
        // There is no such tool, so nobody was asked, and nothing happened.
        stage.say(&tool_use("u", "Nonesuch", &json!({}))).await;
        stage.say(&result_of("u", true, "<tool_use_error>no such tool</tool_use_error>")).await;
        let refused = asks(&mut stage, "leave", "v", "Bash", &json!({ "command": "ls" })).await;
        assert_eq!(refused, json!({ "behavior": "deny", "message": "the law says no" }));
        // What is no question about a call.
        let odd = json!({ "type": "control_request", "request_id": "odd", "request": { "subtype": "elicitation" } });
        stage.say(&odd).await;
        assert_eq!(stage.next().await["response"]["subtype"], "error");
        stage.say(&over()).await;
    });
    let heard = played(part, &Court::strict()).await;
    assert_eq!((stopped(&heard), heard.is_ungoverned()), (StopReason::EndTurn, false), "{heard:?}");
}

/// What was done without leave ends the turn.
#[tokio::test(start_paused = true)]
async fn l1_what_is_done_without_leave_is_ungoverned() {
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
            "twice under one leave",
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
        let part = part!(stage => {
            prompted(&mut stage).await;
            for line in lines {
                if line.get("ask").is_some() {
                    stage.say(&tool_use("a", "Bash", &line["ask"])).await;
                    assert_eq!(decision(&asks(&mut stage, "hook", "a", "Bash", &line["ask"]).await), "allow");
                } else {
                    stage.say(&line).await;
                }
            }
            stage.linger().await;
        });
        let heard = played(part, &Court::after_asking()).await;
        assert!(heard.is_ungoverned(), "{what}: {heard:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn l1_what_is_done_against_the_law_is_ungoverned() {
    let input = json!({ "command": "rm -rf src" });
    let part = part!(stage => {
        prompted(&mut stage).await;
        assert_eq!(decision(&asks(&mut stage, "hook", "t", "Bash", &input).await), "deny");
        stage.say(&result_of("t", true, "refused")).await;
        stage.say(&result_of("t", false, "gone all the same")).await;
        stage.linger().await;
    });
    let heard = played(part, &Court::strict()).await;
    assert!(heard.is_ungoverned(), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_law_lets_anyone_do_may_be_told_afterwards() {
    let part = part!(stage => {
        prompted(&mut stage).await;
        stage.say(&tool_use("t", "Read", &json!({ "file_path": "/workspace/notes.txt" }))).await;
        stage.say(&result_of("t", false, "notes")).await;
        stage.say(&over()).await;
    });
    let court = Court::with(|_| Leave::Given);
    let heard = played(part, &court).await;
    assert_eq!((stopped(&heard), heard.is_ungoverned()), (StopReason::EndTurn, false), "{heard:?}");
    assert_eq!(court.asked(), [("t".to_owned(), "read".to_owned(), "notes.txt".to_owned())]);
    assert_eq!(court.told().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_allowed_between_turns_and_work_is_noticed() {
    let input = json!({ "command": "ls" });
    for does_it in [false, true] {
        let input = input.clone();
        let part = part!(stage => {
            prompted(&mut stage).await;
            stage.say(&over()).await;
            let refused = asks(&mut stage, "hook", "t", "Bash", &input).await;
            assert_eq!(decision(&refused), "deny");
            if does_it {
                stage.say(&result_of("t", false, "done")).await;
            }
            let odd = json!({ "type": "control_request", "request_id": "odd", "request": { "subtype": "x" } });
            stage.say(&odd).await;
            stage.next().await;
            prompted(&mut stage).await;
            stage.say(&over()).await;
            stage.linger().await;
        });
        let troupe = troupe(vec![part]);
        let backend = backend(&troupe);
        let court = Court::with(|_| Leave::Given);
        assert_eq!(stopped(&turn(&backend, "a", &court).await), StopReason::EndTurn);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = turn(&backend, "a", &court).await;
        assert_eq!(after.is_ungoverned(), does_it, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn l8_a_cancelled_turn_is_interrupted_and_the_next_goes_on() {
    let cancel = CancellationToken::new();
    let inside = cancel.clone();
    let part = part!(stage => {
        prompted(&mut stage).await;
        question(&mut stage, "hook", "t", "Bash", &json!({ "command": "wait" })).await;
        inside.cancel();
        let interrupt = stage.next().await;
        assert_eq!(interrupt["request"]["subtype"], "interrupt");
        let answered = stage.next().await;
        assert_eq!(decision(&answered["response"]["response"]), "deny");
        stage.say(&json!({ "type": "control_cancel_request", "request_id": "q-hook-t" })).await;
        answer(&mut stage, &interrupt, &json!({ "still_queued": [] })).await;
        let late = asks(&mut stage, "hook", "u", "Bash", &json!({ "command": "ls" })).await;
        assert_eq!(decision(&late), "deny", "what is asked after that is refused");
        stage.say(&result_of("t", true, "interrupted")).await;
        stage.say(&json!({ "type": "result", "subtype": "error_during_execution", "is_error": true })).await;
        prompted(&mut stage).await;
        stage.say(&over()).await;
        stage.linger().await;
    });
    let troupe = troupe(vec![part]);
    let backend = backend(&troupe);
    let heard = turn_until(&backend, "a", &Court::after_asking(), cancel).await;
    assert_eq!(stopped(&heard), StopReason::Cancelled, "{heard:?}");
    assert_eq!(stopped(&turn(&backend, "a", &Court::strict()).await), StopReason::EndTurn);
    assert_eq!(troupe.started.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_takes_up_what_was_said_or_says_that_it_cannot() {
    let says = |word: &'static str| {
        part!(stage => {
            prompted(&mut stage).await;
            stage.say(&assistant("m", &json!({ "type": "text", "text": word }))).await;
            stage.say(&over()).await;
        })
    };
    let refuses: Part = Box::new(|mut stage| {
        Box::pin(async move {
            stage.next().await;
            let errors = json!(["No conversation found"]);
            stage
                .say(&json!({ "type": "result", "subtype": "error_during_execution", "errors": errors }))
                .await;
        })
    });
    let breaks: Part = Box::new(|mut stage| Box::pin(async move { drop(stage.next().await) }));
    let troupe = troupe(vec![says("one"), says("two"), breaks, refuses, says("three")]);
    let backend = backend(&troupe);
    for word in ["one", "two"] {
        assert_eq!(turn(&backend, "a", &Court::strict()).await.text(), word);
        // Until its end is noticed.
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let broken = turn(&backend, "a", &Court::strict()).await;
    assert_eq!(broken.error().0, "agent_ended", "one that breaks loses nothing");
    let lost = turn(&backend, "a", &Court::strict()).await;
    assert_eq!(lost.text(), "three");
    let is_notice =
        |event: &EventKind| matches!(event, EventKind::Notice { code, .. } if code == "context_lost");
    assert!(lost.events.iter().any(is_notice), "{lost:?}");
    let known = Some("c-1".to_owned());
    assert_eq!(
        *troupe.started.lock().unwrap(),
        [None, known.clone(), known.clone(), known, None],
        "started with what was said before, and then without"
    );
}

/// A name that would be an option of its next start is not kept.
#[tokio::test(start_paused = true)]
async fn l3_a_conversation_is_not_called_like_an_option() {
    let part = part!(stage => {
        prompted(&mut stage).await;
        let mut said = assistant("m", &json!({ "type": "text", "text": "x" }));
        said["session_id"] = json!("--dangerously-skip-permissions");
        stage.say(&said).await;
        stage.say(&over()).await;
    });
    let troupe = troupe(vec![part]);
    turn(&backend(&troupe), "a", &Court::strict()).await;
    assert_eq!(*troupe.remembered.lock().unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_protocol_ends_the_turn_with_one_sentence() {
    let stray =
        json!({ "type": "control_response", "response": { "subtype": "success", "request_id": "4711" } });
    let cases: Vec<(&str, String, &str, &str)> = vec![
        ("garbage", "%%%\n".repeat(100), "agent_ended", "it writes what is no stream-json"),
        ("a line without an end", "x".repeat(17 << 20), "agent_ended", "it wrote a line of more than"),
        ("a wrong answer", format!("{stray}\n"), "agent_ended", "a question that nobody had asked"),
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
        let part = part!(stage => {
            prompted(&mut stage).await;
            stage.write(&text).await;
            stage.linger().await;
        });
        let heard = played(part, &Court::strict()).await;
        let (found, message) = heard.error();
        assert_eq!(found, code, "{what}: {message}");
        assert!(message.contains(sentence), "{what}: {message}");
    }
    let part = part!(stage => {
        prompted(&mut stage).await;
        stage.say(&assistant("m", &json!({ "type": "text", "text": "so " }))).await;
    });
    let heard = played(part, &Court::strict()).await;
    assert_eq!((heard.text().as_str(), heard.error().0), ("so ", "agent_ended"));
}

/// Nuisances are borne: late and double answers, lines of another kind, more questions than anyone can wait for.
#[tokio::test(start_paused = true)]
async fn what_is_a_nuisance_is_borne() {
    let part: Part = Box::new(|mut stage| {
        Box::pin(async move {
            let hello = stage.next().await;
            stage.write("Warning: something\n\n[]\n{\"type\":\"keep_alive\"}\n").await;
            answer(&mut stage, &hello, &json!({})).await;
            answer(&mut stage, &hello, &json!({})).await;
            prompted(&mut stage).await;
            let wait = json!({ "command": "wait" });
            for n in 0..64 {
                question(&mut stage, "hook", &format!("t{n}"), "Bash", &wait).await;
            }
            let one_more = asks(&mut stage, "hook", "more", "Bash", &wait).await;
            assert_eq!(decision(&one_more), "deny");
            stage.say(&over()).await;
            for _ in 0..64 {
                let answered = stage.next().await;
                assert_eq!(decision(&answered["response"]["response"]), "deny");
            }
        })
    });
    let heard = played(part, &Court::after_asking()).await;
    assert_eq!(stopped(&heard), StopReason::EndTurn, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn the_mode_of_its_profile_is_set_or_nothing_is_run() {
    for (set, goes_on) in [("default", true), ("bypassPermissions", false)] {
        let part = part!(stage => {
            let mode = stage.next().await;
            assert_eq!((&mode["request"]["subtype"], &mode["request"]["mode"]), (&json!("set_permission_mode"), &json!("default")));
            answer(&mut stage, &mode, &json!({ "mode": set })).await;
            if stage.next().await["type"] == "user" {
                stage.say(&over()).await;
            }
        });
        let mut profile = profile("claude-stream-json");
        profile["mode"] = json!("default");
        let troupe = Arc::new(Troupe::new(profile, vec![part]));
        let heard = turn(&backend(&troupe), "a", &Court::strict()).await;
        assert_eq!(heard.error.is_none(), goes_on, "{heard:?}");
    }
}

/// A tool of a server that the house runs: asked about in two ways, decided once, made by the house.
#[tokio::test(start_paused = true)]
async fn l1_a_servers_tool_is_asked_about_once_and_made_by_the_house() {
    let (tool, input) = ("mcp__probe__add", json!({ "word": "one" }));
    let (hand, taken) = tokio::sync::oneshot::channel::<Arc<Hatch>>();
    let part = part!(stage => {
        let hatch = taken.await.unwrap();
        prompted(&mut stage).await;
        stage.say(&tool_use("t", tool, &input)).await;
        assert_eq!(decision(&asks(&mut stage, "hook", "t", tool, &input).await), "allow");
        let leave = asks(&mut stage, "leave", "t", tool, &input).await;
        assert_eq!(leave["behavior"], "allow");
        let outcome = hatch.call(tool.to_owned(), input.clone()).await;
        assert!(!outcome.is_error, "{outcome:?}");
        stage.say(&result_of("t", false, "5")).await;
        // Another input was not asked about, and is a question itself.
        let outcome = hatch.call(tool.to_owned(), json!({ "word": "no" })).await;
        assert!(outcome.is_error, "{outcome:?}");
        // What it says came of a call that nobody made.
        stage.say(&tool_use("u", tool, &input)).await;
        assert_eq!(decision(&asks(&mut stage, "hook", "u", tool, &input).await), "allow");
        stage.say(&result_of("u", false, "6")).await;
        stage.say(&over()).await;
    });
    let mut profile = profile("claude-stream-json");
    profile["system"] = json!({ "servers.json": {} });
    profile["perServer"] = json!({ "servers.json": { "{server}": "{server_url}" } });
    let (troupe, hatch) = Troupe::new(profile, vec![part]).served();
    hand.send(hatch).unwrap();
    let court = Court::after_asking();
    let heard = turn(&backend(&Arc::new(troupe)), "a", &court).await;
    assert!(heard.is_ungoverned() && heard.notices().is_empty(), "{heard:?}");
    let asked = |id: &str, tool: &str| (id.to_owned(), tool.to_owned(), "one".to_owned());
    // The last is what was told as done, looked at when it was: it was no call of the server's.
    assert_eq!(court.asked(), [asked("t", tool), asked("u", tool), asked("u.2", "cli.mcp__probe__add")]);
    let made = court.made.lock().unwrap();
    let made: Vec<&str> = made.iter().map(tribune_runtime::Errand::id).collect();
    assert_eq!(made, ["t", "served-1"]);
    assert_eq!(
        court.told().into_iter().map(|(id, outcome)| (id, outcome.is_error)).collect::<Vec<_>>(),
        [("u".to_owned(), true)]
    );
}
