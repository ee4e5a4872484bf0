//! The operator's hooks: what they see. A hook can object and never allow.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tribune_config::Config;
use tribune_governance::turn::ExternalDecision;
use tribune_runtime::ToolCall;
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, output_text, run_turn, turn_params};

use crate::approvals::{decide, pending};

const KEY: &str = "agent:main:cli:local:dm:op";
const WRITE: &str = "!call write {\"path\":\"a\",\"content\":\"b\"}\n!say $result";

/// A home with the program `hook.sh`, and a configuration with the hooks of `hooks`, where `HOOK` is that program.
fn home(script: &str, hooks: &str) -> (TempHome, Config) {
    let home = TempHome::new();
    home.write("mandates/dev.md", "---\ntools: read, write, spawn\n---\n");
    home.write("data/agent-roster.jsonl", "{\"id\":\"main\",\"mandate\":\"dev\",\"standing\":false}\n");
    home.write("hook.sh", &format!("#!/bin/sh\n{script}\n"));
    let path = home.home.root().join("hook.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    // The program of these tests has no sandbox; the tests of the command line run hooks in one.
    let hooks = hooks.replace("command:", "sandbox: 'off', command:").replace("HOOK", path.to_str().unwrap());
    let hooks = Config::parse("config.json5", &format!("{{hooks: [{hooks}]}}")).unwrap().hooks;
    (home, Config { hooks, ..config() })
}

/// Runs a turn with one call; returns its result.
async fn run_call(home: TempHome, config: &Config, script: &str) -> (TempHome, Result<String, String>) {
    let daemon = TestDaemon::start_at(home, config).await;
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    let outcome = match run_turn(&mut client, KEY, script).await {
        Ok((events, _)) => {
            let results = events.iter().filter(|event| event["type"] == "tool_result");
            Ok(results.map(|event| event["content"].as_str().unwrap().to_owned()).collect())
        }
        Err(error) => Err(error.to_string()),
    };
    drop(client);
    let home = daemon.stop().await;
    assert_sound(&home.home);
    (home, outcome)
}

fn is_written(home: &TempHome) -> bool {
    home.home.root().join("agents/main/workspace/a").exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_hook_that_denies_fails_or_times_out_stops_the_call() {
    for (script, reason) in [
        ("echo '{\"block\":true,\"blockReason\":\"not on Sundays\"}'", "not on Sundays"),
        ("echo '{\"block\":true}'", "does not say why"),
        ("echo '{}'; exit 3", "it failed"),
        ("echo maybe", "not the JSON of an answer"),
        ("true", "not the JSON of an answer"),
        ("sleep 60", "did not answer within 300 ms"),
        ("echo '{\"params\":{\"path\":\"b\",\"content\":\"b\"}}'", "tried to widen"),
        ("echo '{\"params\":{\"path\":\"a\"}}'", "tried to widen"),
        ("echo '{\"block\":true,\"block\":false}'", "not the JSON of an answer"),
        ("head -c 100000 /dev/zero", "more than 65536 bytes"),
    ] {
        let (home, config) = home(script, "{on: 'before_tool_call', command: ['HOOK'], timeoutMs: 300}");
        let (home, outcome) = run_call(home, &config, WRITE).await;
        let outcome = outcome.unwrap();
        assert!(
            outcome.starts_with("denied (hook.hook.sh)") && outcome.contains(reason),
            "{script}: {outcome}"
        );
        assert!(!is_written(&home), "{script}");
    }
    // A missing program objects too.
    for hook in [
        "{on: 'before_tool_call', command: ['/nowhere/hook']}",
        "{on: 'before_tool_call', url: 'http://127.0.0.1:1/'}",
    ] {
        let (home, config) = home("", hook);
        let (home, outcome) = run_call(home, &config, WRITE).await;
        assert!(outcome.unwrap().starts_with("denied (hook."));
        assert!(!is_written(&home));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_hooks_see_agents_and_subagents_and_cannot_allow() {
    let hooks = [
        "before_tool_call",
        "after_tool_call",
        "tool_result_persist",
        "message_received",
        "gateway_start",
        "before_agent_start",
    ];
    let hooks: Vec<String> = hooks.iter().map(|on| format!("{{on: '{on}', command: ['HOOK']}}")).collect();
    // One line per event: an append of a line is atomic.
    let script = "line=$(cat); printf '%s\\n' \"$line\" >> \"$(dirname \"$0\")/seen\"; echo '{}'";
    let (home, config) = home(script, &hooks.join(","));
    let task = json!({ "task": WRITE });
    let (home, outcome) = run_call(home, &config, &format!("!call spawn {task}")).await;
    assert!(outcome.unwrap().starts_with("made `a`"));
    assert!(is_written(&home));
    let seen: Vec<Value> =
        home.read("seen").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |event: &str, kind: Value| {
        seen.iter().filter(|one| one["event"] == event && one["kind"] == kind).count()
    };
    assert_eq!(count("gateway_start", Value::Null), 1);
    for event in [
        "before_tool_call",
        "after_tool_call",
        "tool_result_persist",
        "message_received",
        "before_agent_start",
    ] {
        assert_eq!((count(event, json!("main")), count(event, json!("subagent"))), (1, 1), "{event}");
    }
    // No hook allows a call that the law denies.
    let (home, config) = self::home("echo '{}'", "{on: 'before_tool_call', command: ['HOOK']}");
    let (_, outcome) = run_call(home, &config, "!call exec {\"command\":\"true\"}").await;
    assert!(outcome.unwrap().starts_with("denied (mandate.not_listed)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_hook_can_refuse_a_turn_and_lower_message_trust() {
    let block = "echo '{\"block\":true,\"blockReason\":\"closed today\"}'";
    let (home, config) = home(block, "{on: 'before_agent_start', command: ['HOOK']}");
    let (_, outcome) = run_call(home, &config, WRITE).await;
    assert!(outcome.unwrap_err().contains("the hook `hook.sh` refuses the turn: closed today"));
    for (answer, trust) in [
        ("{\"trust\":\"community\"}", "community"),
        ("{}", "owner"),
        ("{\"trust\":\"owner\"}", "owner"),
        ("no", "untrusted"),
    ] {
        let (home, config) =
            self::home(&format!("echo '{answer}'"), "{on: 'message_received', command: ['HOOK']}");
        let daemon = TestDaemon::start_at(home, &config).await;
        let mut client = daemon.operator().await;
        client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
        run_turn(&mut client, KEY, "!say hello").await.unwrap();
        let row = daemon.daemon.sessions().row(&KEY.parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(row.labels.trust.as_str(), trust, "{answer}");
        // The daemon answers `/tribune` only in words with the owner's trust.
        let (events, _) = run_turn(&mut client, KEY, "/tribune").await.unwrap();
        assert_eq!(output_text(&events).contains("- mode: enforce"), trust == "owner", "{answer}");
        drop(client);
        daemon.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_http_hook_is_called_and_can_narrow() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            let mut chunk = [0; 4096];
            let got = stream.read(&mut chunk).await.unwrap();
            request.extend_from_slice(&chunk[..got]);
        }
        let body = "{\"params\":{\"path\":\"long.txt\",\"limit\":3}}";
        let head =
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    });
    let (home, config) = home("", &format!("{{on: 'before_tool_call', url: 'http://{address}/ask'}}"));
    home.write("agents/main/workspace/long.txt", "one\ntwo\nthree\n");
    let (_, outcome) = run_call(home, &config, "!call read {\"path\":\"long.txt\",\"limit\":13}").await;
    let outcome = outcome.unwrap();
    assert!(outcome.contains("one") && !outcome.contains("two"), "{outcome}");
    let request = tokio::time::timeout(Duration::from_secs(5), server).await.unwrap().unwrap();
    assert!(request.starts_with("POST /ask ") && request.contains("\"toolName\":\"read\""), "{request}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_hooks_see_externally_executed_calls() {
    let call = |id: &str| ToolCall {
        id: id.to_owned(),
        name: "write".to_owned(),
        input: json!({ "path": "a", "content": "b" }),
    };
    for (script, rule) in [
        ("echo '{\"block\":true,\"blockReason\":\"no\"}'", "hook.hook.sh"),
        // An external call cannot be narrowed, so a narrowing hook is an objection.
        ("echo '{\"params\":{\"path\":\"a\"}}'", "hook."),
    ] {
        let (home, config) = home(script, "{on: 'before_tool_call', command: ['HOOK']}");
        let daemon = TestDaemon::start_at(home, &config).await;
        let mut client = daemon.operator().await;
        client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
        let governance = daemon.daemon.sessions().governance();
        let asked = governance
            .request_external_call(&KEY.parse().unwrap(), call("one"), Duration::ZERO)
            .await
            .unwrap();
        assert_eq!(asked.verdict, ExternalDecision::Refused, "{asked:?}");
        assert!(asked.rules.iter().any(|own| own.starts_with(rule)), "{asked:?}");
        drop(client);
        assert_sound(&daemon.stop().await.home);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_narrowing_hook_does_not_evade_a_rule_about_the_original_input() {
    const SECRETS: &str = r#"@id("secrets") forbid(principal, action in [Tribune::Action::"read", Tribune::Action::"search"], resource)
        when { context has path && context.path == "secrets" }"#;
    const NARROWS: &str = "echo '{\"params\":{\"query\":\"sesame\",\"path\":\"secrets/open\"}}'";
    const SEARCH: &str = "!call search {\"query\":\"sesame\",\"path\":\"secrets\"}";
    let denies = format!("{SECRETS};");
    let asks = format!("{SECRETS} unless {{ context.approved }};");
    for (rule, hook) in [(&denies, "echo '{}'"), (&denies, NARROWS)] {
        let (home, config) = home(hook, "{on: 'before_tool_call', command: ['HOOK']}");
        home.write("mandates/dev.md", "---\ntools: read, search\n---\n");
        home.write("policy/secrets.cedar", rule);
        home.write("agents/main/workspace/secrets/open/key", "sesame");
        let (_, outcome) = run_call(home, &config, SEARCH).await;
        let outcome = outcome.unwrap();
        assert!(
            outcome.contains("policy.secrets") && !outcome.contains("secrets/open/key"),
            "{hook}: {outcome}"
        );
    }
    // A rule that asks still asks.
    let (home, config) = home(NARROWS, "{on: 'before_tool_call', command: ['HOOK']}");
    home.write("mandates/dev.md", "---\ntools: read, search\n---\n");
    home.write("policy/secrets.cedar", &asks);
    home.write("agents/main/workspace/secrets/open/key", "sesame");
    let daemon = TestDaemon::start_at(home, &config).await;
    let (mut client, mut operator) = (daemon.operator().await, daemon.operator().await);
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    client.send("turn.run", &turn_params(KEY, SEARCH)).await.unwrap();
    let asked = pending(&mut operator, 1).await[0]["id"].clone();
    // The rule holds after a restart as well, where the law evaluates both inputs again.
    drop((client, operator));
    let daemon = TestDaemon::start_at(daemon.stop().await, &config).await;
    let mut operator = daemon.operator().await;
    let decided = decide(&mut operator, asked.as_str().unwrap(), json!({ "decision": "allow_once" })).await;
    assert_eq!(decided.unwrap()["came_of_it"], "ran");
    drop(operator);
    assert_sound(&daemon.stop().await.home);
}
