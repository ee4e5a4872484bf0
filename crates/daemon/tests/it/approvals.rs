//! Approvals: calls are parked, decided, refused, resumed after a restart, and never executed twice.

use std::sync::Arc;

use serde_json::{Value, json};
use tribune_client::{RpcClient, RpcIncoming};
use tribune_config::{Config, Sandbox};
use tribune_daemon::daemon::Daemon;
use tribune_storage::store::Reader;
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, output_text, run_turn, turn_params};

use crate::fixture::ManualClock;
use crate::raw_clients::{http, within};
use crate::vault::vault;

pub(crate) const KEY: &str = "agent:main:cli:local:dm:op";
const MANDATE: &str = "---\ntools: read, search, send_message, write, edit, exec\n---\n# For work\n";
const ROSTER: &str = "{\"id\":\"main\",\"backend\":\"rehearsal\",\"mandate\":\"dev\",\"standing\":false}\n";
const ASK: &str = r#"@id("ask-write") forbid(principal, action == Tribune::Action::"write", resource) unless { context.approved };"#;

/// A home whose agent needs an approval to write.
pub(crate) fn home() -> TempHome {
    let home = TempHome::new();
    home.write("mandates/dev.md", MANDATE);
    home.write("data/agent-roster.jsonl", ROSTER);
    home.write("policy/ask.cedar", ASK);
    home
}

async fn daemon() -> TestDaemon {
    TestDaemon::start_at(home(), &config()).await
}

pub(crate) async fn open(client: &mut RpcClient) {
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
}

pub(crate) fn write(path: &str, content: &str) -> String {
    format!("!call write {}\n!say $result", json!({ "path": path, "content": content }))
}

/// Waits for `n` pending approvals and returns them.
pub(crate) async fn pending(client: &mut RpcClient, n: usize) -> Vec<Value> {
    for _ in 0..2_000 {
        let page = client.call("approval.list", &json!({})).await.unwrap();
        let approvals = page["approvals"].as_array().unwrap().clone();
        if approvals.len() == n {
            return approvals;
        }
        tokio::task::yield_now().await;
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    panic!("{n} approvals did not arrive");
}

pub(crate) fn id(approval: &Value) -> String {
    approval["id"].as_str().unwrap().to_owned()
}

pub(crate) async fn decide(
    client: &mut RpcClient,
    id: &str,
    decision: Value,
) -> Result<Value, tribune_client::ClientError> {
    let mut params = decision;
    params["id"] = id.into();
    client.call("approval.decide", &params).await
}

/// Waits for the response to a turn that was sent earlier; returns it with the text of the turn.
pub(crate) async fn ended(client: &mut RpcClient, id: u64) -> (Value, String) {
    let mut events = Vec::new();
    loop {
        match client.next().await.unwrap() {
            RpcIncoming::Response(of, answer) if of == id => return (answer.unwrap(), output_text(&events)),
            RpcIncoming::Response(..) => {}
            RpcIncoming::Notification(update) => events.push(update.params["event"].clone()),
        }
    }
}

pub(crate) fn written(home: &TempHome, path: &str) -> Option<String> {
    std::fs::read_to_string(home.home.root().join("agents/main/workspace").join(path)).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_parked_call_waits_for_a_decision_and_runs_once() {
    let daemon = daemon().await;
    let (mut talker, mut approver) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let running = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "hello"))).await.unwrap();
    let waiting = pending(&mut approver, 1).await;
    assert_eq!((&waiting[0]["tool"], &waiting[0]["rules"]), (&json!("write"), &json!(["policy.ask-write"])));
    assert_eq!(written(&daemon.home, "a.txt"), None);
    let id = id(&waiting[0]);
    let card = approver.call("approval.show", &json!({ "id": id })).await.unwrap();
    assert_eq!(card["action"]["input"], json!({ "path": "a.txt", "content": "hello" }));
    let decided = decide(&mut approver, &id, json!({ "decision": "allow_once" })).await.unwrap();
    assert_eq!(decided["state"], "allowed");
    let (result, _) = ended(&mut talker, running).await;
    assert_eq!(result["stop_reason"], "end_turn");
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("hello"));
    // `allow_once` covers one call.
    let again = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "again"))).await.unwrap();
    let waiting = pending(&mut approver, 1).await;
    decide(
        &mut approver,
        waiting[0]["id"].as_str().unwrap(),
        json!({ "decision": "deny", "reason": "not now" }),
    )
    .await
    .unwrap();
    let (_, output) = ended(&mut talker, again).await;
    assert!(output.contains("denied by operator: not now"), "{output}");
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("hello"));
    drop((talker, approver));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_duplicate_unknown_and_unauthorized_decisions_are_refused() {
    let home = home();
    home.write("policy/law.json5", r#"{ approvals: { roles: { write: ["security"] } } }"#);
    let daemon = TestDaemon::start_at(home, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let (mut hired, mut tokens) = (Vec::new(), Vec::new());
    for (name, roles) in [("alice", json!(["security"])), ("bob", json!(["finance"]))] {
        let made = operator.call("approver.add", &json!({ "id": name, "roles": roles })).await.unwrap();
        let token = made["token"].as_str().unwrap().to_owned();
        hired.push(RpcClient::connect(&daemon.address(), Some(&token)).await.unwrap());
        tokens.push(token);
    }
    let [alice, bob] = &mut hired[..] else { panic!() };
    let refused = operator.call("approver.add", &json!({ "id": "main" })).await.unwrap_err();
    assert_eq!(refused.code(), Some("invalid_params"), "an agent cannot decide its own call");
    for method in ["session.list", "daemon.status", "ledger.tail", "agent.list", "approver.add"] {
        assert_eq!(alice.call(method, &json!({})).await.unwrap_err().code(), Some("forbidden"), "{method}");
    }
    let running = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "x"))).await.unwrap();
    let id = id(&pending(&mut operator, 1).await[0]);
    let allow = json!({ "decision": "allow_once" });
    assert_eq!(decide(alice, "00000000", allow.clone()).await.unwrap_err().code(), Some("not_found"));
    assert_eq!(decide(bob, &id, allow.clone()).await.unwrap_err().code(), Some("forbidden"));
    let payload = allow.to_string();
    let request = format!(
        "POST /v1/approvals/{id}/decision HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{payload}",
        tokens[1],
        payload.len(),
        address = daemon.address(),
    );
    let answer = http(&daemon.address(), request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(pending(&mut operator, 1).await[0]["id"], id);
    assert_eq!(
        decide(alice, &id, json!({ "decision": "maybe" })).await.unwrap_err().code(),
        Some("invalid_params")
    );
    assert_eq!(decide(alice, &id, allow.clone()).await.unwrap()["state"], "allowed");
    for who in [&mut operator, alice] {
        assert_eq!(decide(who, &id, allow.clone()).await.unwrap_err().code(), Some("conflict"));
    }
    ended(&mut talker, running).await;
    drop((talker, operator, hired));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_concurrent_decisions_wins() {
    let daemon = daemon().await;
    let (mut talker, mut one, mut two) =
        (daemon.operator().await, daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    for round in 0..10 {
        let path = format!("{round}.txt");
        let running = talker.send("turn.run", &turn_params(KEY, &write(&path, "x"))).await.unwrap();
        let id = id(&pending(&mut one, 1).await[0]);
        let (a, b) = tokio::join!(
            decide(&mut one, &id, json!({ "decision": "allow_once" })),
            decide(&mut two, &id, json!({ "decision": "deny" }))
        );
        assert_eq!(a.is_ok(), b.is_err(), "{a:?} {b:?}");
        let loser = [&a, &b].into_iter().find_map(|result| result.as_ref().err()).unwrap();
        assert_eq!(loser.code(), Some("conflict"));
        ended(&mut talker, running).await;
        assert_eq!(written(&daemon.home, &path).is_some(), a.is_ok());
    }
    drop((talker, one, two));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_with_two_approvers_waits_for_both() {
    let home = home();
    home.write("policy/law.json5", r#"{ approvals: { twoPerson: ["write"] } }"#);
    let daemon = TestDaemon::start_at(home, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let made = operator.call("approver.add", &json!({ "id": "alice" })).await.unwrap();
    let mut alice = RpcClient::connect(&daemon.address(), made["token"].as_str()).await.unwrap();
    let running = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "x"))).await.unwrap();
    let id = id(&pending(&mut operator, 1).await[0]);
    let allow = json!({ "decision": "allow_once" });
    let first = decide(&mut operator, &id, allow.clone()).await.unwrap();
    assert_eq!((&first["state"], &first["missing"]), (&json!("pending"), &json!(1)));
    assert_eq!(decide(&mut operator, &id, allow.clone()).await.unwrap_err().code(), Some("conflict"));
    assert_eq!(written(&daemon.home, "a.txt"), None);
    assert_eq!(decide(&mut alice, &id, allow).await.unwrap()["state"], "allowed");
    ended(&mut talker, running).await;
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("x"));
    drop((talker, operator, alice));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn undecided_call_is_denied_at_its_deadline() {
    let home = home();
    home.write("policy/law.json5", "{ approvals: { expiresMinutes: 10 } }");
    let hand = Arc::new(ManualClock::at(1_800_000_000));
    let started = Daemon::start(&home.home, &config(), Arc::clone(&hand) as _).await.unwrap();
    let daemon = TestDaemon { daemon: started, home };
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let running = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "x"))).await.unwrap();
    let id = id(&pending(&mut operator, 1).await[0]);
    hand.set(1_800_000_000 + 601);
    let late = decide(&mut operator, &id, json!({ "decision": "allow_once" })).await.unwrap_err();
    assert_eq!(late.code(), Some("conflict"));
    let (_, output) = ended(&mut talker, running).await;
    assert!(output.contains("nobody decided in time"), "{output}");
    assert_eq!(written(&daemon.home, "a.txt"), None);
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_call_survives_a_restart_and_runs_once() {
    let daemon = daemon().await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    talker.send("turn.run", &turn_params(KEY, &write("a.txt", "late"))).await.unwrap();
    let id = id(&pending(&mut operator, 1).await[0]);
    drop((talker, operator));
    let home = daemon.stop().await;
    assert_sound(&home.home);

    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut operator = daemon.operator().await;
    assert_eq!(pending(&mut operator, 1).await[0]["id"], id);
    assert_eq!(written(&daemon.home, "a.txt"), None);
    decide(&mut operator, &id, json!({ "decision": "allow_once" })).await.unwrap();
    for _ in 0..2_000 {
        if written(&daemon.home, "a.txt").is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("late"));
    std::fs::remove_file(daemon.home.home.root().join("agents/main/workspace/a.txt")).unwrap();
    // The agent is notified before its next turn.
    let (events, _) = run_turn(&mut operator, KEY, "hello").await.unwrap();
    let notified = events.iter().filter(|event| event["type"] == "mailbox_injected").count();
    assert_eq!(notified, 1);
    drop(operator);
    let home = daemon.stop().await;

    let daemon = TestDaemon::start_at(home, &config()).await;
    assert_eq!(written(&daemon.home, "a.txt"), None, "it ran a second time");
    assert_sound(&daemon.stop().await.home);
}

/// The process can be killed after the ledger has the request and before the vault has its input.
#[tokio::test(flavor = "multi_thread")]
async fn parked_call_without_its_input_is_withdrawn_and_the_agent_notified() {
    let daemon = daemon().await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let mut ids = Vec::new();
    for n in 1..=2 {
        let key = format!("{KEY}-{n}");
        talker.call("session.init", &json!({ "session_key": key })).await.unwrap();
        talker.send("turn.run", &turn_params(&key, &write(&format!("{n}.txt"), "late"))).await.unwrap();
        let waiting = pending(&mut operator, n).await;
        let own = waiting.iter().find(|approval| approval["session_key"] == key.as_str());
        ids.push(id(own.unwrap()));
    }
    drop((talker, operator));
    let home = daemon.stop().await;
    let newest = "DELETE FROM contents WHERE session = (SELECT MAX(session) FROM sessions)";
    assert!(vault(&home.home).execute(newest, []).unwrap() > 0);

    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut operator = daemon.operator().await;
    assert_eq!(
        id(&pending(&mut operator, 1).await[0]),
        ids[0],
        "the call that has its input is still pending"
    );
    let refused = decide(&mut operator, &ids[1], json!({ "decision": "allow_once" })).await.unwrap_err();
    assert!(refused.to_string().contains("withdrawn"), "{refused}");
    let notified = async {
        loop {
            let (events, _) = run_turn(&mut operator, &format!("{KEY}-2"), "hello").await.unwrap();
            if events.iter().any(|event| event["type"] == "mailbox_injected") {
                return;
            }
        }
    };
    within("the agent is notified", notified).await;
    drop(operator);
    let home = daemon.stop().await;
    let reader = Reader::open(&home.home).unwrap();
    let open: Vec<String> = reader.open_work().unwrap().into_iter().map(|work| work.session_key).collect();
    assert_eq!(open, [format!("{KEY}-1")], "the lost call is ended");
    assert_eq!(written(&home, "2.txt"), None);
    assert_sound(&home.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_call_changed_after_approval_requires_a_new_approval() {
    let home = home();
    home.write("agents/main/workspace/a.txt", "old");
    let daemon = TestDaemon::start_at(home, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let running = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "new"))).await.unwrap();
    let first = id(&pending(&mut operator, 1).await[0]);
    daemon.home.write("agents/main/workspace/a.txt", "something else");
    decide(&mut operator, &first, json!({ "decision": "allow_once" })).await.unwrap();
    let second = loop {
        let waiting = pending(&mut operator, 1).await;
        if waiting[0]["id"] != first {
            break waiting[0].clone();
        }
    };
    assert_eq!((&second["instead_of"], &second["changed"]), (&json!(first), &json!(["file a.txt"])));
    let card = operator.call("approval.show", &json!({ "id": id(&second) })).await.unwrap();
    let no_newline = "\\ No newline at end of file\n";
    let diff = format!(
        "--- a.txt, as approved\n+++ a.txt, now\n@@ -1 +1 @@\n-old\n{no_newline}+something else\n{no_newline}"
    );
    assert_eq!(card["diff"], diff);
    assert_eq!(card["action"]["texts"], Value::Null, "the diff shows the change");
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("something else"));
    decide(&mut operator, &id(&second), json!({ "decision": "allow_once" })).await.unwrap();
    ended(&mut talker, running).await;
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("new"));
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_card_shows_past_calls_that_a_pattern_would_cover() {
    let daemon = daemon().await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    for (path, decision) in [("notes/a.txt", "allow_once"), ("notes/b.txt", "deny"), ("c.txt", "allow_once")]
    {
        let running = talker.send("turn.run", &turn_params(KEY, &write(path, "1"))).await.unwrap();
        let asked = id(&pending(&mut operator, 1).await[0]);
        decide(&mut operator, &asked, json!({ "decision": decision })).await.unwrap();
        ended(&mut talker, running).await;
    }
    talker.send("turn.run", &turn_params(KEY, &write("notes/d.txt", "1"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    let card = operator.call("approval.show", &json!({ "id": asked })).await.unwrap();
    assert_eq!(
        card["past"],
        json!([
            { "pattern": "notes/d.txt", "covered": 0, "asked": 3, "denied": 0 },
            { "pattern": "notes/**", "covered": 2, "asked": 3, "denied": 1 },
        ])
    );
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_covers_its_subject_until_revoked() {
    let daemon = daemon().await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let running = talker.send("turn.run", &turn_params(KEY, &write("notes/a.txt", "1"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    let narrow = json!({ "decision": "allow_pattern", "pattern": "other/**" });
    assert_eq!(decide(&mut operator, &asked, narrow).await.unwrap_err().code(), Some("invalid_params"));
    let pattern = json!({ "decision": "allow_pattern", "pattern": "notes/**" });
    let grant = decide(&mut operator, &asked, pattern).await.unwrap()["grant"].clone();
    ended(&mut talker, running).await;
    // The grant covers the same folder and no other one.
    let (_, result) = run_turn(&mut talker, KEY, &write("notes/b.txt", "2")).await.unwrap();
    assert_eq!(result["stop_reason"], "end_turn");
    assert_eq!(written(&daemon.home, "notes/b.txt").as_deref(), Some("2"));
    let running = talker.send("turn.run", &turn_params(KEY, &write("b.txt", "3"))).await.unwrap();
    let other = id(&pending(&mut operator, 1).await[0]);
    decide(&mut operator, &other, json!({ "decision": "deny" })).await.unwrap();
    ended(&mut talker, running).await;
    // The grant and its end survive a restart.
    drop((talker, operator));
    let daemon = TestDaemon::start_at(daemon.stop().await, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    run_turn(&mut talker, KEY, &write("notes/c.txt", "4")).await.unwrap();
    assert_eq!(written(&daemon.home, "notes/c.txt").as_deref(), Some("4"));
    operator.call("grant.revoke", &json!({ "id": grant })).await.unwrap();
    let running = talker.send("turn.run", &turn_params(KEY, &write("notes/d.txt", "5"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    decide(&mut operator, &asked, json!({ "decision": "deny_stop" })).await.unwrap();
    let (result, _) = ended(&mut talker, running).await;
    assert_eq!(result["stop_reason"], "cancelled");
    assert_eq!(
        operator.call("grant.revoke", &json!({ "id": grant })).await.unwrap_err().code(),
        Some("not_found")
    );
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn global_freeze_holds_until_an_approver_resumes() {
    let daemon = daemon().await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let parked = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "x"))).await.unwrap();
    let waiting = id(&pending(&mut operator, 1).await[0]);
    let stopped = operator.call("gate.stop_all", &json!({})).await.unwrap();
    assert_eq!((&stopped["frozen"], &stopped["cancelled"]), (&json!(true), &json!(1)));
    let (result, _) = ended(&mut talker, parked).await;
    assert_eq!(result["stop_reason"], "cancelled");
    let refused = talker.call("turn.run", &turn_params(KEY, "hello")).await.unwrap_err();
    assert!(refused.to_string().contains("everything is stopped"), "{refused}");
    let early = decide(&mut operator, &waiting, json!({ "decision": "allow_once" })).await.unwrap_err();
    assert_eq!(early.code(), Some("conflict"));
    // The freeze survives a restart.
    drop((talker, operator));
    let daemon = TestDaemon::start_at(daemon.stop().await, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    assert!(talker.call("turn.run", &turn_params(KEY, "hello")).await.is_err());
    operator.call("gate.resume", &json!({})).await.unwrap();
    let (events, _) = run_turn(&mut talker, KEY, "!say back").await.unwrap();
    assert_eq!(output_text(&events), "back");
    decide(&mut operator, &waiting, json!({ "decision": "deny" })).await.unwrap();
    assert_eq!(written(&daemon.home, "a.txt"), None);
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_grant_ends_with_its_session() {
    let daemon = daemon().await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let running = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "1"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    decide(&mut operator, &asked, json!({ "decision": "allow_session" })).await.unwrap();
    ended(&mut talker, running).await;
    run_turn(&mut talker, KEY, &write("a.txt", "2")).await.unwrap();
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("2"));
    operator.call("session.close", &json!({ "session_key": KEY })).await.unwrap();
    let grants = operator.call("grant.list", &json!({})).await.unwrap();
    assert_eq!(grants["grants"], json!([]));
    // A new session under the same key does not have the grant, now and after a restart.
    open(&mut talker).await;
    talker.send("turn.run", &turn_params(KEY, &write("a.txt", "3"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    decide(&mut operator, &asked, json!({ "decision": "deny_stop" })).await.unwrap();
    drop((talker, operator));
    let daemon = TestDaemon::start_at(daemon.stop().await, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    talker.send("turn.run", &turn_params(KEY, &write("a.txt", "4"))).await.unwrap();
    pending(&mut operator, 1).await;
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("2"));
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

/// A home whose agent needs an approval to run a program.
fn home_with_scripts() -> (TempHome, Config) {
    let home = home();
    home.write("agents/main/workspace/c.sh", "echo harmless > out\n");
    home.write("agents/main/workspace/b.sh", "#!/bin/sh\necho harmless > out\n");
    let program = home.home.root().join("agents/main/workspace/b.sh");
    std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    (home, Config { sandbox: Sandbox::Off, ..config() })
}

fn exec(line: &str) -> String {
    format!("!call exec {}\n!say $result", json!({ "command": line }))
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_a_granted_command_runs_the_bytes_that_were_granted() {
    for (line, script) in [("sh c.sh", "c.sh"), ("./b.sh", "b.sh")] {
        let (home, config) = home_with_scripts();
        let daemon = TestDaemon::start_at(home, &config).await;
        let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
        open(&mut talker).await;
        let running = talker.send("turn.run", &turn_params(KEY, &exec(line))).await.unwrap();
        let asked = id(&pending(&mut operator, 1).await[0]);
        decide(&mut operator, &asked, json!({ "decision": "allow_session" })).await.unwrap();
        ended(&mut talker, running).await;
        assert_eq!(written(&daemon.home, "out").as_deref(), Some("harmless\n"), "{line}");
        std::fs::remove_file(daemon.home.home.root().join("agents/main/workspace/out")).unwrap();
        run_turn(&mut talker, KEY, &exec(line)).await.unwrap();
        assert_eq!(written(&daemon.home, "out").as_deref(), Some("harmless\n"), "{line}");
        // Other bytes are another command.
        daemon.home.write(&format!("agents/main/workspace/{script}"), "#!/bin/sh\necho evil > out\n");
        let running = talker.send("turn.run", &turn_params(KEY, &exec(line))).await.unwrap();
        let asked = id(&pending(&mut operator, 1).await[0]);
        decide(&mut operator, &asked, json!({ "decision": "deny" })).await.unwrap();
        ended(&mut talker, running).await;
        assert_eq!(written(&daemon.home, "out").as_deref(), Some("harmless\n"), "{line}");
        drop((talker, operator));
        assert_sound(&daemon.stop().await.home);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workspace_program_gets_no_grant_pattern() {
    let (home, config) = home_with_scripts();
    let inside = home.home.root().join("agents/main/workspace/b.sh");
    let daemon = TestDaemon::start_at(home, &config).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    for program in ["./b.sh", &inside.display().to_string()] {
        let running =
            talker.send("turn.run", &turn_params(KEY, &exec(&format!("{program} x")))).await.unwrap();
        let asked = id(&pending(&mut operator, 1).await[0]);
        for wide in [format!("{program} *"), format!("{program} **")] {
            let wish = json!({ "decision": "allow_pattern", "pattern": wide });
            let refused = decide(&mut operator, &asked, wish).await.unwrap_err();
            assert_eq!(refused.code(), Some("invalid_params"), "{wide}: {refused}");
        }
        decide(&mut operator, &asked, json!({ "decision": "deny" })).await.unwrap();
        ended(&mut talker, running).await;
    }
    talker.send("turn.run", &turn_params(KEY, &exec("./b.sh x"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    let card = operator.call("approval.show", &json!({ "id": asked })).await.unwrap();
    assert_eq!(card["patterns"], json!(["./b.sh x"]));
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_can_never_run_requires_no_approval() {
    let home = home();
    let tools = "write, edit, exec, message, send_message, cron, gateway, browser";
    home.write("mandates/dev.md", &format!("---\ntools: {tools}\n---\n"));
    home.write(
        "policy/ask.cedar",
        r#"@id("ask") forbid(principal, action, resource) unless { context.approved };"#,
    );
    home.write("agents/main/workspace/a.txt", "");
    let out = home.home.root().join("agents/main/workspace/out");
    std::os::unix::fs::symlink("/", out).unwrap();
    let daemon = TestDaemon::start_at(home, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    for (tool, input, expected) in [
        ("write", json!({ "foo": 1 }), "has no field `foo`"),
        ("write", json!({ "path": "a" }), "`content` is missing"),
        ("write", json!({ "path": "/etc/x", "content": "" }), "leads out of the workspace"),
        ("write", json!({ "path": "../../../etc/x", "content": "" }), "leads out of the workspace"),
        ("edit", json!({ "path": "gone", "old": "a", "new": "b" }), "there is no `gone`"),
        ("exec", json!({ "command": "x", "timeout": -5 }), "has no field `timeout`"),
        ("message", json!({ "to": "nobody-there", "text": "x" }), "there is no agent"),
        ("message", json!({ "to": "channel:none", "text": "x" }), "no channel"),
        ("send_message", json!({ "to": "nobody-there", "text": "x" }), "there is no agent"),
        ("cron", json!({ "action": "frob" }), "`action` is one of"),
        ("gateway", json!({ "action": "restart" }), "is not provided here"),
        ("browser", json!({ "action": "open" }), "is not provided here"),
        ("browser", json!({ "url": "https://example.org/" }), "is not provided here"),
        ("exec", json!({ "command": "ls", "cwd": "out" }), "leads out of the workspace"),
        ("exec", json!({ "command": "ls", "cwd": "a.txt" }), "`a.txt` is a file"),
    ] {
        let script = format!("!call {tool} {input}\n!say $result");
        let (events, _) =
            within("a response without an approval", run_turn(&mut talker, KEY, &script)).await.unwrap();
        assert!(output_text(&events).contains(expected), "{tool} {input}: {}", output_text(&events));
    }
    let asked = operator.call("approval.list", &json!({ "state": "any" })).await.unwrap();
    assert_eq!(asked["approvals"], json!([]));
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_denial_is_reported_and_leaves_the_session_unchanged() {
    let daemon = daemon().await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    talker.send("turn.run", &turn_params(KEY, &write("a.txt", "late"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    drop((talker, operator));
    let home = daemon.stop().await;
    let labels = |home: &TempHome| Reader::open(&home.home).unwrap().session(KEY).unwrap().unwrap().labels;
    let before = labels(&home);
    home.write(
        "policy/no.cedar",
        r#"@id("no") forbid(principal, action == Tribune::Action::"write", resource);"#,
    );
    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut operator = daemon.operator().await;
    let decided = decide(&mut operator, &asked, json!({ "decision": "allow_once" })).await.unwrap();
    assert_eq!((&decided["state"], &decided["came_of_it"]), (&json!("allowed"), &json!("denied")));
    let is_told = |events: &[Value]| events.iter().any(|event| event["type"] == "mailbox_injected");
    // The message stays in the mailbox until the session that made the call runs a turn.
    let other = format!("{KEY}-other");
    operator.call("session.init", &json!({ "session_key": other })).await.unwrap();
    let (events, _) = run_turn(&mut operator, &other, "hello").await.unwrap();
    assert!(!is_told(&events), "{events:?}");
    let (events, _) = run_turn(&mut operator, KEY, "hello").await.unwrap();
    assert!(is_told(&events));
    assert_eq!(written(&daemon.home, "a.txt"), None);
    drop(operator);
    let home = daemon.stop().await;
    // The mailbox message comes from the daemon and tells the session about its own call.
    assert_eq!(labels(&home), before);
    assert_sound(&home.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn approver_cannot_decide_their_own_call() {
    let daemon = daemon().await;
    let mut operator = daemon.operator().await;
    let made = operator.call("approver.add", &json!({ "id": "alice", "roles": [] })).await.unwrap();
    let token = made["token"].as_str().unwrap().to_owned();
    let refused = operator.call("agent.add", &json!({ "agent_id": "alice" })).await.unwrap_err();
    assert!(refused.to_string().contains("the name of an approver"), "{refused}");
    drop(operator);
    let home = daemon.stop().await;
    // The daemon refuses the name; a file that was written by hand is not checked.
    home.write("data/agent-roster.jsonl", &format!("{ROSTER}{}", ROSTER.replace("main", "alice")));
    let daemon = TestDaemon::start_at(home, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    let key = "agent:alice:cli:local:dm:op";
    talker.call("session.init", &json!({ "session_key": key })).await.unwrap();
    let running = talker.send("turn.run", &turn_params(key, &write("a.txt", "mine"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    let mut alice = RpcClient::connect(&daemon.address(), Some(&token)).await.unwrap();
    for decision in ["allow_once", "allow_session", "deny"] {
        let refused = decide(&mut alice, &asked, json!({ "decision": decision })).await.unwrap_err();
        assert_eq!(refused.code(), Some("forbidden"), "{decision}: {refused}");
        assert!(refused.to_string().contains("yourself"), "{refused}");
    }
    assert_eq!(pending(&mut operator, 1).await[0]["id"], asked);
    decide(&mut operator, &asked, json!({ "decision": "deny" })).await.unwrap();
    ended(&mut talker, running).await;
    assert_eq!(written(&daemon.home, "a.txt"), None);
    drop((talker, operator, alice));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_script_swapped_after_the_request_requires_a_new_approval() {
    let (home, config) = home_with_scripts();
    let daemon = TestDaemon::start_at(home, &config).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let running = talker.send("turn.run", &turn_params(KEY, &exec("sh c.sh"))).await.unwrap();
    let first = id(&pending(&mut operator, 1).await[0]);
    daemon.home.write("agents/main/workspace/c.sh", "echo evil > out\n");
    decide(&mut operator, &first, json!({ "decision": "allow_once" })).await.unwrap();
    let second = loop {
        let waiting = pending(&mut operator, 1).await;
        if waiting[0]["id"] != first {
            break waiting[0].clone();
        }
    };
    assert_eq!((&second["instead_of"], &second["changed"]), (&json!(first), &json!(["file c.sh"])));
    let card = operator.call("approval.show", &json!({ "id": id(&second) })).await.unwrap();
    let diff = card["diff"].as_str().unwrap();
    assert!(diff.starts_with("--- c.sh, as approved\n+++ c.sh, now\n@@ "), "{diff}");
    assert!(diff.contains("\n-") && diff.contains("\n+echo evil > out\n"), "{diff}");
    assert_eq!(written(&daemon.home, "out"), None);
    decide(&mut operator, &id(&second), json!({ "decision": "deny" })).await.unwrap();
    ended(&mut talker, running).await;
    assert_eq!(written(&daemon.home, "out"), None);
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_call_is_not_asked_again_until_the_owner_speaks() {
    let daemon = daemon().await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let twice = format!("{}\n{}", write("a.txt", "x"), write("a.txt", "x"));
    let running = talker.send("turn.run", &turn_params(KEY, &twice)).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    decide(&mut operator, &asked, json!({ "decision": "deny", "reason": "no" })).await.unwrap();
    // The second call is denied without a card, so the turn ends.
    let (_, said) = within("the end of the turn", ended(&mut talker, running)).await;
    assert_eq!(said.matches("denied by operator: no").count(), 2, "{said}");
    assert_eq!(said.matches("nothing has changed since").count(), 1, "{said}");
    // A new message of the owner is a new context.
    let running = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "x"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    decide(&mut operator, &asked, json!({ "decision": "allow_once" })).await.unwrap();
    ended(&mut talker, running).await;
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("x"));
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}
