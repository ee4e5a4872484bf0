//! Agent-executed calls: calls that an agent runs itself. The law, the approvals and the ledger treat them like calls
//! of Tribune.

use std::sync::Arc;

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_config::{Config, Sandbox};
use tribune_constitution::{Labels, Trust};
use tribune_daemon::daemon::{Daemon, DaemonOverrides};
use tribune_ledger::EntryQuality;
use tribune_records::ledger_payloads::{CallOutcome, ToolCallRecord, ToolResultRecord};
use tribune_runtime::AgentRuntime;
use tribune_storage::clock::SystemClock;
use tribune_storage::store::Reader;
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, run_turn, turn_params};

use crate::approvals::{decide, ended, id, pending};
use crate::fake_agent_own_tools::{Act, OwnToolsAgent};

const KEY: &str = "agent:main:cli:local:dm:op";
const MANDATE: &str = "---\ntools: read, write, exec, web_fetch, mcp\n---\n";
const LAW: &str = r#"
    @id("free") permit(principal, action in [Tribune::Action::"read", Tribune::Action::"web_fetch", Tribune::Action::"mcp"], resource);
    @id("ask-write") forbid(principal, action == Tribune::Action::"write", resource) unless { context.approved };
"#;

struct Setup {
    daemon: TestDaemon,
    own_tools: OwnToolsAgent,
    talker: RpcClient,
    approver: RpcClient,
}

fn home() -> TempHome {
    let home = TempHome::new();
    home.write("mandates/own.md", MANDATE);
    let agent = json!({ "id": "main", "backend": "own-tools", "mandate": "own", "standing": false });
    home.write("data/agent-roster.jsonl", &format!("{agent}\n"));
    home.write("policy/own.cedar", LAW);
    home.write("agents/main/workspace/notes.txt", "private notes");
    home
}

async fn start_at(home: TempHome) -> Setup {
    let config = Config { sandbox: Sandbox::Off, ..config() };
    let own_tools = OwnToolsAgent::default();
    let backend = Arc::new(own_tools.clone()) as Arc<dyn AgentRuntime>;
    let extras =
        DaemonOverrides { backends: vec![("own-tools".to_owned(), backend)], ..DaemonOverrides::default() };
    let daemon = Daemon::start_with(&home.home, &config, Arc::new(SystemClock), extras).await.unwrap();
    let daemon = TestDaemon { daemon, home };
    let (mut talker, approver) = (daemon.operator().await, daemon.operator().await);
    talker.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    Setup { daemon, own_tools, talker, approver }
}

impl Setup {
    async fn run_acts(&mut self, acts: Vec<Act>) -> (Vec<Value>, Vec<String>) {
        self.own_tools.prepare(acts);
        let (events, _) = run_turn(&mut self.talker, KEY, "go").await.unwrap();
        (events, self.own_tools.answers())
    }

    async fn stop(self) -> TempHome {
        drop((self.talker, self.approver));
        self.daemon.stop().await
    }
}

fn write() -> Value {
    json!({ "path": "a.txt", "content": "hello" })
}

/// Returns the outcomes of all calls of the session, by call id, from the ledger.
fn outcomes(home: &TempHome) -> Vec<(String, CallOutcome)> {
    recorded_results(home).into_iter().map(|record| (record.call_id, record.outcome)).collect()
}

/// Returns the results of all calls from the ledger.
fn recorded_results(home: &TempHome) -> Vec<ToolResultRecord> {
    let reader = Reader::open(&home.home).unwrap();
    let mut found = Vec::new();
    for index in 0.. {
        let Some(stored) = reader.entry(index).unwrap() else { return found };
        if stored.entry.quality == EntryQuality::ToolResult {
            found.push(serde_json::from_str(&stored.entry.payload).unwrap());
        }
    }
    unreachable!()
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_permission_is_decided_by_the_law_and_recorded_with_the_agents_input() {
    let mut setup = start_at(home()).await;
    let acts = vec![
        Act::Ask("read", json!({ "path": "notes.txt" })),
        Act::Report(1, "private notes"),
        Act::Report(1, "reported twice"),
        Act::Report(9, "never asked for"),
        Act::Ask("send_message", json!({ "to": "x", "text": "y" })),
        Act::Ask("made_up", json!({})),
        Act::Ask("spend", json!({})),
    ];
    let (events, answers) = setup.run_acts(acts).await;
    assert_eq!(answers[0], "given");
    assert!(answers[1].starts_with("denied (mandate"), "{answers:?}");
    assert!(answers[2].starts_with("denied ("), "{answers:?}");
    assert!(answers[3].starts_with("there is no tool `spend`"), "{answers:?}");
    let results: Vec<&Value> = events.iter().filter(|event| event["type"] == "tool_result").collect();
    assert_eq!(results.len(), 3, "{results:?}");
    assert_eq!(results[0]["content"], "private notes");
    let call = events
        .iter()
        .filter(|event| event["type"] == "ledger_append")
        .map(|event| &event["entry"])
        .find(|entry| entry["quality"] == "tool_call")
        .unwrap();
    assert_eq!(call["payload"]["runner"], "agent");
    let record: ToolCallRecord = serde_json::from_value(call["payload"].clone()).unwrap();
    let row = setup.daemon.daemon.sessions().row(&KEY.parse().unwrap()).await.unwrap().unwrap();
    let vault = setup.daemon.daemon.sessions().vault();
    let words = vault.content(&row.id, &record.said_hash.unwrap().to_string()).unwrap();
    assert_eq!(words.as_deref(), Some(b"{ \"raw\" : \"read\" }".as_slice()), "byte by byte");
    let home = setup.stop().await;
    assert_sound(&home.home);
    let expected = [CallOutcome::Ran, CallOutcome::Denied, CallOutcome::Denied];
    assert_eq!(outcomes(&home).into_iter().map(|(_, how)| how).collect::<Vec<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_agent_executed_call_waits_for_approval() {
    let mut setup = start_at(home()).await;
    for (decision, answer) in [
        (json!({ "decision": "allow_once" }), "given"),
        (json!({ "decision": "deny", "reason": "no" }), "denied by operator: no"),
    ] {
        setup.own_tools.prepare(vec![Act::Ask("write", write()), Act::Report(1, "written")]);
        let running = setup.talker.send("turn.run", &turn_params(KEY, "go")).await.unwrap();
        let waiting = pending(&mut setup.approver, 1).await;
        let card = setup.approver.call("approval.show", &json!({ "id": id(&waiting[0]) })).await.unwrap();
        assert_eq!(card["action"]["input"], write());
        let reworded = json!({ "decision": "allow_once", "text": "other words" });
        let refused = decide(&mut setup.approver, &id(&waiting[0]), reworded).await.unwrap_err();
        assert_eq!(refused.code(), Some("invalid_params"), "a call of an agent has no other text");
        decide(&mut setup.approver, &id(&waiting[0]), decision).await.unwrap();
        ended(&mut setup.talker, running).await;
        assert_eq!(setup.own_tools.answers(), [answer]);
    }
    // A call that has begun cannot be approved any more.
    let (_, answers) = setup
        .run_acts(vec![Act::Begin("write", write()), Act::Begin("read", json!({ "path": "notes.txt" }))])
        .await;
    assert!(answers[0].contains("policy.ask-write") && answers[0].contains("under way"), "{answers:?}");
    assert_eq!(answers[1], "given");
    assert_eq!(setup.approver.call("approval.list", &json!({})).await.unwrap()["approvals"], json!([]));
    let home = setup.stop().await;
    assert_sound(&home.home);
    let how: Vec<CallOutcome> = outcomes(&home).into_iter().map(|(_, how)| how).collect();
    let expected = [CallOutcome::Ran, CallOutcome::Denied, CallOutcome::Denied, CallOutcome::Cancelled];
    assert_eq!(how, expected, "an unreported call is closed with its turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_or_frozen_turn_grants_no_permission() {
    let mut setup = start_at(home()).await;
    setup.own_tools.prepare(vec![Act::Ask("write", write())]);
    let running = setup.talker.send("turn.run", &turn_params(KEY, "go")).await.unwrap();
    let waiting = pending(&mut setup.approver, 1).await;
    setup.approver.call("session.cancel", &json!({ "session_key": KEY })).await.unwrap();
    let (result, _) = ended(&mut setup.talker, running).await;
    assert_eq!(result["stop_reason"], "cancelled");
    let late = decide(&mut setup.approver, &id(&waiting[0]), json!({ "decision": "allow_once" })).await;
    assert_eq!(late.unwrap_err().code(), Some("conflict"));
    assert!(setup.own_tools.answers().iter().all(|answer| answer != "given"));

    setup.own_tools.prepare(vec![Act::Ask("write", write())]);
    let running = setup.talker.send("turn.run", &turn_params(KEY, "go")).await.unwrap();
    pending(&mut setup.approver, 1).await;
    setup.approver.call("gate.stop_all", &json!({})).await.unwrap();
    ended(&mut setup.talker, running).await;
    assert!(setup.own_tools.answers().iter().all(|answer| answer != "given"));
    setup.approver.call("gate.resume", &json!({})).await.unwrap();
    assert_sound(&setup.stop().await.home);
}

/// A call that is pending when the daemon stops stays in the inbox. The agent requests it again; a decision made in
/// between counts once.
#[tokio::test(flavor = "multi_thread")]
async fn l2_decision_after_a_restart_releases_the_same_call_once() {
    let mut setup = start_at(home()).await;
    setup.own_tools.prepare(vec![Act::Ask("write", write())]);
    setup.talker.send("turn.run", &turn_params(KEY, "go")).await.unwrap();
    let approval = id(&pending(&mut setup.approver, 1).await[0]);
    let home = setup.stop().await;

    let mut setup = start_at(home).await;
    decide(&mut setup.approver, &approval, json!({ "decision": "allow_once" })).await.unwrap();
    let other = json!({ "path": "a.txt", "content": "something else" });
    setup.own_tools.prepare(vec![
        Act::Ask("write", other.clone()),
        Act::Ask("write", write()),
        Act::Report(2, "written"),
        Act::Ask("write", write()),
    ]);
    let running = setup.talker.send("turn.run", &turn_params(KEY, "go")).await.unwrap();
    // Another call is a new request.
    let asked = pending(&mut setup.approver, 1).await;
    let card = setup.approver.call("approval.show", &json!({ "id": id(&asked[0]) })).await.unwrap();
    assert_eq!(card["action"]["input"], other);
    decide(&mut setup.approver, &id(&asked[0]), json!({ "decision": "deny" })).await.unwrap();
    // The same call is released once.
    let again = loop {
        let waiting = pending(&mut setup.approver, 1).await;
        if waiting[0]["id"] != asked[0]["id"] {
            break waiting;
        }
    };
    decide(&mut setup.approver, &id(&again[0]), json!({ "decision": "deny" })).await.unwrap();
    ended(&mut setup.talker, running).await;
    assert_eq!(setup.own_tools.answers(), ["denied by operator", "given", "denied by operator"]);

    // A pending request without a decision is not created twice.
    setup.own_tools.prepare(vec![Act::Ask("write", write())]);
    setup.talker.send("turn.run", &turn_params(KEY, "go")).await.unwrap();
    let left = id(&pending(&mut setup.approver, 1).await[0]);
    let mut setup = start_at(setup.stop().await).await;
    assert_eq!(id(&pending(&mut setup.approver, 1).await[0]), left);
    setup.own_tools.prepare(vec![Act::Ask("write", write())]);
    let running = setup.talker.send("turn.run", &turn_params(KEY, "go")).await.unwrap();
    let asked = loop {
        let waiting = pending(&mut setup.approver, 1).await;
        if id(&waiting[0]) != left {
            break id(&waiting[0]);
        }
    };
    decide(&mut setup.approver, &asked, json!({ "decision": "allow_once" })).await.unwrap();
    ended(&mut setup.talker, running).await;
    assert_eq!(setup.own_tools.answers(), ["given"]);
    assert_sound(&setup.stop().await.home);
}

/// An agent that requests permission and lets Tribune execute the call gets exactly the allowed call, once.
#[tokio::test(flavor = "multi_thread")]
async fn l2_permitted_call_is_executed_once_exactly_as_allowed() {
    let mut setup = start_at(home()).await;
    let acts = vec![Act::Ask("write", write()), Act::Execute(1), Act::Execute(1), Act::Execute(7)];
    setup.own_tools.prepare(acts);
    let running = setup.talker.send("turn.run", &turn_params(KEY, "go")).await.unwrap();
    let waiting = pending(&mut setup.approver, 1).await;
    decide(&mut setup.approver, &id(&waiting[0]), json!({ "decision": "allow_once" })).await.unwrap();
    ended(&mut setup.talker, running).await;
    let answers = setup.own_tools.answers();
    assert_eq!(answers[0], "given");
    assert!(answers[2..].iter().all(|answer| answer.starts_with("there is no permission")), "{answers:?}");
    let file = setup.daemon.home.home.root().join("agents/main/workspace/a.txt");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "hello");
    let home = setup.stop().await;
    assert_sound(&home.home);
    assert_eq!(outcomes(&home), [("call-1".to_owned(), CallOutcome::Ran)]);
}

/// An agent can read first and report later, so labels change with the permission and not with the report.
#[tokio::test(flavor = "multi_thread")]
async fn l4_labels_change_with_the_permission() {
    let mut setup = start_at(home()).await;
    let acts = vec![
        Act::Ask("read", json!({ "path": "notes.txt" })),
        Act::Ask("web_fetch", json!({ "url": "https://example.org/" })),
        Act::Ask("web_fetch", json!({ "url": "https://example.org/?q=notes" })),
    ];
    setup.own_tools.prepare(acts);
    let running = setup.talker.send("turn.run", &turn_params(KEY, "go")).await.unwrap();
    let waiting = pending(&mut setup.approver, 1).await;
    assert!(waiting[0]["rules"].to_string().contains("trust.trifecta"), "{waiting:?}");
    decide(&mut setup.approver, &id(&waiting[0]), json!({ "decision": "deny" })).await.unwrap();
    ended(&mut setup.talker, running).await;
    let home = setup.stop().await;
    assert_sound(&home.home);
    let row = Reader::open(&home.home).unwrap().session(KEY).unwrap().unwrap();
    assert_eq!(row.labels, Labels { trust: Trust::Untrusted, private: true });
}

/// Only Tribune can call an MCP server of a session: a permission for that which is not used is no call. It is recorded as
/// cancelled, and neither the session nor its workspace takes on labels, whether the agent reports that or not.
#[tokio::test(flavor = "multi_thread")]
async fn l4_unused_permission_for_an_mcp_call_changes_no_labels() {
    let mut setup = start_at(home()).await;
    let input = json!({ "name": "probe", "action": "add", "arguments": {}, "definition": "b3:0" });
    let acts = vec![Act::Ask("mcp", input.clone()), Act::Unused(1), Act::Ask("mcp", input)];
    let (events, answers) = setup.run_acts(acts).await;
    assert_eq!(answers, ["given", "given"]);
    let results: Vec<&Value> = events.iter().filter(|event| event["type"] == "tool_result").collect();
    assert_eq!((&results[0]["content"], &results[0]["is_error"]), (&json!("it was not made"), &json!(true)));
    let home = setup.stop().await;
    assert_sound(&home.home);
    let ends = ["call-1", "call-2"].map(|id| (id.to_owned(), CallOutcome::Cancelled));
    assert_eq!(outcomes(&home), ends);
    for result in recorded_results(&home) {
        assert_eq!((result.labels, result.wrote), (Labels::FRESH, Vec::new()), "{}", result.call_id);
    }
    let row = Reader::open(&home.home).unwrap().session(KEY).unwrap().unwrap();
    assert_eq!(row.labels, Labels::FRESH);
}
