//! The steps of a turn, and the laws L1 to L9. Each test of a law has its number as a prefix.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tribune_client::{RpcClient, RpcIncoming};
use tribune_config::{LogConfig, LogLevel};
use tribune_constitution::ANONYMOUS_TOOLS;
use tribune_daemon::daemon::{Daemon, DaemonOverrides};
use tribune_daemon::telemetry;
use tribune_ledger::{EntryQuality, Timestamp};
use tribune_runtime::content::text_of;
use tribune_runtime::{
    AgentRuntime, CloseReason, ErrorKind, EventKind, EventStream, Handle, RuntimeError, RuntimeEvent,
    SessionInput, SessionState, SessionStatus, StopReason, ToolCall, TurnInput,
};
use tribune_storage::clock::{Clock, SystemClock};
use tribune_storage::home::Home;
use tribune_storage::store::EntryFilter;
use tribune_storage::store::Reader;
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, output_text, run_turn, turn_params};

use crate::raw_clients::{
    RawMessage, RawSocket, assert_healthy, events_until, http, is_done, start_with, within,
};

const KEY: &str = "agent:main:cli:local:dm:governed";
const SCOUT: &str = "agent:scout:cli:local:dm:operator";

/// The roster line of an agent that accepts messages from `main`.
const SCOUT_LINE: &str = "{\"id\":\"scout\",\"accepts_from\":[\"main\"]}";

fn with_agents(lines: &str) -> TempHome {
    let home = TempHome::new();
    home.write("data/agent-roster.jsonl", &format!("{{\"id\":\"main\",\"standing\":true}}\n{lines}\n"));
    home
}

async fn open(client: &mut RpcClient, key: &str) -> Value {
    client.call("session.init", &json!({ "session_key": key })).await.unwrap()
}

/// The entries of a session, oldest first.
async fn entries(client: &mut RpcClient, key: &str) -> Vec<Value> {
    let tail = client.call("ledger.tail", &json!({ "entity_id": key, "limit": 1000 })).await.unwrap();
    tail["entries"].as_array().unwrap().iter().map(|entry| entry["entry"].clone()).collect()
}

fn error_codes(events: &[Value]) -> Vec<&str> {
    let errors = events.iter().filter(|event| event["type"] == "error");
    errors.map(|event| event["code"].as_str().unwrap()).collect()
}

/// A faulty backend; its input selects the fault.
#[derive(Debug)]
struct FaultyBackend;

fn event_stream(kinds: Vec<EventKind>) -> EventStream {
    let numbered = kinds.into_iter().zip(1..).map(|(kind, seq)| Ok(RuntimeEvent { seq, kind }));
    stream::iter(numbered.collect::<Vec<_>>()).boxed()
}

fn done() -> EventKind {
    EventKind::Done { stop_reason: StopReason::EndTurn }
}

fn thought(text: String) -> EventKind {
    EventKind::ReasoningDelta { text }
}

#[async_trait]
impl AgentRuntime for FaultyBackend {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        Ok(Handle { key: Arc::new(input.key), session_id: "its own idea of an id".into() })
    }

    fn run_turn(&self, _: &Handle, input: TurnInput) -> EventStream {
        let name = || "exec".to_owned();
        match text_of(&input.content).as_str() {
            "claims a call" => event_stream(vec![
                EventKind::ToolCall { id: "c".into(), name: name(), input: json!({}) },
                done(),
            ]),
            "claims a result" => {
                let content = "it is done".to_owned();
                event_stream(vec![EventKind::ToolResult { id: "c".into(), content, is_error: false }, done()])
            }
            "claims a turn" => event_stream(vec![EventKind::TurnStarted { turn: "b3:0".into() }, done()]),
            "says nothing" => stream::empty().boxed(),
            "panics" => panic!("a panic before the stream exists"),
            "pends" => stream::pending().boxed(),
            // An endless turn that ignores every cancel.
            "chatters" => {
                stream::repeat_with(|| Ok(RuntimeEvent { seq: 1, kind: thought("and".to_owned()) })).boxed()
            }
            "thinks too much" => {
                let page = "x".repeat(64 << 10);
                stream::repeat_with(move || Ok(RuntimeEvent { seq: 1, kind: thought(page.clone()) })).boxed()
            }
            "calls twice under one id" => {
                let tools = input.tools;
                let call =
                    |name: &str| ToolCall { id: "same".into(), name: name.to_owned(), input: json!({}) };
                let (first, second, odd) = (call("read"), call("read"), call("rm -rf /"));
                let calls = async move {
                    let mut outcomes = Vec::new();
                    for call in [first, second, odd] {
                        outcomes.push(tools.call(call).await.content);
                    }
                    let text = outcomes.join("\n");
                    stream::iter(
                        [EventKind::TextDelta { text }, done()].map(|kind| Ok(RuntimeEvent { seq: 1, kind })),
                    )
                };
                stream::once(calls).flatten().boxed()
            }
            _ => event_stream(vec![EventKind::TextDelta { text: "I behave".into() }, done()]),
        }
    }

    async fn cancel(&self, _: &Handle) -> Result<(), RuntimeError> {
        std::future::pending().await
    }

    async fn close(&self, _: &Handle, _: CloseReason) -> Result<(), RuntimeError> {
        Err(RuntimeError::new(ErrorKind::from_code("clingy"), "it does not stop"))
    }

    async fn status(&self, _: &Handle) -> Result<SessionStatus, RuntimeError> {
        Ok(SessionStatus { state: SessionState::Idle, backend: "rogue".into(), model: None })
    }
}

const FAULTY_KEY: &str = "agent:rogue:cli:local:dm:operator";

async fn start_faulty() -> (TestDaemon, RpcClient) {
    let backends = vec![("rogue".to_owned(), Arc::new(FaultyBackend) as Arc<dyn AgentRuntime>)];
    let home = with_agents("{\"id\":\"rogue\",\"backend\":\"rogue\"}");
    let daemon =
        start_with(home, &config(), DaemonOverrides { backends, ..DaemonOverrides::default() }).await;
    let mut client = daemon.operator().await;
    open(&mut client, FAULTY_KEY).await;
    (daemon, client)
}

async fn assert_usable(client: &mut RpcClient) {
    let (events, result) = within("the next turn", run_turn(client, FAULTY_KEY, "behave")).await.unwrap();
    assert_eq!((output_text(&events).as_str(), &result["stop_reason"]), ("I behave", &json!("end_turn")));
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_backend_that_reports_its_own_effects_is_stopped() {
    let (daemon, mut client) = start_faulty().await;
    for word in ["claims a call", "claims a result", "claims a turn"] {
        let (events, result) = run_turn(&mut client, FAULTY_KEY, word).await.unwrap();
        assert_eq!(error_codes(&events), ["ungoverned"], "{word}");
        assert_eq!(result["stop_reason"], "error", "{word}");
        let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        assert_eq!((of("tool_call"), of("tool_result"), of("turn_started")), (0, 0, 1), "{word}");
        assert_usable(&mut client).await;
    }
    let entries = entries(&mut client, FAULTY_KEY).await;
    assert!(
        !entries.iter().any(|entry| entry["quality"] == "tool_call" || entry["quality"] == "tool_result")
    );
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_every_call_has_a_verdict_of_its_own() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    open(&mut client, KEY).await;
    let script = "!repeat 5\n!call read {\"path\":\"x\"}\n!call exec {}\n!end\n!together\n!call search {\"query\":\"a\"}\n!call write {}\n!call read {\"path\":\"y\"}\n!end";
    let (events, _) = run_turn(&mut client, KEY, script).await.unwrap();
    let entries = entries(&mut client, KEY).await;
    let of = |quality: &str| -> Vec<&Value> {
        entries.iter().filter(|entry| entry["quality"] == quality).collect()
    };
    let calls = of("tool_call");
    assert_eq!(calls.len(), 13);
    assert_eq!(events.iter().filter(|event| event["type"] == "tool_call").count(), 13);
    for call in calls {
        let under: Vec<&Value> =
            of("policy_verdict").into_iter().filter(|verdict| verdict["parents"][0] == call["cid"]).collect();
        assert_eq!(under.len(), 1, "{call}");
        let (verdict, payload) = (under[0], &under[0]["payload"]);
        assert_eq!(
            (&payload["tool"], &payload["input_hash"]),
            (&call["payload"]["tool"], &call["payload"]["input_hash"])
        );
        let results: Vec<&Value> =
            of("tool_result").into_iter().filter(|result| result["parents"][0] == call["cid"]).collect();
        assert_eq!(results.len(), 1, "{call}");
        if payload["decision"] == "deny" {
            assert_eq!(results[0]["payload"]["outcome"], "denied");
            assert_eq!(results[0]["parents"], json!([call["cid"], verdict["cid"]]));
        } else {
            assert_eq!(results[0]["payload"]["outcome"], "ran");
        }
    }
}

/// A clock that records, for each time it gives, which calls and verdicts were on disk at that time.
struct RecordingClock {
    home: Home,
    next: AtomicI64,
    seen: Mutex<Vec<(String, usize, usize)>>,
}

impl Clock for RecordingClock {
    fn now(&self) -> Timestamp {
        let millis = self.next.fetch_add(1, Ordering::SeqCst);
        let now = Timestamp::new(jiff::Timestamp::from_millisecond(millis).unwrap());
        if let Ok(reader) = Reader::open(&self.home) {
            let count = |quality| {
                let filter = EntryFilter { entity_id: Some(KEY.to_owned()), quality: Some(quality) };
                reader.tail(&filter, 1000).unwrap().len()
            };
            let on_disk = (count(EntryQuality::ToolCall), count(EntryQuality::PolicyVerdict));
            self.seen.lock().unwrap().push((now.to_string(), on_disk.0, on_disk.1));
        }
        now
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_the_call_and_its_verdict_are_on_disk_before_the_effect() {
    let home = TempHome::new();
    let witness = Arc::new(RecordingClock {
        home: home.home.clone(),
        next: AtomicI64::new(1_800_000_000_000),
        seen: Mutex::default(),
    });
    let daemon = Daemon::start(&home.home, &config(), Arc::clone(&witness) as Arc<dyn Clock>).await.unwrap();
    let daemon = TestDaemon { daemon, home };
    let mut client = daemon.operator().await;
    open(&mut client, KEY).await;
    let script = "!call send_message {\"to\":\"main\",\"text\":\"one\"}\n!call send_message {\"to\":\"main\",\"text\":\"two\"}";
    run_turn(&mut client, KEY, script).await.unwrap();
    let mailbox = daemon.home.read("data/agent-mailbox.jsonl");
    let mailbox_messages: Vec<Value> =
        mailbox.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(mailbox_messages.len(), 2);
    for (message, number) in mailbox_messages.iter().zip(1..) {
        // The timestamp of a mailbox message is taken just before the message is written.
        let seen = witness.seen.lock().unwrap();
        let (_, calls, verdicts) = seen.iter().find(|(at, ..)| message["at"] == *at).unwrap();
        assert_eq!((*calls, *verdicts), (number, ANONYMOUS_TOOLS.len() + number), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l3_unknown_tools_and_values_are_refused() {
    let home = with_agents(
        "{\"id\":\"lawless\",\"mandate\":\"missing\"}\n{\"id\":\"bodiless\",\"backend\":\"missing\"}",
    );
    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut client = daemon.operator().await;
    for (agent, code, words) in [
        (
            "nobody",
            "unknown_agent",
            "there is no such agent: `tribune agents list` shows them, `tribune agents add` adds one",
        ),
        (
            "lawless",
            "no_mandate",
            "there is no mandate `missing`: add mandates/missing.md, or name another in the roster",
        ),
        (
            "bodiless",
            "unknown_backend",
            "there is no backend `missing`: this build has acp, claude_code, native, rehearsal",
        ),
    ] {
        let refused = client.call("session.init", &json!({ "agent_id": agent })).await.unwrap_err();
        assert_eq!((refused.code(), refused.to_string().as_str()), (Some(code), words));
    }
    for (add, words) in [
        (json!({ "agent_id": "new", "mandate": "missing" }), "there is no mandate `missing`"),
        (json!({ "agent_id": "new", "backend": "missing" }), "there is no backend `missing`"),
    ] {
        let refused = client.call("agent.add", &add).await.unwrap_err();
        assert!(
            refused.code() == Some("invalid_params") && refused.to_string().starts_with(words),
            "{refused}"
        );
    }
    open(&mut client, KEY).await;
    let (events, _) =
        run_turn(&mut client, KEY, "!call nuke {}\n!call Read {}\n!call READ {}").await.unwrap();
    let texts = events.iter().filter(|event| event["type"] == "tool_result");
    let texts: Vec<&str> = texts.map(|event| event["content"].as_str().unwrap()).collect();
    assert!(
        texts.len() == 3 && texts.iter().all(|texts| texts.starts_with("denied (tool.unknown)")),
        "{texts:?}"
    );
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l3_a_daemon_does_not_start_on_a_broken_law_or_roster() {
    let standing = |line: &str| format!("{line}\n");
    for (file, content, words) in [
        ("mandates/default.md", "tools: read\n".to_owned(), "a mandate begins with its front matter"),
        ("mandates/default.md", "---\ntools: read, exce\n---\n".to_owned(), "unknown tool `exce`"),
        ("mandates/default.md", "---\ntools: read, exec\n---\n".to_owned(), "not exec"),
        ("mandates/x.md", "---\ntolls: read\n---\n".to_owned(), "unknown key `tolls`"),
        ("mandates/X Y.md", "---\ntools: read\n---\n".to_owned(), "cannot name a mandate"),
        ("data/agent-roster.jsonl", standing("{\"id\":\"a\",\"mandat\":\"x\"}"), "unknown field `mandat`"),
        (
            "data/agent-roster.jsonl",
            standing("{\"id\":\"a\",\"standing\":true,\"mandate\":\"x\"}"),
            "there is no mandate `x`",
        ),
        (
            "data/agent-roster.jsonl",
            standing("{\"id\":\"a\",\"standing\":true,\"backend\":\"x\"}"),
            "there is no backend `x`",
        ),
        ("scenes/bad.scene", "sya hello\n".to_owned(), "Did you mean `say`?"),
    ] {
        let home = TempHome::new();
        home.write(file, &content);
        let refused =
            Daemon::start(&home.home, &config(), Arc::new(SystemClock)).await.unwrap_err().to_string();
        assert!(refused.contains(words), "{file}: {refused}");
        assert!(!home.home.root().join("run/daemon.json").exists(), "{file}: no daemon was announced");
        // A daemon that failed to start does not hold the lock of the home.
        std::fs::remove_file(home.home.root().join(file)).unwrap();
        let daemon = TestDaemon::start_at(home, &config()).await;
        assert_healthy(&daemon).await;
        daemon.stop().await;
    }
}

/// Every file under `root` that contains `canary`, by its path below `root`.
fn found(root: &Path, canary: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            let is_folder = path.is_dir();
            let holds = |bytes: &[u8]| memchr::memmem::find(bytes, canary.as_bytes()).is_some();
            if holds(name.as_bytes()) || !is_folder && std::fs::read(&path).is_ok_and(|bytes| holds(&bytes)) {
                found.push(name);
            }
            if is_folder {
                folders.push(path);
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn l5_no_content_and_no_secret_is_in_a_log_the_ledger_or_an_error() {
    let home = with_agents(SCOUT_LINE);
    let log = LogConfig { level: LogLevel::Debug, max_bytes: 8 << 20, files: 4 };
    telemetry::start(home.home.root(), &log).unwrap();
    home.write("agents/main/workspace/notes.txt", "canary-file in a file\n");
    let daemon = TestDaemon::start_at(home, &config()).await;
    let token = daemon.token();
    // Built from pieces, so that a secret scanner does not report this file.
    let secrets = [
        format!("sk-ant-{}-{}", "api03", "A1b2C3d4".repeat(8)),
        format!("ghp{}{}", "_", "aB3dE5gH7j".repeat(4)),
    ];
    let mut client = daemon.operator().await;
    open(&mut client, KEY).await;
    open(&mut client, SCOUT).await;
    let mut answers = Vec::new();
    // The ledger keeps the facts of a verdict: names of files, programs and recipients are not canaries here.
    for script in [
        "canary-user says hello".to_owned(),
        "!say canary-said\n!think canary-thought\n!slowly 1ms canary-slow words".to_owned(),
        "!call read {\"path\":\"notes.txt\"}\n!say $result".to_owned(),
        "!call read {\"path\":\"fact-path.txt\"}".to_owned(),
        "!call search {\"query\":\"canary-query\"}".to_owned(),
        "!call search {\"qurey\":\"canary-misspelt\"}".to_owned(),
        "!call exec {\"command\":\"fact-command canary-operand\"}\n!arguments write {\"text\":\"canary-argument\"}"
            .to_owned(),
        "!call send_message {\"to\":\"scout\",\"text\":\"canary-message\"}".to_owned(),
        "!call send_message {\"to\":\"fact-nobody\",\"text\":\"canary-lost\"}".to_owned(),
        "!ask canary-question".to_owned(),
        "canary-answer".to_owned(),
        "!fail oops canary-failure".to_owned(),
        "!panic canary-panic".to_owned(),
        "!canary-command-of-a-script".to_owned(),
        format!("!say the keys are {} and {} and {token}", secrets[0], secrets[1]),
        format!("my key is {}, and {} and the token {token}", secrets[0], secrets[1]),
    ] {
        answers.push(run_turn(&mut client, KEY, &script).await.unwrap().1);
    }
    assert_eq!(answers.iter().filter(|answer| answer["stop_reason"] == "error").count(), 3);
    let (events, _) = run_turn(&mut client, SCOUT, "what is new?").await.unwrap();
    assert!(output_text(&events).contains("canary-message"));
    let hung = client.send("turn.run", &turn_params(KEY, "!say canary-hung\n!hang")).await.unwrap();
    events_until(&mut client, "it hangs", |event| event["type"] == "text_delta").await;
    client.send("session.cancel", &json!({ "session_key": KEY })).await.unwrap();
    within("it is cancelled", async {
        while !matches!(client.next().await.unwrap(), RpcIncoming::Response(id, _) if id == hung) {}
    })
    .await;
    // Invalid requests of every kind, over RPC and REST.
    for (method, params) in [
        ("canary-method", json!({})),
        ("session.status", json!({ "canary-member": 1 })),
        ("session.status", json!({ "session_key": "canary-key" })),
        ("session.init", json!({ "mode": "canary-mode" })),
        ("session.init", json!({ "agent_id": "canary-agent" })),
        ("turn.run", json!({ "session_key": KEY, "input": { "content": [{ "type": "canary-block" }] } })),
        ("ledger.entry", json!({ "entry": "canary-entry" })),
        ("turn.run", json!({ "session_key": KEY, "input": "canary-input" })),
        ("turn.run", json!({ "session_key": KEY, "input": { "content": "canary-content" } })),
        ("turn.run", json!({ "session_key": KEY, "input": { "content": ["canary-piece"] } })),
        ("turn.run", json!({ "session_key": KEY, "input": { "content": [], "canary-extra": 1 } })),
        ("turn.run", json!({ "session_key": KEY, "input": { "content": [] }, "wait": "canary-wait" })),
        ("session.list", json!({ "state": "canary-state" })),
        ("session.list", json!({ "limit": "canary-limit" })),
        ("session.list", json!({ "state": token })),
        ("session.status", json!({ "session_key": token })),
        ("agent.show", json!({ "agent_id": token })),
        ("ledger.tail", json!({ "quality": "canary-quality" })),
        ("approval.decide", json!({ "id": "canary-id", "decision": "canary-decision" })),
        ("approval.show", json!({ "id": "canary-id" })),
        (token.as_str(), json!({})),
        ("auth.token", json!({ token.as_str(): 1 })),
        ("auth.token", json!({ "token": "canary-token" })),
        ("auth.agent", json!({ "public_key": "canary-public", "signature": "canary-signature" })),
    ] {
        let refused = client.call(method, &params).await.unwrap_err();
        assert!(refused.code().is_some(), "{method}: {refused}");
        let texts = refused.to_string();
        assert!(!texts.contains("canary-") && !texts.contains(&token), "{method}: {texts}");
    }
    let mut raw = RawSocket::operator(&daemon).await;
    for frame in [
        "canary-frame",
        "{\"canary-member\":1}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":[\"canary-list\"]}",
    ] {
        let RawMessage::Text(refused) = raw.request(frame).await else { panic!("{frame}") };
        assert!(!refused.to_string().contains("canary-"), "{refused}");
    }
    let head = format!("Host: {}\r\nConnection: close\r\n", daemon.address());
    let bearer = format!("Authorization: Bearer {token}\r\n");
    for request in [
        format!("GET /v1/sessions/canary-rest HTTP/1.1\r\n{head}{bearer}\r\n"),
        format!("GET /v1/sessions?canary-query=1 HTTP/1.1\r\n{head}{bearer}\r\n"),
        format!("GET /v1/sessions?state=canary-state HTTP/1.1\r\n{head}{bearer}\r\n"),
        format!("GET /v1/sessions?limit={token} HTTP/1.1\r\n{head}{bearer}\r\n"),
        format!("GET /v1/ledger/entries/canary-entry HTTP/1.1\r\n{head}{bearer}\r\n"),
        format!("GET /canary-page HTTP/1.1\r\n{head}\r\n"),
        format!("GET /v1/status HTTP/1.1\r\n{head}Authorization: Bearer canary-bearer\r\n\r\n"),
        "GET /v1/status HTTP/1.1\r\nHost: canary-host\r\nConnection: close\r\n\r\n".to_owned(),
        format!("GET /v1/status HTTP/1.1\r\n{head}Origin: http://canary-origin\r\n\r\n"),
        format!(
            "POST /v1/sessions HTTP/1.1\r\n{head}{bearer}Content-Type: application/json\r\nContent-Length: 14\r\n\r\n\"canary-body\" }}"
        ),
    ] {
        let answer = http(&daemon.address(), request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        assert!(!answer.contains("canary-") && !answer.contains(&token), "{answer}");
    }
    client.call("session.close", &json!({ "session_key": KEY })).await.unwrap();
    open(&mut client, KEY).await;
    let history =
        client.call("session.history", &json!({ "session_key": KEY, "limit": 1000 })).await.unwrap();
    assert!(history.to_string().contains("canary-user"), "the vault contains the words");

    let root = daemon.home.home.root().to_owned();
    let look = |when: &str| {
        let places = found(&root, "canary-");
        let allowed = |name: &String| {
            name == "data/agent-mailbox.jsonl"
                || name.starts_with("agents/")
                    && (name.contains("/sessions/") || name.contains("/workspace/"))
        };
        let leaks: Vec<&String> = places.iter().filter(|name| !allowed(name)).collect();
        assert!(leaks.is_empty(), "{when}: {leaks:?}");
        assert!(
            places.iter().any(|name| name.contains("/sessions/")),
            "{when}: the transcript has the words"
        );
        for secret in &secrets {
            assert_eq!(found(&root, secret), Vec::<String>::new(), "{when}");
        }
        assert_eq!(found(&root, &token), ["run/token"], "{when}");
        let logged: u64 = std::fs::read_dir(root.join("logs/gateway"))
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
        assert!(logged > 0, "{when}: there is a log");
    };
    look("while the daemon runs");
    drop(client);
    let home = daemon.stop().await;
    look("after it stopped");
    assert_sound(&home.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn l6_views_equal_their_rebuild_after_a_mixed_run() {
    let daemon = TestDaemon::start_at(with_agents(SCOUT_LINE), &config()).await;
    let mut client = daemon.operator().await;
    for (key, mode) in [(KEY, "domain"), (SCOUT, "persistent"), ("agent:main:cli:local:dm:once", "oneshot")] {
        client.call("session.init", &json!({ "session_key": key, "mode": mode })).await.unwrap();
        for script in [
            "!call send_message {\"to\":\"scout\",\"text\":\"x\"}\n!call exec {}",
            "!fail oops broken",
            "!panic x",
        ] {
            if run_turn(&mut client, key, script).await.is_err() {
                break;
            }
        }
    }
    client.call("session.forget", &json!({ "session_key": KEY })).await.unwrap();
    open(&mut client, KEY).await;
    run_turn(&mut client, KEY, "again").await.unwrap();
    drop(client);
    let home = daemon.stop().await;
    assert!(assert_sound(&home.home) > 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn l9_full_queue_answers_busy_and_loses_nothing() {
    let mut config = config();
    config.sessions.queue = 2;
    let daemon = TestDaemon::start_at(TempHome::new(), &config).await;
    let mut client = daemon.operator().await;
    open(&mut client, KEY).await;
    let hangs = client.send("turn.run", &turn_params(KEY, "!say here I hang.\n!hang")).await.unwrap();
    events_until(&mut client, "the first turn runs", |event| event["type"] == "text_delta").await;
    let mut asked = Vec::new();
    for n in 1..=4 {
        asked.push(client.send("turn.run", &turn_params(KEY, &format!("!say turn {n}"))).await.unwrap());
    }
    for id in &asked[2..] {
        let RpcIncoming::Response(of, answer) = within("an answer", client.next()).await.unwrap() else {
            panic!("an event")
        };
        let refused = answer.unwrap_err();
        assert_eq!((of, refused.code()), (*id, Some("busy")));
        assert!(refused.to_string().contains("has as many turns waiting as it may (2)"), "{refused}");
    }
    let cancel = client.send("session.cancel", &json!({ "session_key": KEY })).await.unwrap();
    let (mut ended, mut events) = (Vec::new(), Vec::new());
    while ended.len() < 4 {
        match within("the queued turns run", client.next()).await.unwrap() {
            RpcIncoming::Notification(update) => events.push(update.params["event"].clone()),
            RpcIncoming::Response(id, answer) => ended.push((id, answer.unwrap())),
        }
    }
    let reason =
        |id: u64| ended.iter().find(|(of, _)| *of == id).map(|(_, answer)| answer["stop_reason"].clone());
    assert!(ended.iter().any(|(id, _)| *id == cancel));
    assert_eq!(reason(hangs), Some(json!("cancelled")));
    assert_eq!((reason(asked[0]), reason(asked[1])), (Some(json!("end_turn")), Some(json!("end_turn"))));
    assert_eq!(output_text(&events), "turn 1turn 2");
    let (events, _) = run_turn(&mut client, KEY, "!say turn 3").await.unwrap();
    assert_eq!(output_text(&events), "turn 3");
    let turns = client.call("session.turns", &json!({ "session_key": KEY })).await.unwrap();
    assert_eq!(turns["turns"].as_array().unwrap().len(), 4, "a refused request leaves no entry");
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_steps_of_a_turn_are_recorded_in_order() {
    let home = with_agents(SCOUT_LINE);
    home.write("agents/scout/workspace/a.txt", "hello\n");
    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut client = daemon.operator().await;
    open(&mut client, KEY).await;
    open(&mut client, SCOUT).await;
    for n in 1..=2 {
        let message = format!("!call send_message {{\"to\":\"scout\",\"text\":\"letter {n}\"}}");
        run_turn(&mut client, KEY, &message).await.unwrap();
        run_turn(&mut client, SCOUT, "!call read {\"path\":\"a.txt\"}\n!say $result").await.unwrap();
    }
    let entries = entries(&mut client, SCOUT).await;
    let qualities: Vec<&str> = entries.iter().map(|entry| entry["quality"].as_str().unwrap()).collect();
    let offers = ["policy_verdict"; ANONYMOUS_TOOLS.len()];
    let one_turn =
        [&["turn", "mailbox_inject"][..], &offers, &["tool_call", "policy_verdict", "tool_result", "turn"]]
            .concat();
    assert_eq!(qualities, [&["session_lifecycle"][..], &one_turn, &one_turn].concat());
    assert_eq!(entries[0]["payload"]["event"], "opened");
    let cid = |entry: &Value| entry["cid"].clone();
    let mut before = None;
    for turn in entries[1..].chunks(one_turn.len()) {
        let [started, message, gates @ .., call, verdict, result, completed] = turn else {
            panic!("{turn:?}")
        };
        assert_eq!(
            (&started["payload"]["phase"], &completed["payload"]["phase"]),
            (&json!("started"), &json!("completed"))
        );
        // The chain of turns, in the payload and in the parents.
        assert_eq!(started["payload"]["prev_cid"], json!(before));
        assert_eq!(completed["payload"]["prev_cid"], json!(before));
        assert_eq!(started["parents"], json!(before.iter().collect::<Vec<_>>()));
        assert_eq!(message["parents"], json!([cid(started)]));
        let tools: Vec<&Value> = gates.iter().map(|gate| &gate["payload"]["tool"]).collect();
        assert_eq!(tools, ANONYMOUS_TOOLS);
        for gate in gates {
            assert_eq!(
                (&gate["parents"], &gate["payload"]["input_hash"]),
                (&json!([cid(started)]), &Value::Null)
            );
        }
        assert_eq!(call["parents"], json!([cid(started)]));
        assert_eq!(verdict["parents"], json!([cid(call)]));
        assert_eq!(verdict["payload"]["input_hash"], call["payload"]["input_hash"]);
        assert_eq!(result["parents"], json!([cid(call)]));
        assert_eq!(completed["parents"], json!([cid(started), cid(result)]));
        assert!(completed["payload"]["outputs_hash"].as_str().unwrap().starts_with("b3c:"));
        assert_eq!(completed["payload"]["inputs_hash"], started["payload"]["inputs_hash"]);
        before = Some(cid(started));
    }
}

/// The mailbox messages that a turn began with.
fn mailbox_messages(events: &[Value]) -> Vec<String> {
    let injected = events.iter().filter(|event| event["type"] == "mailbox_injected");
    injected.map(|event| event["entry"]["payload"]["letter"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn mailbox_message_arrives_once_in_the_next_turn() {
    let daemon = TestDaemon::start_at(with_agents(SCOUT_LINE), &config()).await;
    let mut client = daemon.operator().await;
    open(&mut client, KEY).await;
    open(&mut client, SCOUT).await;
    let (events, _) = run_turn(&mut client, SCOUT, "anything?").await.unwrap();
    assert_eq!(mailbox_messages(&events), Vec::<String>::new());
    run_turn(&mut client, KEY, "!call send_message {\"to\":\"scout\",\"text\":\"look north\"}")
        .await
        .unwrap();
    let (events, _) = run_turn(&mut client, SCOUT, "anything?").await.unwrap();
    let got = mailbox_messages(&events);
    assert_eq!(got.len(), 1);
    assert!(output_text(&events).contains("[mailbox from main: look north]"), "{}", output_text(&events));
    assert!(daemon.home.read("data/agent-mailbox.jsonl").contains(&format!("{{\"ack\":\"{}\"", got[0])));
    let (events, _) = run_turn(&mut client, SCOUT, "and now?").await.unwrap();
    assert_eq!(mailbox_messages(&events), Vec::<String>::new());
    // A crash lost an acknowledgement: the session knows the message and does not take it twice.
    drop(client);
    let home = daemon.stop().await;
    let mailbox = home.read("data/agent-mailbox.jsonl");
    let unread: String = mailbox
        .lines()
        .filter(|line| !line.starts_with("{\"ack\""))
        .map(|line| format!("{line}\n"))
        .collect();
    home.write("data/agent-mailbox.jsonl", &unread);
    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut client = daemon.operator().await;
    for _ in 0..2 {
        let (events, _) = run_turn(&mut client, SCOUT, "after the restart").await.unwrap();
        assert_eq!(mailbox_messages(&events), Vec::<String>::new());
    }
    assert!(daemon.home.read("data/agent-mailbox.jsonl").contains("{\"ack\""), "it is acknowledged again");
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_of_two_sessions_gets_a_mailbox_message() {
    let daemon = TestDaemon::start_at(with_agents(SCOUT_LINE), &config()).await;
    let mut client = daemon.operator().await;
    open(&mut client, KEY).await;
    let keys = ["a", "b", "c"].map(|peer| format!("agent:scout:cli:local:dm:{peer}"));
    let mut readers = Vec::new();
    for key in &keys {
        open(&mut client, key).await;
        readers.push(daemon.operator().await);
    }
    for round in 0..30 {
        run_turn(&mut client, KEY, "!call send_message {\"to\":\"scout\",\"text\":\"for one\"}")
            .await
            .unwrap();
        let turns = readers.iter_mut().zip(&keys).map(|(reader, key)| run_turn(reader, key, "hello"));
        let ended = futures_util::future::join_all(turns).await;
        let got: usize = ended.into_iter().map(|ended| mailbox_messages(&ended.unwrap().0).len()).sum();
        assert_eq!(got, 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_stays_usable_after_every_backend_fault() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    open(&mut client, KEY).await;
    for (script, code) in [
        ("!panic with a bang", "backend_panicked"),
        ("!fail oops it broke", "oops"),
        ("!sya x", "bad_script"),
    ] {
        let (events, result) = run_turn(&mut client, KEY, script).await.unwrap();
        assert_eq!((error_codes(&events), &result["stop_reason"]), (vec![code], &json!("error")), "{script}");
        let (events, _) = run_turn(&mut client, KEY, "!say still here").await.unwrap();
        assert_eq!(output_text(&events), "still here");
    }
    for script in ["!say I\n!hang", "!say I\n!deaf", "!say I\n!wait 3600s"] {
        let id = client.send("turn.run", &turn_params(KEY, script)).await.unwrap();
        events_until(&mut client, "it says something", |event| event["type"] == "text_delta").await;
        let running = client.call("session.status", &json!({ "session_key": KEY })).await.unwrap();
        assert_eq!(running["state"], "running", "{script}");
        assert_eq!(
            client.call("session.cancel", &json!({ "session_key": KEY })).await.unwrap(),
            json!({ "cancelled": true })
        );
        let reason = within("it ends", async {
            loop {
                if let RpcIncoming::Response(of, answer) = client.next().await.unwrap()
                    && of == id
                {
                    return answer.unwrap()["stop_reason"].clone();
                }
            }
        })
        .await;
        assert_eq!(reason, "cancelled", "{script}");
        let status = client.call("session.status", &json!({ "session_key": KEY })).await.unwrap();
        assert_eq!(status["state"], "cancelled", "{script}");
        assert_eq!(
            client.call("session.cancel", &json!({ "session_key": KEY })).await.unwrap(),
            json!({ "cancelled": false })
        );
        let (events, _) = run_turn(&mut client, KEY, "!say still here").await.unwrap();
        assert_eq!(output_text(&events), "still here");
    }
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn faulty_backend_affects_only_its_own_turn() {
    let (daemon, mut client) = start_faulty().await;
    for (word, code) in
        [("says nothing", "ended_early"), ("panics", "backend_panicked"), ("thinks too much", "too_long")]
    {
        let (events, result) = within(word, run_turn(&mut client, FAULTY_KEY, word)).await.unwrap();
        assert_eq!((error_codes(&events), &result["stop_reason"]), (vec![code], &json!("error")), "{word}");
        assert_usable(&mut client).await;
    }
    // A turn can be cancelled although its backend is silent, floods, or ignores the cancel.
    for word in ["pends", "chatters"] {
        let id = client.send("turn.run", &turn_params(FAULTY_KEY, word)).await.unwrap();
        events_until(&mut client, word, |event| event["type"] == "policy_gate").await;
        client.send("session.cancel", &json!({ "session_key": FAULTY_KEY })).await.unwrap();
        let reason = within("a backend that ignores the cancel is abandoned", async {
            loop {
                if let RpcIncoming::Response(of, answer) = client.next().await.unwrap()
                    && of == id
                {
                    return answer.unwrap()["stop_reason"].clone();
                }
            }
        })
        .await;
        assert_eq!(reason, "cancelled", "{word}");
        assert_usable(&mut client).await;
    }
    let (events, _) = run_turn(&mut client, FAULTY_KEY, "calls twice under one id").await.unwrap();
    let texts = output_text(&events);
    assert!(texts.contains("the call id `same` was used before in this turn"), "{texts}");
    assert!(texts.contains("a tool's name has 1 to 64 letters"), "{texts}");
    // A backend that does not stop does not keep a session open.
    let closed = client.call("session.close", &json!({ "session_key": FAULTY_KEY })).await.unwrap();
    assert_eq!(closed["state"], "closed");
    let refused = client.call("turn.run", &turn_params(FAULTY_KEY, "behave")).await.unwrap_err();
    assert_eq!(refused.code(), Some("session_closed"));
    open(&mut client, FAULTY_KEY).await;
    assert_usable(&mut client).await;
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_the_turn_and_refuses_queued_turns() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    for round in 0..20 {
        open(&mut client, KEY).await;
        let mut turns = Vec::new();
        for _ in 0..3 {
            turns.push(client.send("turn.run", &turn_params(KEY, "!hang")).await.unwrap());
        }
        if round % 2 == 0 {
            events_until(&mut client, "a turn runs", |event| event["type"] == "policy_gate").await;
        }
        let close = client.send("session.close", &json!({ "session_key": KEY })).await.unwrap();
        let mut answers = Vec::new();
        while answers.len() < 4 {
            if let RpcIncoming::Response(id, answer) =
                within("closing does not wait for turns", client.next()).await.unwrap()
            {
                answers.push((id, answer));
            }
        }
        for (id, answer) in answers {
            match answer {
                Ok(closed) if id == close => assert_eq!(closed["state"], "closed"),
                Ok(ended) => assert_eq!(ended["stop_reason"], "cancelled"),
                Err(refused) => assert_eq!((id != close, refused.code()), (true, Some("session_closed"))),
            }
        }
        client.take_notifications();
    }
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn turn_continues_after_its_connection_is_lost() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    open(&mut client, KEY).await;
    client.send("turn.run", &turn_params(KEY, "!say one\n!wait 50ms\n!say two")).await.unwrap();
    events_until(&mut client, "it begins", |event| event["type"] == "text_delta").await;
    drop(client);
    let mut client = daemon.operator().await;
    client.call("session.events", &json!({ "session_key": KEY, "after": 0 })).await.unwrap();
    let events = events_until(&mut client, "it ends all the same", is_done).await;
    assert_eq!(
        (output_text(&events).as_str(), &events[events.len() - 1]["stop_reason"]),
        ("one\ntwo", &json!("end_turn"))
    );
}
