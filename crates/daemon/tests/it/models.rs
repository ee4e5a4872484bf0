//! The native agent through the daemon: a provider over HTTP, the real gate, a conversation that survives restarts.

use std::sync::Arc;

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_config::Config;
use tribune_daemon::daemon::{Daemon, DaemonOverrides, StartError};
use tribune_storage::clock::SystemClock;
use tribune_testkit::upstream::{FakeUpstream, ModelOutput, UpstreamReply};
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, output_text, run_turn};

pub(crate) const KEY: &str = "agent:main:cli:local:dm:op";

/// The provider key in the environment: no output may contain it.
pub(crate) const SECRET: &str = "fixture-key-5f1c9e0b7a";

const ROSTER: &str =
    "{\"id\":\"main\",\"backend\":\"native\",\"model\":\"fake:m\",\"mandate\":\"dev\",\"standing\":false}\n";

/// A home whose agent uses `upstream`.
pub(crate) fn home() -> TempHome {
    let home = TempHome::new();
    home.write("mandates/dev.md", "---\ntools: read, write, send_message\n---\n# For work\n");
    home.write("data/agent-roster.jsonl", ROSTER);
    home.write("agents/main/workspace/notes.txt", "the notes say hello");
    home
}

/// A configuration with the provider `fake` at `upstream`.
pub(crate) fn models(upstream: &FakeUpstream, more: &str) -> Config {
    let text = format!(
        "{{ models: {{ providers: {{ fake: {{ kind: 'anthropic', baseUrl: '{}', keyEnv: 'FAKE_API_KEY', \
         models: {{ m: {{ contextWindow: 100000, maxOutputTokens: 1000 }}, small: {{ contextWindow: 16000, maxOutputTokens: 500 }} }}, {more} }} }} }} }}",
        upstream.base_url()
    );
    let models = Config::parse("config.json5", &text).unwrap().models;
    Config { models, ..config() }
}

pub(crate) fn extras() -> DaemonOverrides {
    let env = |name: &str| (name == "FAKE_API_KEY").then(|| SECRET.to_owned());
    DaemonOverrides { env: Some(Arc::new(env)), ..DaemonOverrides::default() }
}

pub(crate) async fn start(home: TempHome, config: &Config) -> TestDaemon {
    let daemon = Daemon::start_with(&home.home, config, Arc::new(SystemClock), extras()).await.unwrap();
    TestDaemon { daemon, home }
}

pub(crate) async fn open(client: &mut RpcClient) {
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
}

/// Answers the startup check of the daemon, and then the given replies.
pub(crate) async fn upstream() -> FakeUpstream {
    let upstream = FakeUpstream::start().await;
    upstream.set_models(&["m", "small"]);
    upstream
}

/// The requests to the model, without those for its model list.
pub(crate) fn asked(upstream: &FakeUpstream) -> Vec<Value> {
    let asked = upstream.requests().into_iter().filter(|request| request.path.ends_with("/messages"));
    asked.map(|request| request.json()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_reads_a_file_through_the_gate() {
    let upstream = upstream().await;
    let daemon = start(home(), &models(&upstream, "")).await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    upstream
        .reply(
            ModelOutput::new()
                .thinking("hm", "c2ln")
                .call("c1", "read", r#"{"path":"notes.txt"}"#)
                .anthropic(),
        )
        .reply(ModelOutput::new().text("They say hello.").anthropic());
    let (events, end) = run_turn(&mut client, KEY, "what do my notes say?").await.unwrap();
    assert_eq!((output_text(&events).as_str(), &end["stop_reason"]), ("They say hello.", &json!("end_turn")));
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for kind in
        ["reasoning_delta", "tool_call_update", "tool_call", "policy_gate", "tool_result", "usage_update"]
    {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    let asked = asked(&upstream);
    assert_eq!(asked.len(), 2);
    assert!(asked[1]["messages"].to_string().contains("the notes say hello"));
    let signed = &asked[1]["messages"][1]["content"][0];
    assert_eq!((&signed["type"], &signed["signature"]), (&json!("thinking"), &json!("c2ln")));
    let seen = upstream.requests();
    assert!(seen.iter().all(|request| request.header("x-api-key") == Some(SECRET)));
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_survives_a_restart_and_is_forgotten_with_its_session() {
    let upstream = upstream().await;
    let config = models(&upstream, "");
    let daemon = start(home(), &config).await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    upstream.reply(ModelOutput::new().text("Noted.").anthropic());
    run_turn(&mut client, KEY, "my cat is called Mau").await.unwrap();
    drop(client);
    let daemon = start(daemon.stop().await, &config).await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    upstream.reply(ModelOutput::new().text("Mau.").anthropic());
    run_turn(&mut client, KEY, "what is it called?").await.unwrap();
    let sent = asked(&upstream)[1]["messages"].clone();
    assert_eq!(sent.as_array().unwrap().len(), 3);
    assert!(sent.to_string().contains("called Mau") && sent.to_string().contains("Noted."), "{sent}");
    client.call("session.forget", &json!({ "session_key": KEY })).await.unwrap();
    open(&mut client).await;
    upstream.reply(ModelOutput::new().text("I do not know.").anthropic());
    run_turn(&mut client, KEY, "and now?").await.unwrap();
    let sent = asked(&upstream)[2]["messages"].clone();
    assert!(!sent.to_string().contains("Mau"), "{sent}");
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_failure_is_one_line_and_the_session_stays_usable() {
    let upstream = upstream().await;
    let daemon = start(home(), &models(&upstream, "")).await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    let reply = json!({ "type": "error", "error": { "type": "authentication_error", "message": format!("bad {SECRET}") } });
    upstream.reply(UpstreamReply::json(401, &reply));
    let (events, end) = run_turn(&mut client, KEY, "hello").await.unwrap();
    assert_eq!(end["stop_reason"], "error");
    let error = events.iter().find(|event| event["type"] == "error").unwrap();
    assert_eq!(error["code"], "unauthorized");
    let line = error["message"].as_str().unwrap();
    assert!(line.contains("FAKE_API_KEY") && !line.contains(SECRET) && !line.contains('\n'), "{line}");
    upstream.reply(ModelOutput::new().text("hello").anthropic());
    let (events, _) = run_turn(&mut client, KEY, "and now?").await.unwrap();
    assert_eq!(output_text(&events), "hello");
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_operator_can_select_a_model() {
    let upstream = upstream().await;
    let daemon = start(home(), &models(&upstream, "")).await;
    let mut client = daemon.operator().await;
    let init = |model: &str| json!({ "session_key": KEY, "model": model });
    let info = client.call("session.init", &init("fake:small")).await.unwrap();
    assert_eq!((&info["backend"], &info["model"]), (&json!("native"), &json!("fake:small")));
    upstream.reply(ModelOutput::new().text("small").anthropic());
    run_turn(&mut client, KEY, "hello").await.unwrap();
    assert_eq!(asked(&upstream)[0]["model"], "small");
    // Another model continues the same conversation.
    client.call("session.init", &init("fake:m")).await.unwrap();
    upstream.reply(ModelOutput::new().text("large").anthropic());
    run_turn(&mut client, KEY, "go on").await.unwrap();
    let second = &asked(&upstream)[1];
    assert_eq!((&second["model"], second["messages"].as_array().unwrap().len()), (&json!("m"), 3));
    for (model, reply) in [
        ("fake:smal", "did you mean `small`"),
        ("fale:m", "did you mean `fake`"),
        ("m", "must be provider:model"),
        ("moonshot:kimi-k2", "is not declared"),
    ] {
        let refused = client.call("session.init", &init(model)).await.unwrap_err().to_string();
        assert!(refused.contains(reply), "{model}: {refused}");
    }
    let made = client.call("approver.add", &json!({ "id": "ada" })).await.unwrap();
    let mut other = RpcClient::connect(&daemon.address(), made["token"].as_str()).await.unwrap();
    let refused = other.call("session.init", &init("fake:m")).await.unwrap_err();
    assert_eq!(refused.code(), Some("forbidden"));
    drop((client, other));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn startup_validation_is_strict_warns_or_is_silent() {
    let upstream = FakeUpstream::start().await;
    upstream.set_models(&["another"]);
    let strict = models(&upstream, "startupValidation: 'strict'");
    let home = home();
    let refused = Daemon::start_with(&home.home, &strict, Arc::new(SystemClock), extras()).await.unwrap_err();
    assert!(matches!(refused, StartError::Model { .. }), "{refused}");
    let line = refused.to_string();
    assert!(
        line.contains("does not list the model `m`") && !line.contains('\n') && !line.contains(SECRET),
        "{line}"
    );
    let daemon = start(home, &models(&upstream, "startupValidation: 'warn'")).await;
    let home = daemon.stop().await;
    let asked = upstream.requests().len();
    let daemon = start(home, &models(&upstream, "startupValidation: 'off'")).await;
    daemon.stop().await;
    assert_eq!(upstream.requests().len(), asked, "no request was sent");
}
