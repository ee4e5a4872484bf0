//! Tools of MCP servers that the house runs: whichever way an agent speaks of a call, there is one decision, and what it tells as done
//! was done by the house.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::{Berths, CliBackend, Hatch, IDLE, Spawner};
use tribune_runtime::{Errand, Leave, StopReason, ToolOutcome};

use super::acp_agent::Agent;
use super::fake_agent::{Part, Troupe, profile};
use super::{Court, Heard, turn, turn_until};

const TOOL: &str = "mcp__probe__add";

fn word(word: &str) -> Value {
    json!({ "word": word })
}

/// A call of the server's tool, as Claude Code tells of one.
fn told(id: &str, input: &Value, status: &str) -> Value {
    json!({ "toolCallId": id, "title": TOOL, "kind": "other", "rawInput": input, "status": status })
}

async fn call(hatch: &Hatch, input: &str) -> ToolOutcome {
    hatch.call(TOOL.to_owned(), word(input)).await
}

/// Plays one turn of an agent whose session has a server.
async fn play<F: Future<Output = ()> + Send + 'static>(
    court: &Arc<Court>,
    cancel: CancellationToken,
    part: impl FnOnce(Agent, Arc<Hatch>) -> F + Send + 'static,
) -> Heard {
    let (hand, taken) = tokio::sync::oneshot::channel::<Arc<Hatch>>();
    let part: Part = Box::new(|stage| {
        Box::pin(async move {
            let can = json!({ "mcpCapabilities": { "http": true } });
            let (agent, first) = Agent::begin(stage, can).await;
            let server = json!({ "type": "http", "name": "probe", "url": "http://127.0.0.1:4100/probe", "headers": [] });
            assert_eq!(first[1]["params"]["mcpServers"], json!([server]));
            part(agent, taken.await.unwrap()).await;
        })
    });
    let (troupe, hatch) = Troupe::new(profile("acp"), vec![part]).served();
    hand.send(Arc::clone(&hatch)).unwrap();
    let backend = CliBackend::acp(Arc::new(troupe) as Arc<dyn Spawner>, IDLE, &Berths::new(32));
    let outside = call(&hatch, "x").await;
    assert!(outside.is_error && outside.content.contains("no turn is running"), "{outside:?}");
    let heard = turn_until(&backend, "a", court, cancel).await;
    let outside = call(&hatch, "x").await;
    assert!(outside.is_error && outside.content.contains("no turn is running"), "{outside:?}");
    backend.leave().await;
    heard
}

/// The calls that the house made: the id of each, and what its input says, or that it went under leave.
fn made(court: &Court) -> Vec<(String, String)> {
    let made = court.made.lock().unwrap();
    let one = |errand: &Errand| match errand {
        Errand::Call(call) => (call.id.clone(), call.input["word"].as_str().unwrap_or_default().to_owned()),
        Errand::Allowed(id) => (id.clone(), "as allowed".to_owned()),
    };
    made.iter().map(one).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(id, what)| ((*id).to_owned(), (*what).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn l1_a_call_is_joined_to_what_was_said_of_it() {
    let court = Court::after_asking();
    let heard = play(&court, CancellationToken::new(), |mut agent, hatch| async move {
        // Asked about: leave is for exactly this, once.
        assert_eq!(agent.asks(told("asked", &word("one"), "pending")).await, "y");
        let other = call(&hatch, "other").await;
        assert_eq!(other, ToolOutcome::good("made"), "what was not asked about is a question itself");
        let one = call(&hatch, "one").await;
        assert!(one.content.starts_with("what came of asked"), "{one:?}");
        agent.tell("tool_call_update", told("asked", &word("one"), "completed")).await;
        assert_eq!(call(&hatch, "one").await, ToolOutcome::good("made"), "once");
        // Told of: it is that call.
        agent.tell("tool_call", told("told", &word("two"), "in_progress")).await;
        // Until that was heard.
        assert_eq!(agent.asks(told("before", &word("x"), "pending")).await, "y");
        assert_eq!(call(&hatch, "two").await, ToolOutcome::good("made"));
        agent.tell("tool_call_update", json!({ "toolCallId": "told", "status": "completed" })).await;
        // Told of afterwards, in full and without its arguments, by other names.
        call(&hatch, "three").await;
        call(&hatch, "four").await;
        let mut late = told("late", &word("three"), "completed");
        late["title"] = "probe_add".into();
        agent.tell("tool_call", late).await;
        let bare =
            json!({ "toolCallId": "bare", "title": "mcp_probe_add", "kind": "other", "status": "completed" });
        agent.tell("tool_call", bare).await;
        agent.end().await;
    })
    .await;
    assert!(heard.error.is_none() && !heard.is_ungoverned(), "{heard:?}");
    let expected = [
        ("served-1", "other"),
        ("asked", "as allowed"),
        ("served-2", "one"),
        ("told", "two"),
        ("served-3", "three"),
        ("served-4", "four"),
    ];
    assert_eq!(made(&court), pairs(&expected));
    let asked: Vec<String> = court.asked().into_iter().map(|(id, ..)| id).collect();
    assert_eq!(asked, ["asked", "before"], "nobody is asked twice");
    let told: Vec<_> = court.told().into_iter().map(|(id, outcome)| (id, outcome.is_error)).collect();
    assert_eq!(told, [("before".to_owned(), true)], "leave of which no use was made is no call");
}

/// What was asked and refused stays refused, and reaches nobody.
#[tokio::test(start_paused = true)]
async fn l1_a_call_that_was_refused_is_not_made() {
    let court = Court::strict();
    let heard = play(&court, CancellationToken::new(), |mut agent, hatch| async move {
        assert_eq!(agent.asks(told("t", &word("one"), "pending")).await, "n");
        assert_eq!(call(&hatch, "one").await, ToolOutcome::error("the law says no"));
        agent.tell("tool_call_update", told("t", &word("one"), "failed")).await;
        // One that somebody thinks about is not made meanwhile.
        let params = json!({ "toolCall": told("w", &word("wait"), "pending"), "options": [] });
        agent.send("session/request_permission", params).await;
        agent.tell("tool_call", told("heard", &word("x"), "pending")).await;
        loop {
            let early = call(&hatch, "wait").await;
            assert!(early.is_error, "{early:?}");
            if early.content.contains("not given yet") {
                break;
            }
        }
        agent.end().await;
    })
    .await;
    assert!(heard.error.is_none() && !heard.is_ungoverned(), "{heard:?}");
    assert_eq!(made(&court), pairs(&[]));

    // Where the call itself is the question, the refusal is its answer, however the agent then calls that.
    for status in ["completed", "failed"] {
        let court = Court::after_asking();
        let heard = play(&court, CancellationToken::new(), move |mut agent, hatch| async move {
            assert_eq!(call(&hatch, "no").await, ToolOutcome::error("denied: the law says no"));
            agent.tell("tool_call", told("t", &word("no"), "in_progress")).await;
            agent.tell("tool_call_update", told("t", &word("no"), status)).await;
            agent.end().await;
        })
        .await;
        assert!(heard.error.is_none() && !heard.is_ungoverned(), "{status}: {heard:?}");
        assert_eq!((made(&court).len(), court.asked().len()), (1, 0), "{status}");
    }
}

/// Whoever tells of a call that the house did not make did something else.
#[tokio::test(start_paused = true)]
async fn l1_what_did_not_go_through_the_house_is_ungoverned() {
    let (asking, strict) = (Court::after_asking(), Court::strict());
    let without = play(&asking, CancellationToken::new(), |mut agent, _| async move {
        agent.tell("tool_call", told("t", &word("one"), "completed")).await;
        agent.end().await;
    });
    assert!(without.await.is_ungoverned(), "told as done, and never called");

    // Also where the law would let the server's tool be called unasked.
    let open = Court::with(|call| match call.call.name.starts_with("cli.") {
        true => Leave::Refused("there is no such tool".to_owned()),
        false => Leave::Given,
    });
    let lenient = play(&open, CancellationToken::new(), |mut agent, _| async move {
        agent.tell("tool_call", told("t", &word("one"), "completed")).await;
        agent.end().await;
    });
    assert!(lenient.await.is_ungoverned(), "it was something else");

    let unused = play(&asking, CancellationToken::new(), |mut agent, _| async move {
        assert_eq!(agent.asks(told("t", &word("one"), "pending")).await, "y");
        agent.tell("tool_call_update", told("t", &word("one"), "completed")).await;
        agent.end().await;
    });
    assert!(unused.await.is_ungoverned(), "leave to have it done is not its being done");

    let other = play(&asking, CancellationToken::new(), |mut agent, hatch| async move {
        call(&hatch, "one").await;
        agent.tell("tool_call", told("t", &word("two"), "completed")).await;
        agent.end().await;
    });
    assert!(other.await.is_ungoverned(), "another call");

    let twice = play(&asking, CancellationToken::new(), |mut agent, hatch| async move {
        call(&hatch, "one").await;
        for id in ["first", "second"] {
            agent.tell("tool_call", told(id, &word("one"), "completed")).await;
        }
        agent.end().await;
    });
    assert!(twice.await.is_ungoverned(), "one call is one call");

    let begun = play(&asking, CancellationToken::new(), |mut agent, _| async move {
        agent.tell("tool_call", told("t", &word("one"), "in_progress")).await;
        agent.end().await;
    });
    assert!(begun.await.is_ungoverned(), "begun, and never called");

    let refused = play(&strict, CancellationToken::new(), |mut agent, _| async move {
        assert_eq!(agent.asks(told("t", &word("one"), "pending")).await, "n");
        agent.tell("tool_call_update", told("t", &word("one"), "completed")).await;
        agent.end().await;
    });
    assert!(refused.await.is_ungoverned(), "refused, and done all the same");
}

/// Nobody is asked about arguments that are not told, or about what is no call of a server.
#[tokio::test(start_paused = true)]
async fn l1_a_question_that_does_not_say_everything_is_a_tool_of_the_agents_own() {
    let court = Court::after_asking();
    play(&court, CancellationToken::new(), |mut agent, _| async move {
        agent.asks(json!({ "toolCallId": "a", "title": TOOL, "kind": "other" })).await;
        agent
            .asks(json!({ "toolCallId": "b", "title": "mcp__probe__other", "kind": "other", "rawInput": {} }))
            .await;
        agent.asks(json!({ "toolCallId": "c", "title": TOOL, "kind": "other", "rawInput": {} })).await;
        // What says that it runs something does, however it is called.
        let command = json!({ "command": "touch x" });
        agent.asks(json!({ "toolCallId": "d", "title": TOOL, "kind": "execute", "rawInput": command })).await;
        agent.end().await;
    })
    .await;
    let tools: Vec<String> = court.asked().into_iter().map(|(_, tool, _)| tool).collect();
    assert_eq!(tools, ["cli.mcp__probe__add", "cli.mcp__probe__other", TOOL, "exec"]);
}

/// What the house answered was no deed of the agent's, whatever it was answered and however the agent calls it then.
#[tokio::test(start_paused = true)]
async fn what_the_house_answered_is_settled() {
    let court = Court::strict();
    let heard = play(&court, CancellationToken::new(), |mut agent, hatch| async move {
        assert_eq!(agent.asks(told("asked", &word("one"), "pending")).await, "n");
        assert!(call(&hatch, "one").await.is_error);
        agent.tell("tool_call_update", told("asked", &word("one"), "completed")).await;
        // Agents have kinds of their own for tools that they know, and say twice that something is done.
        call(&hatch, "two").await;
        for how in ["tool_call", "tool_call_update"] {
            let mut searched = told("searched", &word("two"), "completed");
            searched["kind"] = "search".into();
            agent.tell(how, searched).await;
        }
        agent.end().await;
    })
    .await;
    assert!(heard.error.is_none() && !heard.is_ungoverned(), "{heard:?}");
}

/// Whatever ends a turn answers who waits.
#[tokio::test(start_paused = true)]
async fn l8_no_call_outlives_its_turn() {
    for how in ["cancelled", "ends", "dies"] {
        let court = Court::after_asking();
        let cancel = CancellationToken::new();
        let (fired, watched) = (cancel.clone(), Arc::clone(&court));
        let (tell, told) = tokio::sync::oneshot::channel();
        let heard = play(&court, cancel, move |mut agent, hatch| async move {
            let waiting = tokio::spawn(async move { tell.send((call(&hatch, "wait").await, hatch)) });
            while watched.made.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            match how {
                "cancelled" => {
                    fired.cancel();
                    assert_eq!(agent.stage.next().await["method"], "session/cancel");
                    waiting.await.unwrap().unwrap();
                    agent.end().await;
                }
                "ends" => agent.end().await,
                _ => {}
            }
        })
        .await;
        let (outcome, _) = told.await.unwrap();
        assert!(outcome.is_error && outcome.content.contains("the turn is over"), "{how}: {outcome:?}");
        assert_eq!(heard.error.is_some(), how == "dies", "{how}: {heard:?}");
        if how == "cancelled" {
            let is_over = |event: &tribune_runtime::EventKind| {
                matches!(event, tribune_runtime::EventKind::Done { stop_reason: StopReason::Cancelled })
            };
            assert!(heard.events.iter().any(is_over), "{heard:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn l9_so_many_calls_at_once_and_no_more() {
    let court = Court::after_asking();
    let watched = Arc::clone(&court);
    let heard = play(&court, CancellationToken::new(), move |agent, hatch| async move {
        for n in 1..=16 {
            let hatch = Arc::clone(&hatch);
            tokio::spawn(async move { call(&hatch, "wait").await });
            while watched.made.lock().unwrap().len() < n {
                tokio::task::yield_now().await;
            }
        }
        let full = call(&hatch, "one").await;
        assert!(full.is_error && full.content.contains("too much"), "{full:?}");
        agent.end().await;
    })
    .await;
    assert_eq!(heard.error, None);
    assert_eq!(made(&court).len(), 16);
}

/// An agent that takes no servers over HTTP is not told of them, and people are told so.
#[tokio::test(start_paused = true)]
async fn an_agent_is_told_of_servers_if_it_takes_them() {
    for (can, taken) in [
        (json!({ "mcpCapabilities": { "http": true }, "loadSession": true }), true),
        (
            json!({ "mcpCapabilities": { "http": true }, "loadSession": true, "sessionCapabilities": { "resume": {} } }),
            true,
        ),
        (json!({ "mcpCapabilities": { "sse": true }, "loadSession": true }), false),
        (json!({ "loadSession": true }), false),
        // What its profile knows of it counts for more than what it says.
        (json!({ "mcpCapabilities": { "http": true }, "loadSession": true, "ignores": true }), false),
    ] {
        let part = |can: Value, begins: &'static str| -> Part {
            Box::new(move |stage| {
                Box::pin(async move {
                    let (agent, first) = Agent::begin(stage, can).await;
                    let params = &first[1]["params"];
                    assert!(first[1]["method"].as_str().unwrap().starts_with(begins), "{first:?}");
                    assert_eq!(params["mcpServers"].as_array().unwrap().len(), usize::from(taken));
                    agent.end().await;
                })
            })
        };
        let resumes = !can["sessionCapabilities"].is_null();
        let ignores = can["ignores"] == true;
        let parts = vec![
            part(can.clone(), "session/new"),
            part(can, if resumes { "session/resume" } else { "session/load" }),
        ];
        let mut profile = profile("acp");
        if ignores {
            profile["quirks"] = json!(["ignores-servers"]);
        }
        let (troupe, _) = Troupe::new(profile, parts).served();
        let troupe = Arc::new(troupe);
        let backend = CliBackend::acp(Arc::clone(&troupe) as Arc<dyn Spawner>, IDLE, &Berths::new(32));
        let court = Court::strict();
        let notices = |heard: &Heard| heard.notices().into_iter().map(str::to_owned).collect::<Vec<_>>();
        let expected: &[&str] = if taken { &[] } else { &["servers_left_out"] };
        let first = turn(&backend, "a", &court).await;
        assert_eq!(
            (notices(&first), &first.error),
            (expected.iter().map(|&code| code.to_owned()).collect(), &None)
        );
        // Other servers came: it is started anew, with these.
        troupe.edition.store(2, Ordering::Relaxed);
        let second = turn(&backend, "a", &court).await;
        assert_eq!(
            (notices(&second), &second.error),
            (expected.iter().map(|&code| code.to_owned()).collect(), &None)
        );
        assert_eq!(troupe.started.lock().unwrap().len(), 2);
        backend.leave().await;
    }
}
