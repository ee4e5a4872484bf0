//! Drafts: calls that are sent with the text of their approver or not at all, and never with the agent's text after
//! that.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_config::Config;
use tribune_governance::turn::ExternalDecision;
use tribune_runtime::ToolCall;
use tribune_storage::clock::{Clock as _, SystemClock};
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, turn_params};

use crate::approvals::{KEY, decide, ended, home, id, open, pending, write, written};

const SHORT: &str =
    r#"@id("short") forbid(principal, action, resource) when { context has bytes && context.bytes > 100 };"#;

async fn card(operator: &mut RpcClient, id: &str) -> Value {
    operator.call("approval.show", &json!({ "id": id })).await.unwrap()
}

/// Returns the one pending approval that is not `but`.
async fn next(operator: &mut RpcClient, but: &str) -> String {
    for _ in 0..2_000 {
        let found = id(&pending(operator, 1).await[0]);
        if found != but {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("no other call is pending");
}

async fn written_soon(home: &TempHome, path: &str, is_there: impl Fn(Option<&str>) -> bool) {
    for _ in 0..2_000 {
        if is_there(written(home, path).as_deref()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{path} has {:?}", written(home, path));
}

#[tokio::test(flavor = "multi_thread")]
async fn a2_draft_is_sent_with_the_text_of_its_approver() {
    let daemon = TestDaemon::start_at(home(), &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let running = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "hello"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    assert_eq!(card(&mut operator, &asked).await["draft"], "content");
    for wrong in [
        json!({ "decision": "deny", "text": "no" }),
        json!({ "decision": "allow_session", "text": "no" }),
        json!({ "decision": "allow_once", "text": "x".repeat(2 << 20) }),
    ] {
        assert_eq!(decide(&mut operator, &asked, wrong).await.unwrap_err().code(), Some("invalid_params"));
    }
    decide(&mut operator, &asked, json!({ "decision": "allow_once", "text": "good day" })).await.unwrap();
    let (_, output) = ended(&mut talker, running).await;
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("good day"));
    assert!(output.starts_with("(operator changed the text before allowing the call)"), "{output}");
    let card = card(&mut operator, &asked).await;
    assert_eq!((&card["text"], &card["came_of_it"]), (&json!("good day"), &json!("ran")), "{card}");
    assert_eq!(card["action"]["input"]["content"], "hello");
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn a2_denied_draft_text_is_refused_before_the_decision() {
    let home = home();
    home.write("policy/short.cedar", SHORT);
    let daemon = TestDaemon::start_at(home, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let running = talker.send("turn.run", &turn_params(KEY, &write("b.txt", "hello"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    let long = json!({ "decision": "allow_once", "text": "x".repeat(101) });
    let refused = decide(&mut operator, &asked, long).await.unwrap_err();
    assert_eq!(refused.code(), Some("invalid_params"));
    assert!(refused.to_string().contains("policy.short"), "{refused}");
    // The approval is still pending, and a shorter text is accepted.
    decide(&mut operator, &asked, json!({ "decision": "allow_once", "text": "short" })).await.unwrap();
    ended(&mut talker, running).await;
    assert_eq!(written(&daemon.home, "b.txt").as_deref(), Some("short"));
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_hook_sees_the_draft_text_that_is_sent() {
    let home = home();
    let script = "#!/bin/sh\nif grep -q secret-plan; then echo '{\"block\":true,\"blockReason\":\"too much\"}'; else echo '{}'; fi\n";
    home.write("hook.sh", script);
    let path = home.home.root().join("hook.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let hooks = format!("{{hooks: [{{on: 'before_tool_call', sandbox: 'off', command: [{path:?}]}}]}}");
    let hooks = Config::parse("config.json5", &hooks).unwrap().hooks;
    let daemon = TestDaemon::start_at(home, &Config { hooks, ..config() }).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let running = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "hello"))).await.unwrap();
    let asked = id(&pending(&mut operator, 1).await[0]);
    let words = json!({ "decision": "allow_once", "text": "the secret-plan" });
    let refused = decide(&mut operator, &asked, words).await.unwrap_err();
    assert!(refused.to_string().contains("too much"), "{refused}");
    decide(&mut operator, &asked, json!({ "decision": "deny" })).await.unwrap();
    ended(&mut talker, running).await;
    assert_eq!(written(&daemon.home, "a.txt"), None);
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_draft_with_a_changed_target_is_requested_again_with_the_new_text() {
    let home = home();
    home.write("agents/main/workspace/a.txt", "old");
    let daemon = TestDaemon::start_at(home, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let running = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "the agent's"))).await.unwrap();
    let first = id(&pending(&mut operator, 1).await[0]);
    daemon.home.write("agents/main/workspace/a.txt", "something else");
    decide(&mut operator, &first, json!({ "decision": "allow_once", "text": "mine" })).await.unwrap();
    let second = next(&mut operator, &first).await;
    assert_eq!(card(&mut operator, &second).await["action"]["input"]["content"], "mine");
    decide(&mut operator, &second, json!({ "decision": "allow_once" })).await.unwrap();
    let (_, output) = ended(&mut talker, running).await;
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("mine"));
    assert!(output.starts_with("(operator changed the text"), "{output}");
    drop((talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_grant_does_not_restore_replaced_draft_text() {
    let home = home();
    home.write("agents/main/workspace/a.txt", "old");
    let daemon = TestDaemon::start_at(home, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let other = KEY.replace(":op", ":two");
    talker.call("session.init", &json!({ "session_key": other })).await.unwrap();
    let running = talker.send("turn.run", &turn_params(KEY, &write("a.txt", "the agent's"))).await.unwrap();
    let first = id(&pending(&mut operator, 1).await[0]);
    // The approver allows every call to that file for another session.
    let mut second_talker = daemon.operator().await;
    let beside =
        second_talker.send("turn.run", &turn_params(&other, &write("a.txt", "beside"))).await.unwrap();
    let both = pending(&mut operator, 2).await;
    let second = both.iter().map(id).find(|found| *found != first).unwrap();
    let until = SystemClock.now().plus(Duration::from_secs(3600)).to_string();
    let wide = json!({ "decision": "allow_pattern", "pattern": "a.txt", "until": until });
    decide(&mut operator, &second, wide).await.unwrap();
    ended(&mut second_talker, beside).await;
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("beside"));
    // The file has changed, so the first request does not match any more; the grant covers it, with the text that the
    // approver gave.
    decide(&mut operator, &first, json!({ "decision": "allow_once", "text": "mine" })).await.unwrap();
    ended(&mut talker, running).await;
    assert_eq!(written(&daemon.home, "a.txt").as_deref(), Some("mine"));
    drop((talker, second_talker, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_draft_survives_restarts_and_repeated_requests() {
    let home = home();
    home.write("agents/main/workspace/c.txt", "old");
    let daemon = TestDaemon::start_at(home, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    talker.send("turn.run", &turn_params(KEY, &write("c.txt", "the agent's"))).await.unwrap();
    let first = id(&pending(&mut operator, 1).await[0]);
    drop((talker, operator));

    let home = daemon.stop().await;
    home.write("agents/main/workspace/c.txt", "something else");
    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut operator = daemon.operator().await;
    let decided = decide(&mut operator, &first, json!({ "decision": "allow_once", "text": "mine" })).await;
    assert_eq!(decided.unwrap()["without_turn"], true);
    let second = next(&mut operator, &first).await;
    assert_eq!(card(&mut operator, &second).await["action"]["input"]["content"], "mine");
    drop(operator);

    let daemon = TestDaemon::start_at(daemon.stop().await, &config()).await;
    let mut operator = daemon.operator().await;
    decide(&mut operator, &second, json!({ "decision": "allow_once" })).await.unwrap();
    written_soon(&daemon.home, "c.txt", |words| words != Some("something else")).await;
    assert_eq!(written(&daemon.home, "c.txt").as_deref(), Some("mine"));
    drop(operator);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn externally_executed_call_cannot_be_a_draft() {
    let daemon = TestDaemon::start_at(home(), &config()).await;
    let mut operator = daemon.operator().await;
    open(&mut operator).await;
    let call = ToolCall {
        id: "there".to_owned(),
        name: "write".to_owned(),
        input: json!({ "path": "a.txt", "content": "b" }),
    };
    let governance = daemon.daemon.sessions().governance();
    let asked = governance.request_external_call(&KEY.parse().unwrap(), call, Duration::ZERO).await.unwrap();
    assert_eq!(asked.verdict, ExternalDecision::Waits);
    let asked = asked.approval.unwrap();
    assert_eq!(card(&mut operator, &asked).await["draft"], Value::Null);
    let words = json!({ "decision": "allow_once", "text": "mine" });
    assert_eq!(decide(&mut operator, &asked, words).await.unwrap_err().code(), Some("invalid_params"));
    drop(operator);
    assert_sound(&daemon.stop().await.home);
}
