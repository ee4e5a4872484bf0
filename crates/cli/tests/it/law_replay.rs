//! `law replay` over a long mixed run: calls of every kind, people who allow, deny, grant and edit, sub-agents, calls
//! of external harnesses, a restart, and a law that changes midway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_runtime::ToolCall;
use tribune_storage::clock::{Clock as _, SystemClock};
use tribune_testkit::{TempHome, TestDaemon, config, run_turn};

use crate::fixture::cli_output;
use crate::in_process_daemon::{InProcessDaemon, command};

const MANDATE: &str = "---\ntools: cron, edit, exec, gateway, memory, message, read, search, send_message, spawn, web_fetch, web_search, write\n---\n# Everything\n";
const ROSTER: &str = "{\"id\":\"main\",\"backend\":\"rehearsal\",\"mandate\":\"dev\",\"standing\":false}\n\
                      {\"id\":\"scout\",\"backend\":\"rehearsal\",\"mandate\":\"default\",\"standing\":false,\"accepts_from\":[\"main\"]}\n";
const POLICY: &str = r#"@id("ask-reports") forbid(principal, action == Tribune::Action::"write", resource)
when { context has path && context.path like "reports/*" } unless { context.approved };
@id("no-secrets") forbid(principal, action, resource) when { context has path && context.path like "secrets/*" };
"#;

/// Turns before and after the change of the law.
const FIRST_TURNS: usize = 75;
const MORE_TURNS: usize = 50;

/// Calls that are repeated in a seeded random order.
fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("read", json!({ "path": "notes.txt" })),
        ("read", json!({ "path": "secrets/key" })),
        ("read", json!({ "path": "../../outside" })),
        ("search", json!({ "query": "hello" })),
        ("write", json!({ "path": "draft.txt", "content": "one" })),
        ("write", json!({ "path": "reports/a.txt", "content": "two" })),
        ("write", json!({ "path": "reports/b.txt", "content": "three" })),
        ("edit", json!({ "path": "notes.txt", "old": "hello", "new": "hallo" })),
        ("edit", json!({ "path": "notes.txt", "old": "hallo", "new": "hello" })),
        ("exec", json!({ "command": "ls -l | wc" })),
        ("exec", json!({ "command": "rm -rf $(cat x)" })),
        ("memory", json!({ "action": "set", "key": "k", "value": "v" })),
        ("memory", json!({ "action": "get", "key": "k" })),
        ("memory", json!({ "action": "list" })),
        ("send_message", json!({ "to": "scout", "text": "good day" })),
        ("message", json!({ "to": "agent:scout", "text": "good day" })),
        ("web_fetch", json!({ "url": "http://example.org/" })),
        ("web_search", json!({ "query": "x" })),
        ("cron", json!({ "action": "list" })),
        ("gateway", json!({ "action": "status" })),
        (
            "spawn",
            json!({ "task": "!call read {\"path\":\"notes.txt\"}\n!call exec {\"command\":\"ls\"}\n!say done" }),
        ),
        ("unheard_of", json!({ "path": 5 })),
        ("read", json!({ "path": 5 })),
    ]
}

/// A seeded random number generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// An approver who decides every waiting call, in a different way each time.
async fn person(mut client: RpcClient, is_over: Arc<AtomicBool>) -> usize {
    let mut decided = 0;
    while !is_over.load(Ordering::Relaxed) {
        let page = client.call("approval.list", &json!({})).await.unwrap();
        for card in page["approvals"].as_array().unwrap() {
            let until = SystemClock.now().plus(Duration::from_secs(2)).to_string();
            let mut decision = match decided % 6 {
                0 => json!({ "decision": "allow_once" }),
                1 => json!({ "decision": "deny", "reason": "not now" }),
                2 => json!({ "decision": "allow_once", "text": "in other words" }),
                3 => json!({ "decision": "allow_session" }),
                4 => json!({ "decision": "allow_until", "until": until }),
                _ => json!({ "decision": "deny" }),
            };
            decision["id"] = card["id"].clone();
            if client.call("approval.decide", &decision).await.is_err() {
                // For example a text that cannot be edited; denying always works.
                let no = json!({ "id": card["id"], "decision": "deny" });
                let _ = client.call("approval.decide", &no).await;
            }
            decided += 1;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    decided
}

/// Runs turns in three sessions, and calls of an external harness in a fourth.
async fn busy(daemon: &TestDaemon, dice: &mut Dice, turns: usize) -> usize {
    let calls = calls();
    let is_over = Arc::new(AtomicBool::new(false));
    let person = tokio::spawn(person(daemon.operator().await, Arc::clone(&is_over)));
    let mut client = daemon.operator().await;
    let key = |n: usize| format!("agent:main:cli:local:dm:s{n}");
    for n in 0..4 {
        client.call("session.init", &json!({ "session_key": key(n) })).await.unwrap();
    }
    let elsewhere = key(3).parse().unwrap();
    for n in 0..turns {
        let mut script = String::new();
        for _ in 0..8 {
            let (tool, input) = &calls[dice.below(calls.len())];
            script.push_str(&format!("!call {tool} {input}\n"));
        }
        script.push_str("!say done");
        run_turn(&mut client, &key(dice.below(3)), &script).await.unwrap();
        let (tool, input) = &calls[dice.below(calls.len())];
        let call = ToolCall { id: format!("{}-{n}", dice.0), name: (*tool).to_owned(), input: input.clone() };
        let governance = daemon.daemon.sessions().governance();
        governance.request_external_call(&elsewhere, call, Duration::ZERO).await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    person.await.unwrap()
}

#[test]
fn long_mixed_run_replays_identically() {
    let home = TempHome::new();
    home.write("mandates/dev.md", MANDATE);
    home.write("data/agent-roster.jsonl", ROSTER);
    home.write("policy/local.cedar", POLICY);
    home.write("agents/main/workspace/notes.txt", "hello");
    let mut dice = Dice(7);
    let daemon = InProcessDaemon::with(home, &config());
    let decided = daemon.with_daemon(async |daemon| busy(daemon, &mut dice, FIRST_TURNS).await);
    assert!(decided >= 20, "{decided} decisions are no mixed run");
    let home = daemon.stop();
    // The law changes by one byte; earlier verdicts belong to the law of their time.
    home.write("policy/local.cedar", &format!("{POLICY} "));
    let daemon = InProcessDaemon::with(home, &config());
    daemon.with_daemon(async |daemon| busy(daemon, &mut dice, MORE_TURNS).await);

    let value: Value = serde_json::from_str(&daemon.ok(&["--json", "law", "replay"])).unwrap();
    let all = value["verdicts"].as_u64().unwrap();
    assert!(all >= 1_000, "{value}");
    let came = (value["identical"].as_u64(), &value["different"], &value["unavailable"]);
    assert_eq!(came, (Some(all), &json!(0), &json!(0)), "{value}");
    assert_eq!(value["laws"].as_array().unwrap().len(), 2, "{value}");

    // It notices a verdict that would be different.
    let home = daemon.stop();
    for file in std::fs::read_dir(home.home.root().join("constitutions")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("reports/*", "report/*")).unwrap();
    }
    let tampered = cli_output(command(&home, &["law", "replay"]).output().unwrap());
    assert_eq!(tampered.code, 2, "{tampered:?}");
}
