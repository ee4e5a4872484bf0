//! `provider.list` and `provider.test` through the daemon, and what their results must not contain.

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_config::Config;
use tribune_records::spend::report::SpendGrouping;
use tribune_storage::store::Reader;
use tribune_testkit::upstream::{FakeUpstream, ModelOutput, UpstreamReply};
use tribune_testkit::{TestDaemon, assert_sound, run_turn};

use crate::models::{KEY, SECRET, home, models, open, start, upstream};

async fn test_provider(client: &mut RpcClient, target: Value) -> Value {
    client.call("provider.test", &json!({ "target": target })).await.unwrap()
}

fn words(report: &Value) -> Vec<String> {
    let checks = report["providers"][0]["checks"].as_array().unwrap().iter();
    checks.map(|check| format!("{} {}", check["check"].as_str().unwrap(), check["ok"])).collect()
}

async fn started(upstream: &FakeUpstream) -> (TestDaemon, RpcClient) {
    let daemon = start(home(), &models(upstream, "startupValidation: 'off'")).await;
    let client = daemon.operator().await;
    (daemon, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_test_lists_models_and_sends_one_prompt() {
    let upstream = upstream().await;
    let (daemon, mut client) = started(&upstream).await;
    upstream.reply(ModelOutput::new().text("ok").usage(9, 2, 0).anthropic());
    // The agent `main` uses `fake:m`, so this model represents the provider.
    let report = test_provider(&mut client, json!("fake")).await;
    assert_eq!((&report["ok"], &report["providers"][0]["model"]), (&json!(true), &json!("fake:m")));
    assert_eq!(words(&report), ["key true", "reach true", "model true"]);
    assert_eq!(report["providers"][0]["checks"][2]["message"], "fake:m answers (11 tokens)");
    let asked = upstream.requests();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].json()["max_tokens"].as_u64().unwrap() <= 64, "a few tokens");
    assert!(!asked[1].text().contains("constitution"), "no system prompt");

    upstream.reply(ModelOutput::new().text("ok").anthropic());
    let report = test_provider(&mut client, json!("fake:small")).await;
    assert_eq!(report["providers"][0]["model"], "fake:small");
    upstream.reply(ModelOutput::new().text("ok").anthropic());
    let report = test_provider(&mut client, Value::Null).await;
    assert_eq!(report["providers"].as_array().unwrap().len(), 1, "no other provider is configured: {report}");
    drop(client);
    daemon.stop().await;
}

/// The result of a check is reported until a later request has another result.
#[tokio::test(flavor = "multi_thread")]
async fn refused_key_is_reported_until_the_model_answers() {
    let upstream = FakeUpstream::start().await;
    let refused = json!({ "type": "error", "error": { "type": "authentication_error", "message": "no" } });
    upstream.reply(UpstreamReply::json(401, &refused));
    let daemon = start(home(), &models(&upstream, "startupValidation: 'warn'")).await;
    let mut client = daemon.operator().await;
    let fault = async |client: &mut RpcClient| {
        client.call("provider.list", &json!({})).await.unwrap()["agents"][0]["fault"].clone()
    };
    let reported = fault(&mut client).await;
    let reported = reported.as_str().unwrap();
    assert!(
        reported.contains("rejected the key")
            && reported.contains("`tribune providers test fake:m` asks again"),
        "{reported}"
    );
    assert!(!reported.contains(SECRET), "{reported}");
    open(&mut client).await;
    upstream.reply(ModelOutput::new().text("hello").anthropic());
    run_turn(&mut client, KEY, "hello").await.unwrap();
    assert_eq!(fault(&mut client).await, Value::Null);
    upstream.reply(UpstreamReply::json(401, &refused));
    test_provider(&mut client, json!("fake:m")).await;
    assert!(fault(&mut client).await.is_string());
    upstream.set_models(&["m"]).reply(ModelOutput::new().text("ok").anthropic());
    test_provider(&mut client, json!("fake:m")).await;
    assert_eq!(fault(&mut client).await, Value::Null);
    drop(client);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_errors_are_one_line_without_keys_or_escapes() {
    let upstream = FakeUpstream::start().await;
    let (daemon, mut client) = started(&upstream).await;
    let complaint = |kind: &str| {
        let message = format!("no \u{1b}[2J\u{1b}]0;owned\u{7}, {SECRET}\nsecond line");
        json!({ "type": "error", "error": { "type": kind, "message": message } })
    };
    for (status, kind, code, wanted) in [
        (401, "authentication_error", "unauthorized", vec!["key true", "reach false"]),
        (403, "permission_error", "forbidden", vec!["key true", "reach false"]),
        (429, "rate_limit_error", "rate_limited", vec!["key true", "reach false"]),
        (500, "api_error", "upstream_failed", vec!["key true", "reach false"]),
    ] {
        upstream.reply(UpstreamReply::json(status, &complaint(kind)));
        let report = test_provider(&mut client, json!("fake:m")).await;
        assert_eq!(words(&report), wanted, "{report}");
        let last = report["providers"][0]["checks"].as_array().unwrap().last().unwrap();
        assert_eq!(last["code"], code);
        let line = last["message"].as_str().unwrap();
        assert!(!line.contains(SECRET) && !line.contains(char::is_control), "{line:?}");
        assert_eq!(report["ok"], false);
    }
    let asked = upstream.requests().len();
    assert_eq!(asked, 4, "no request is repeated, and no model is called after a failure");

    // A server without a model list is no failure; the answer of the model decides.
    upstream
        .reply(UpstreamReply::json(404, &json!({})))
        .reply(UpstreamReply::json(404, &complaint("not_found_error")));
    let report = test_provider(&mut client, json!("fake:m")).await;
    assert_eq!(words(&report), ["key true", "reach true", "model false"]);
    assert_eq!(report["providers"][0]["checks"][2]["code"], "not_found");
    drop(client);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_key_is_reported_without_a_request() {
    let upstream = FakeUpstream::start().await;
    let text = format!(
        "{{ models: {{ providers: {{ other: {{ baseUrl: '{}', keyEnv: 'OTHER_API_KEY' }}, bare: {{ baseUrl: '{0}', local: true }} }} }} }}",
        upstream.base_url()
    );
    let models = Config::parse("config.json5", &text).unwrap().models;
    let daemon = start(home(), &Config { models, ..tribune_testkit::config() }).await;
    let mut client = daemon.operator().await;
    let report = test_provider(&mut client, json!("other")).await;
    let check = &report["providers"][0]["checks"][0];
    assert_eq!(
        check["message"],
        "Missing OTHER_API_KEY: set it in the environment of the daemon to use other"
    );
    assert_eq!(upstream.connections(), 0);

    upstream.set_models(&["tiny-1", "\u{1b}[2J", "a b"]);
    let report = test_provider(&mut client, json!("bare")).await;
    let line = report["providers"][0]["checks"][2]["message"].as_str().unwrap();
    assert!(
        line.starts_with("no model of bare is declared") && line.ends_with("It offers `tiny-1`."),
        "{line}"
    );

    for target in ["nobody", "fale:m", "other:m", "\u{1b}[2J"] {
        let refused = client.call("provider.test", &json!({ "target": target })).await.unwrap_err();
        assert_eq!(refused.code(), Some("not_found"), "{refused}");
        assert!(!refused.to_string().contains('\u{1b}'));
    }
    drop(client);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_methods_require_the_operator() {
    let upstream = upstream().await;
    let (daemon, mut client) = started(&upstream).await;
    let made = client.call("approver.add", &json!({ "id": "ada" })).await.unwrap();
    let mut other = RpcClient::connect(&daemon.address(), made["token"].as_str()).await.unwrap();
    for method in ["provider.list", "provider.test"] {
        assert_eq!(other.call(method, &json!({})).await.unwrap_err().code(), Some("forbidden"));
    }
    assert_eq!(upstream.requests().len(), 0);
    let list = client.call("provider.list", &json!({})).await.unwrap();
    assert!(!list.to_string().contains(SECRET));
    let fake = list["providers"].as_array().unwrap().iter().find(|one| one["provider"] == "fake").unwrap();
    assert_eq!((&fake["key_set"], &fake["models"][0]["agents"]), (&json!(true), &json!(["main"])));
    drop((client, other));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_errors_are_redacted_for_personal_data_when_configured() {
    let upstream = upstream().await;
    let prompt = "write to ada@example.org or call +49 30 1234567";
    for (settings, in_transcript) in [
        ("{}", prompt),
        ("{ redact: { emails: true } }", "write to [redacted:email] or call +49 30 1234567"),
        ("{ redact: { emails: true, phones: true } }", "write to [redacted:email] or call [redacted:phone]"),
    ] {
        let redact = Config::parse("config.json5", settings).unwrap().redact;
        let config = Config { redact, ..models(&upstream, "startupValidation: 'off'") };
        let daemon = start(home(), &config).await;
        let mut client = daemon.operator().await;
        open(&mut client).await;
        upstream.reply(ModelOutput::new().text("I wrote to ada@example.org.").anthropic());
        let (events, _) = run_turn(&mut client, KEY, prompt).await.unwrap();
        let heard = tribune_testkit::output_text(&events);
        assert_eq!(heard.contains("ada@example.org"), !redact.emails, "{heard}");
        let sent = upstream.requests().last().unwrap().text().to_owned();
        assert!(sent.contains(in_transcript), "{settings}: {sent}");
        drop(client);
        let home = daemon.stop().await;
        let folder = home.home.root().join("agents/main/sessions");
        let transcript = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        let transcript = std::fs::read_to_string(transcript).unwrap();
        assert!(transcript.contains(in_transcript), "{settings}: {transcript}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_provider_test_is_charged_to_the_operator_and_logged() {
    let upstream = upstream().await;
    let spend = Config::parse("config.json5", "{ spend: { perDay: { tokens: 3000 } } }").unwrap().spend;
    let daemon = start(home(), &Config { spend, ..models(&upstream, "startupValidation: 'off'") }).await;
    let mut client = daemon.operator().await;
    upstream.reply(ModelOutput::new().text("ok").usage(2_940, 2, 0).anthropic());
    assert_eq!(test_provider(&mut client, json!("fake:m")).await["ok"], true);
    let spent =
        || Reader::open(&daemon.home.home).unwrap().spend_report(SpendGrouping::Agent, None).unwrap().lines;
    let operators: Vec<(String, u64, u64)> =
        spent().into_iter().map(|line| (line.name, line.input, line.output)).collect();
    assert_eq!(operators, [("(operator)".to_owned(), 2_940, 2)]);
    let folder = daemon.home.home.root().join("logs/fake");
    let logs = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()));
    let line: Value = serde_json::from_str(logs.map(Result::unwrap).collect::<String>().trim()).unwrap();
    assert_eq!((&line["gate"]["trial"], &line["input_tokens"]), (&json!("(operator)"), &json!(2_940)));
    assert!(line["estimated_tokens"].as_u64().unwrap() > 10 && line["reserved_tokens"] == 64, "{line}");
    // The check has a budget too; beyond it no request is sent.
    let report = test_provider(&mut client, json!("fake:m")).await;
    assert_eq!(report["providers"][0]["checks"][2]["code"], "spend_limit", "{report}");
    // A request that the provider refuses costs nothing.
    assert_eq!(spent().len(), 1);
    drop(client);
    assert_sound(&daemon.stop().await.home);
}
