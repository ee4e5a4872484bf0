//! Tools of MCP servers that the host runs: whichever way an agent speaks of a call, there is one decision, and a call
//! that it reports as done was executed by the host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::{CliBackend, IDLE_TIMEOUT, McpCallChannel, ProcessLimit, Spawner};
use tribune_runtime::{HostExecutedCall, PermissionOutcome, StopReason, ToolOutcome};

use super::acp_agent::AcpAgent;
use super::fake_agent::{AgentScript, FakeSpawner, profile};
use super::{TestToolbox, TurnLog, turn, turn_cancelled_by};

const TOOL: &str = "mcp__probe__add";

fn word(word: &str) -> Value {
    json!({ "word": word })
}

/// A call of the server's tool, as Claude Code reports it.
fn report(id: &str, input: &Value, status: &str) -> Value {
    json!({ "toolCallId": id, "title": TOOL, "kind": "other", "rawInput": input, "status": status })
}

async fn call(channel: &McpCallChannel, input: &str) -> ToolOutcome {
    channel.call(TOOL.to_owned(), word(input)).await
}

/// Plays one turn of an agent whose session has a server.
async fn play<F: Future<Output = ()> + Send + 'static>(
    toolbox: &Arc<TestToolbox>,
    cancel: CancellationToken,
    part: impl FnOnce(AcpAgent, Arc<McpCallChannel>) -> F + Send + 'static,
) -> TurnLog {
    let (hand, taken) = tokio::sync::oneshot::channel::<Arc<McpCallChannel>>();
    let part: AgentScript = Box::new(|pipes| {
        Box::pin(async move {
            let can = json!({ "mcpCapabilities": { "http": true } });
            let (agent, first) = AcpAgent::begin(pipes, can).await;
            let server = json!({ "type": "http", "name": "probe", "url": "http://127.0.0.1:4100/probe", "headers": [] });
            assert_eq!(first[1]["params"]["mcpServers"], json!([server]));
            part(agent, taken.await.unwrap()).await;
        })
    });
    let (spawner, channel) = FakeSpawner::new(profile("acp"), vec![part]).with_server();
    hand.send(Arc::clone(&channel)).unwrap();
    let backend =
        CliBackend::acp(Arc::new(spawner) as Arc<dyn Spawner>, IDLE_TIMEOUT, &ProcessLimit::new(32));
    let outside = call(&channel, "x").await;
    assert!(outside.is_error && outside.content.contains("no turn is running"), "{outside:?}");
    let log = turn_cancelled_by(&backend, "a", toolbox, cancel).await;
    let outside = call(&channel, "x").await;
    assert!(outside.is_error && outside.content.contains("no turn is running"), "{outside:?}");
    backend.shutdown().await;
    log
}

/// The calls that the host executed: the id of each, and the text in its input, or that it ran under a permission.
fn made(toolbox: &TestToolbox) -> Vec<(String, String)> {
    let made = toolbox.made.lock().unwrap();
    let one = |call: &HostExecutedCall| match call {
        HostExecutedCall::Call(call) => {
            (call.id.clone(), call.input["word"].as_str().unwrap_or_default().to_owned())
        }
        HostExecutedCall::Granted(id) => (id.clone(), "as allowed".to_owned()),
    };
    made.iter().map(one).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(id, what)| ((*id).to_owned(), (*what).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn l1_an_mcp_call_is_joined_to_its_reports() {
    let toolbox = TestToolbox::after_asking();
    let log = play(&toolbox, CancellationToken::new(), |mut agent, channel| async move {
        // Requested: the permission is for exactly this call, once.
        assert_eq!(agent.asks(report("asked", &word("one"), "pending")).await, "y");
        let other = call(&channel, "other").await;
        assert_eq!(other, ToolOutcome::good("made"), "what was not asked about is a question itself");
        let one = call(&channel, "one").await;
        assert!(one.content.starts_with("what came of asked"), "{one:?}");
        agent.tell("tool_call_update", report("asked", &word("one"), "completed")).await;
        assert_eq!(call(&channel, "one").await, ToolOutcome::good("made"), "once");
        // Reported: it is that call.
        agent.tell("tool_call", report("told", &word("two"), "in_progress")).await;
        // Until the report was handled.
        assert_eq!(agent.asks(report("before", &word("x"), "pending")).await, "y");
        assert_eq!(call(&channel, "two").await, ToolOutcome::good("made"));
        agent.tell("tool_call_update", json!({ "toolCallId": "told", "status": "completed" })).await;
        // Reported afterwards, with and without its arguments, by other names.
        call(&channel, "three").await;
        call(&channel, "four").await;
        let mut late = report("late", &word("three"), "completed");
        late["title"] = "probe_add".into();
        agent.tell("tool_call", late).await;
        let bare =
            json!({ "toolCallId": "bare", "title": "mcp_probe_add", "kind": "other", "status": "completed" });
        agent.tell("tool_call", bare).await;
        agent.end().await;
    })
    .await;
    assert!(log.error.is_none() && !log.is_ungoverned(), "{log:?}");
    let expected = [
        ("tribune-served-1", "other"),
        ("asked", "as allowed"),
        ("tribune-served-2", "one"),
        ("told", "two"),
        ("tribune-served-3", "three"),
        ("tribune-served-4", "four"),
    ];
    assert_eq!(made(&toolbox), pairs(&expected));
    let asked: Vec<String> = toolbox.asked().into_iter().map(|(id, ..)| id).collect();
    assert_eq!(asked, ["asked", "before"], "no call is asked about twice");
    assert_eq!(toolbox.unused(), ["before"], "an unused permission is not an executed call");
    assert_eq!(toolbox.reported(), [], "the host has the outcomes of what it executed");
}

/// A refused request stays refused, and does not reach the server.
#[tokio::test(start_paused = true)]
async fn l1_a_refused_mcp_call_is_not_executed() {
    let toolbox = TestToolbox::strict();
    let log = play(&toolbox, CancellationToken::new(), |mut agent, channel| async move {
        assert_eq!(agent.asks(report("t", &word("one"), "pending")).await, "n");
        assert_eq!(call(&channel, "one").await, ToolOutcome::error("the law says no"));
        agent.tell("tool_call_update", report("t", &word("one"), "failed")).await;
        // A call is not executed while its permission request waits.
        let params = json!({ "toolCall": report("w", &word("wait"), "pending"), "options": [] });
        agent.send("session/request_permission", params).await;
        agent.tell("tool_call", report("heard", &word("x"), "pending")).await;
        loop {
            let early = call(&channel, "wait").await;
            assert!(early.is_error, "{early:?}");
            if early.content.contains("not decided yet") {
                break;
            }
        }
        agent.end().await;
    })
    .await;
    assert!(log.error.is_none() && !log.is_ungoverned(), "{log:?}");
    assert_eq!(made(&toolbox), pairs(&[]));

    // Where the call itself is the request, the refusal is its answer, whatever name the agent's report has.
    for status in ["completed", "failed"] {
        let toolbox = TestToolbox::after_asking();
        let log = play(&toolbox, CancellationToken::new(), move |mut agent, channel| async move {
            assert_eq!(call(&channel, "no").await, ToolOutcome::error("denied: the law says no"));
            agent.tell("tool_call", report("t", &word("no"), "in_progress")).await;
            agent.tell("tool_call_update", report("t", &word("no"), status)).await;
            agent.end().await;
        })
        .await;
        assert!(log.error.is_none() && !log.is_ungoverned(), "{status}: {log:?}");
        assert_eq!((made(&toolbox).len(), toolbox.asked().len()), (1, 0), "{status}");
    }
}

/// A reported call that the host did not execute was something else.
#[tokio::test(start_paused = true)]
async fn l1_a_call_that_the_host_did_not_execute_is_ungoverned() {
    let (asking, strict) = (TestToolbox::after_asking(), TestToolbox::strict());
    let without = play(&asking, CancellationToken::new(), |mut agent, _| async move {
        agent.tell("tool_call", report("t", &word("one"), "completed")).await;
        agent.end().await;
    });
    assert!(without.await.is_ungoverned(), "told as done, and never called");

    // Also where the law would allow the server's tool without a permission request.
    let open = TestToolbox::with(|call| match call.call.name.starts_with("cli.") {
        true => PermissionOutcome::Denied("there is no such tool".to_owned()),
        false => PermissionOutcome::Granted,
    });
    let lenient = play(&open, CancellationToken::new(), |mut agent, _| async move {
        agent.tell("tool_call", report("t", &word("one"), "completed")).await;
        agent.end().await;
    });
    assert!(lenient.await.is_ungoverned(), "it was something else");

    let unused = play(&asking, CancellationToken::new(), |mut agent, _| async move {
        assert_eq!(agent.asks(report("t", &word("one"), "pending")).await, "y");
        agent.tell("tool_call_update", report("t", &word("one"), "completed")).await;
        agent.end().await;
    });
    assert!(
        unused.await.is_ungoverned(),
        "permission for the host to execute a call does not mean that it did"
    );

    let other = play(&asking, CancellationToken::new(), |mut agent, channel| async move {
        call(&channel, "one").await;
        agent.tell("tool_call", report("t", &word("two"), "completed")).await;
        agent.end().await;
    });
    assert!(other.await.is_ungoverned(), "another call");

    let twice = play(&asking, CancellationToken::new(), |mut agent, channel| async move {
        call(&channel, "one").await;
        for id in ["first", "second"] {
            agent.tell("tool_call", report(id, &word("one"), "completed")).await;
        }
        agent.end().await;
    });
    assert!(twice.await.is_ungoverned(), "one call is one call");

    let begun = play(&asking, CancellationToken::new(), |mut agent, _| async move {
        agent.tell("tool_call", report("t", &word("one"), "in_progress")).await;
        agent.end().await;
    });
    assert!(begun.await.is_ungoverned(), "begun, and never called");

    let refused = play(&strict, CancellationToken::new(), |mut agent, _| async move {
        assert_eq!(agent.asks(report("t", &word("one"), "pending")).await, "n");
        agent.tell("tool_call_update", report("t", &word("one"), "completed")).await;
        agent.end().await;
    });
    assert!(refused.await.is_ungoverned(), "refused, and done all the same");
}

/// A person is not asked about arguments that are not reported, or about calls of no server.
#[tokio::test(start_paused = true)]
async fn l1_a_request_without_arguments_is_a_tool_of_the_agents_own() {
    let toolbox = TestToolbox::after_asking();
    play(&toolbox, CancellationToken::new(), |mut agent, _| async move {
        agent.asks(json!({ "toolCallId": "a", "title": TOOL, "kind": "other" })).await;
        agent
            .asks(json!({ "toolCallId": "b", "title": "mcp__probe__other", "kind": "other", "rawInput": {} }))
            .await;
        agent.asks(json!({ "toolCallId": "c", "title": TOOL, "kind": "other", "rawInput": {} })).await;
        // A report of a command is a command, whatever its title.
        let command = json!({ "command": "touch x" });
        agent.asks(json!({ "toolCallId": "d", "title": TOOL, "kind": "execute", "rawInput": command })).await;
        agent.end().await;
    })
    .await;
    let tools: Vec<String> = toolbox.asked().into_iter().map(|(_, tool, _)| tool).collect();
    assert_eq!(tools, ["cli.mcp__probe__add", "cli.mcp__probe__other", TOOL, "exec"]);
}

/// A call that the host answered was not executed by the agent, whatever the answer and the agent's name for it.
#[tokio::test(start_paused = true)]
async fn an_answered_mcp_call_is_settled() {
    let toolbox = TestToolbox::strict();
    let log = play(&toolbox, CancellationToken::new(), |mut agent, channel| async move {
        assert_eq!(agent.asks(report("asked", &word("one"), "pending")).await, "n");
        assert!(call(&channel, "one").await.is_error);
        agent.tell("tool_call_update", report("asked", &word("one"), "completed")).await;
        // Agents have kinds of their own for tools that they know, and report twice that something is done.
        call(&channel, "two").await;
        for how in ["tool_call", "tool_call_update"] {
            let mut searched = report("searched", &word("two"), "completed");
            searched["kind"] = "search".into();
            agent.tell(how, searched).await;
        }
        agent.end().await;
    })
    .await;
    assert!(log.error.is_none() && !log.is_ungoverned(), "{log:?}");
}

/// Any end of a turn answers the calls that wait.
#[tokio::test(start_paused = true)]
async fn l8_no_mcp_call_outlives_its_turn() {
    for how in ["cancelled", "ends", "dies"] {
        let toolbox = TestToolbox::after_asking();
        let cancel = CancellationToken::new();
        let (fired, watched) = (cancel.clone(), Arc::clone(&toolbox));
        let (tell, report) = tokio::sync::oneshot::channel();
        let log = play(&toolbox, cancel, move |mut agent, channel| async move {
            let waiting = tokio::spawn(async move { tell.send((call(&channel, "wait").await, channel)) });
            while watched.made.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            match how {
                "cancelled" => {
                    fired.cancel();
                    assert_eq!(agent.pipes.next().await["method"], "session/cancel");
                    waiting.await.unwrap().unwrap();
                    agent.end().await;
                }
                "ends" => agent.end().await,
                _ => {}
            }
        })
        .await;
        let (outcome, _) = report.await.unwrap();
        assert!(outcome.is_error && outcome.content.contains("the turn is over"), "{how}: {outcome:?}");
        assert_eq!(log.error.is_some(), how == "dies", "{how}: {log:?}");
        if how == "cancelled" {
            let is_over = |event: &tribune_runtime::EventKind| {
                matches!(event, tribune_runtime::EventKind::Done { stop_reason: StopReason::Cancelled })
            };
            assert!(log.events.iter().any(is_over), "{log:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn l9_concurrent_mcp_calls_are_bounded() {
    let toolbox = TestToolbox::after_asking();
    let watched = Arc::clone(&toolbox);
    let log = play(&toolbox, CancellationToken::new(), move |agent, channel| async move {
        for n in 1..=16 {
            let channel = Arc::clone(&channel);
            tokio::spawn(async move { call(&channel, "wait").await });
            while watched.made.lock().unwrap().len() < n {
                tokio::task::yield_now().await;
            }
        }
        let full = call(&channel, "one").await;
        assert!(full.is_error && full.content.contains("too much"), "{full:?}");
        agent.end().await;
    })
    .await;
    assert_eq!(log.error, None);
    assert_eq!(made(&toolbox).len(), 16);
}

/// An agent without MCP over HTTP is not told of the servers, and people are told so.
#[tokio::test(start_paused = true)]
async fn servers_are_offered_to_agents_that_support_them() {
    for (can, taken) in [
        (json!({ "mcpCapabilities": { "http": true }, "loadSession": true }), true),
        (
            json!({ "mcpCapabilities": { "http": true }, "loadSession": true, "sessionCapabilities": { "resume": {} } }),
            true,
        ),
        (json!({ "mcpCapabilities": { "sse": true }, "loadSession": true }), false),
        (json!({ "loadSession": true }), false),
        // Its profile counts for more than its capabilities.
        (json!({ "mcpCapabilities": { "http": true }, "loadSession": true, "ignores": true }), false),
    ] {
        let part = |can: Value, begins: &'static str| -> AgentScript {
            Box::new(move |pipes| {
                Box::pin(async move {
                    let (agent, first) = AcpAgent::begin(pipes, can).await;
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
        let (spawner, _) = FakeSpawner::new(profile, parts).with_server();
        let spawner = Arc::new(spawner);
        let backend =
            CliBackend::acp(Arc::clone(&spawner) as Arc<dyn Spawner>, IDLE_TIMEOUT, &ProcessLimit::new(32));
        let toolbox = TestToolbox::strict();
        let notices = |log: &TurnLog| log.notices().into_iter().map(str::to_owned).collect::<Vec<_>>();
        let expected: &[&str] = if taken { &[] } else { &["servers_left_out"] };
        let first = turn(&backend, "a", &toolbox).await;
        assert_eq!(
            (notices(&first), &first.error),
            (expected.iter().map(|&code| code.to_owned()).collect(), &None)
        );
        // The session got other servers: the agent is started again, with these.
        spawner.edition.store(2, Ordering::Relaxed);
        let second = turn(&backend, "a", &toolbox).await;
        assert_eq!(
            (notices(&second), &second.error),
            (expected.iter().map(|&code| code.to_owned()).collect(), &None)
        );
        assert_eq!(spawner.started.lock().unwrap().len(), 2);
        backend.shutdown().await;
    }
}
