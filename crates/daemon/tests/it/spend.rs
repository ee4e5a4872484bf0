//! Budgets: reservations, charges, approvals at the limit, and attempts to evade it.

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_config::Config;
use tribune_providers::ApiDialect;
use tribune_records::spend::report::SpendGrouping;
use tribune_storage::store::Reader;
use tribune_testkit::upstream::{FakeUpstream, ModelOutput};
use tribune_testkit::{TestDaemon, assert_sound, output_text, run_turn, turn_params};

use crate::approvals::{decide, ended, id, pending};
use crate::models::{KEY, asked, home, models, open, start, upstream};

/// The configuration of [`models`], with these members under `spend`.
fn config(upstream: &FakeUpstream, spend: &str) -> Config {
    let spend = Config::parse("config.json5", &format!("{{ spend: {{ {spend} }} }}")).unwrap().spend;
    Config { spend, ..models(upstream, "") }
}

const PRICES: &str = "prices: { 'fake:m': { input: 3, output: 15, cacheRead: 0.3 } }";

async fn begin(upstream: &FakeUpstream, spend: &str) -> (TestDaemon, RpcClient) {
    let daemon = start(home(), &config(upstream, spend)).await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    (daemon, client)
}

/// The spending in the ledger, as `(requests, input tokens, output tokens, cost)`.
fn spent(daemon: &TestDaemon) -> (u64, u64, u64, String) {
    let report = Reader::open(&daemon.home.home).unwrap().spend_report(SpendGrouping::Day, None).unwrap();
    let all = report.all;
    (all.requests, all.input + all.cache_read + all.cache_written, all.output, all.cost.to_string())
}

/// Code and message of the error that ends a turn.
async fn failure(client: &mut RpcClient, key: &str, words: &str) -> (String, String) {
    let (events, end) = run_turn(client, key, words).await.unwrap();
    assert_eq!(end["stop_reason"], "error", "{events:?}");
    let error = events.iter().find(|event| event["type"] == "error").unwrap();
    let word = |name: &str| error[name].as_str().unwrap().to_owned();
    (word("code"), word("message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_every_request_is_counted_with_its_cost() {
    let upstream = upstream().await;
    let (daemon, mut client) = begin(&upstream, PRICES).await;
    upstream
        .reply(
            ModelOutput::new().call("c1", "read", r#"{"path":"notes.txt"}"#).usage(1_000, 100, 0).anthropic(),
        )
        .reply(ModelOutput::new().text("hello").usage(200, 50, 1_000).anthropic());
    run_turn(&mut client, KEY, "read it").await.unwrap();
    // 1200 at 3, 1000 at 0.3 and 150 at 15 per million.
    assert_eq!(spent(&daemon), (2, 2_200, 150, "0.00615".to_owned()));
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_no_request_is_sent_at_the_limit() {
    let upstream = upstream().await;
    let (daemon, mut client) = begin(&upstream, "perSession: { tokens: 60000 }, atLimit: 'stop'").await;
    upstream.reply(ModelOutput::new().text("one").usage(59_000, 900, 0).anthropic());
    run_turn(&mut client, KEY, "hello").await.unwrap();
    let (code, message) = failure(&mut client, KEY, "again").await;
    assert_eq!(code, "spend_limit");
    assert!(message.contains("the limit of this session (60000 tokens)"), "{message}");
    assert_eq!(asked(&upstream).len(), 1);
    // The limit holds after a restart; another session has its own.
    drop(client);
    let stopped = daemon.stop().await;
    let daemon = start(stopped, &config(&upstream, "perSession: { tokens: 60000 }, atLimit: 'stop'")).await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    assert_eq!(failure(&mut client, KEY, "again").await.0, "spend_limit");
    let other = KEY.replace(":op", ":two");
    client.call("session.init", &json!({ "session_key": other })).await.unwrap();
    upstream.reply(ModelOutput::new().text("two").anthropic());
    assert_eq!(output_text(&run_turn(&mut client, &other, "hello").await.unwrap().0), "two");
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_the_limits_of_an_agent_and_of_a_day_hold_over_all_sessions() {
    for limit in ["perAgentAndDay: { cost: 0.1 }", "perDay: { cost: 0.1 }"] {
        let upstream = upstream().await;
        let (daemon, mut client) = begin(&upstream, &format!("{limit}, atLimit: 'stop', {PRICES}")).await;
        upstream.reply(ModelOutput::new().text("one").usage(20_000, 2_000, 0).anthropic());
        run_turn(&mut client, KEY, "hello").await.unwrap();
        let other = KEY.replace(":op", ":two");
        client.call("session.init", &json!({ "session_key": other })).await.unwrap();
        assert_eq!(failure(&mut client, &other, "hello").await.0, "spend_limit", "{limit}");
        assert_eq!(asked(&upstream).len(), 1);
        drop(client);
        assert_sound(&daemon.stop().await.home);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_turn_at_the_limit_continues_after_approval() {
    let upstream = upstream().await;
    let (daemon, mut client) = begin(&upstream, "perSession: { tokens: 60000 }").await;
    let mut operator = daemon.operator().await;
    upstream.reply(ModelOutput::new().text("one").usage(59_000, 900, 0).anthropic());
    run_turn(&mut client, KEY, "hello").await.unwrap();
    let running = client.send("turn.run", &turn_params(KEY, "again")).await.unwrap();
    let card = pending(&mut operator, 1).await.remove(0);
    assert_eq!((&card["tool"], &card["risk"]), (&json!("spend"), &json!("high")));
    let card = operator.call("approval.show", &json!({ "id": id(&card) })).await.unwrap();
    let raise = &card["action"]["input"]["raise"][0];
    assert_eq!(raise["scope"], "session", "{card}");
    assert!(raise["tokens"].as_u64().unwrap() >= 60_000, "{card}");
    assert_eq!(asked(&upstream).len(), 1);
    upstream.reply(ModelOutput::new().text("two").usage(100, 10, 0).anthropic());
    decide(&mut operator, &id(&card), json!({ "decision": "allow_once" })).await.unwrap();
    let (_, output) = ended(&mut client, running).await;
    assert_eq!(output, "two");

    // After a denial the turn ends, and no request is sent.
    upstream.reply(ModelOutput::new().text("three").usage(60_000, 0, 0).anthropic());
    run_turn(&mut client, KEY, "more").await.unwrap();
    let running = client.send("turn.run", &turn_params(KEY, "and more")).await.unwrap();
    let card = pending(&mut operator, 1).await.remove(0);
    decide(&mut operator, &id(&card), json!({ "decision": "deny", "reason": "enough" })).await.unwrap();
    let (end, _) = ended(&mut client, running).await;
    assert_eq!(end["stop_reason"], "error");
    assert_eq!(asked(&upstream).len(), 3);
    drop((client, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_raise_decided_after_its_turn_still_counts() {
    let upstream = upstream().await;
    let spend = "perSession: { tokens: 60000 }";
    let (daemon, mut client) = begin(&upstream, spend).await;
    let mut operator = daemon.operator().await;
    upstream.reply(ModelOutput::new().text("one").usage(59_000, 900, 0).anthropic());
    run_turn(&mut client, KEY, "hello").await.unwrap();
    client.send("turn.run", &turn_params(KEY, "again")).await.unwrap();
    let card = pending(&mut operator, 1).await.remove(0);
    drop((client, operator));

    let daemon = start(daemon.stop().await, &config(&upstream, spend)).await;
    let mut operator = daemon.operator().await;
    decide(&mut operator, &id(&card), json!({ "decision": "allow_once" })).await.unwrap();
    let reader = || Reader::open(&daemon.home.home).unwrap().raised("session", KEY, None).unwrap();
    for _ in 0..2_000 {
        if reader().tokens > 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert!(reader().tokens >= 60_000);
    for _ in 0..2_000 {
        if daemon.home.home.root().join("data/agent-mailbox.jsonl").exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let mailbox = daemon.home.read("data/agent-mailbox.jsonl");
    assert!(mailbox.contains("the budget of this session was raised"), "{mailbox}");
    assert!(!mailbox.contains("spend-"), "{mailbox}");
    open(&mut operator).await;
    upstream.reply(ModelOutput::new().text("two").usage(100, 10, 0).anthropic());
    assert_eq!(output_text(&run_turn(&mut operator, KEY, "go on").await.unwrap().0), "two");
    drop(operator);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_agent_cannot_request_a_raise() {
    let upstream = upstream().await;
    let (daemon, mut client) = begin(&upstream, "perSession: { tokens: 60000 }").await;
    let raise = json!({ "why": "trust me", "raise": [{ "scope": "day", "name": "", "tokens": 1_000_000 }] });
    upstream
        .reply(
            ModelOutput::new()
                .call("spend-0000000000000001", "spend", &raise.to_string())
                .usage(10, 10, 0)
                .anthropic(),
        )
        .reply(ModelOutput::new().text("no luck").usage(10, 10, 0).anthropic());
    let (events, _) = run_turn(&mut client, KEY, "get rich").await.unwrap();
    assert_eq!(output_text(&events), "no luck");
    let page: Value = client.call("approval.list", &json!({ "state": "any" })).await.unwrap();
    assert_eq!(page["approvals"], json!([]));
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_unpriced_model_is_refused_under_a_cost_limit() {
    let upstream = upstream().await;
    let (daemon, mut client) = begin(&upstream, "perDay: { cost: 5 }").await;
    let (code, message) = failure(&mut client, KEY, "hello").await;
    assert_eq!(code, "no_price");
    assert!(message.contains("spend.prices"), "{message}");
    assert_eq!(asked(&upstream).len(), 0);
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_turn_cancelled_during_an_answer_costs_its_reservation() {
    let upstream = upstream().await;
    let (daemon, mut client) = begin(&upstream, "perSession: { tokens: 1000000 }").await;
    upstream.reply(
        ModelOutput::new().text("a long answer").usage(50, 900, 0).anthropic().first(3).then_silence(),
    );
    let running = client.send("turn.run", &turn_params(KEY, "hello")).await.unwrap();
    let mut operator = daemon.operator().await;
    for _ in 0..2_000 {
        if asked(&upstream).len() == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    operator.call("session.cancel", &json!({ "session_key": KEY })).await.unwrap();
    ended(&mut client, running).await;
    let report = Reader::open(&daemon.home.home).unwrap().spend_report(SpendGrouping::Model, None).unwrap();
    // The whole reservation for the answer.
    assert_eq!((report.all.output, report.all.estimated), (1_000, 1), "{report:?}");
    drop((client, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_missing_usage_costs_its_reservation_and_refused_request_is_free() {
    let upstream = upstream().await;
    let mut config = config(&upstream, "perSession: { tokens: 1000000 }");
    config.models.providers.get_mut("fake").unwrap().dialect = ApiDialect::OpenAi;
    let daemon = start(home(), &config).await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    upstream.reply(tribune_testkit::upstream::UpstreamReply::json(400, &json!({ "type": "error" })));
    failure(&mut client, KEY, "hello").await;
    assert_eq!(spent(&daemon).0, 0);
    upstream.reply(ModelOutput::new().text("cut").openai().first(2).then_close());
    failure(&mut client, KEY, "hello").await;
    let report = Reader::open(&daemon.home.home).unwrap().spend_report(SpendGrouping::Model, None).unwrap();
    assert_eq!((report.all.requests, report.all.estimated, report.lines[0].name.as_str()), (1, 1, "fake:m"));
    assert!(report.all.input > 1_000);
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_charge_of_an_ended_turn_is_recorded_before_its_end_is_sent() {
    let upstream = upstream().await;
    let mut config = config(&upstream, &format!("perSession: {{ tokens: 1000000 }}, {PRICES}"));
    config.sessions.turn = std::time::Duration::from_millis(400);
    let daemon = start(home(), &config).await;
    let mut client = daemon.operator().await;
    open(&mut client).await;
    upstream.reply(
        ModelOutput::new().text("a long answer").usage(50, 900, 0).anthropic().first(3).then_silence(),
    );
    assert_eq!(failure(&mut client, KEY, "hello").await.0, "turn_limit");
    let report = Reader::open(&daemon.home.home).unwrap().spend_report(SpendGrouping::Model, None).unwrap();
    assert_eq!((report.all.requests, report.all.output, report.all.estimated), (1, 1_000, 1), "{report:?}");
    assert!(report.all.input > 1_000 && report.all.cost.nanos() > 0, "{report:?}");
    // The start of a daemon finds no open charge.
    drop(client);
    let daemon = start(daemon.stop().await, &config).await;
    assert_eq!(
        Reader::open(&daemon.home.home).unwrap().spend_report(SpendGrouping::Model, None).unwrap(),
        report
    );
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_one_raise_resumes_every_turn_parked_on_the_same_limit() {
    let upstream = upstream().await;
    let (daemon, mut client) = begin(&upstream, "perAgentAndDay: { tokens: 60000 }").await;
    let mut operator = daemon.operator().await;
    upstream.reply(ModelOutput::new().text("one").usage(59_000, 900, 0).anthropic());
    run_turn(&mut client, KEY, "hello").await.unwrap();
    let mut waiting = Vec::new();
    for n in 0..3 {
        let key = KEY.replace(":op", &format!(":w{n}"));
        let mut client = daemon.operator().await;
        client.call("session.init", &json!({ "session_key": key })).await.unwrap();
        let running = client.send("turn.run", &turn_params(&key, "again")).await.unwrap();
        waiting.push((client, running));
        pending(&mut operator, n + 1).await;
    }
    for _ in 0..3 {
        upstream.reply(ModelOutput::new().text("more").usage(100, 10, 0).anthropic());
    }
    let card = pending(&mut operator, 3).await.remove(1);
    decide(&mut operator, &id(&card), json!({ "decision": "allow_once" })).await.unwrap();
    for (mut client, running) in waiting {
        let (end, output) = ended(&mut client, running).await;
        assert_eq!((&end["stop_reason"], output.as_str()), (&json!("end_turn"), "more"));
    }
    pending(&mut operator, 0).await;
    let page = operator.call("approval.list", &json!({ "state": "any" })).await.unwrap();
    let mut states: Vec<&str> =
        page["approvals"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect();
    states.sort_unstable();
    assert_eq!(states, ["allowed", "withdrawn", "withdrawn"]);
    // The limit was raised once.
    let day = card["created_at"].as_str().unwrap()[..10].to_owned();
    let raised = Reader::open(&daemon.home.home).unwrap().raised("agent", "main", Some(&day)).unwrap();
    assert_eq!(raised.tokens, 60_000);
    drop((client, operator));
    assert_sound(&daemon.stop().await.home);
}
