//! The cost of requests through the proxy, and their limit.

use serde_json::json;
use tribune_config::Config;
use tribune_records::spend::report::SpendGrouping;
use tribune_storage::store::Reader;
use tribune_testkit::upstream::{ModelOutput, UpstreamReply};

use super::{Setup, error, message};

async fn setup(spend: &str) -> Setup {
    let spend = Config::parse("config.json5", &format!("{{ spend: {{ {spend} }} }}")).unwrap().spend;
    Setup::with(|config| Config { spend, ..config }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_proxy_requests_of_an_agent_are_charged_up_to_its_limit() {
    let setup = setup("perAgentAndDay: { tokens: 1950 }").await;
    let pass = setup.pass("main").await;
    setup.upstream.reply(ModelOutput::new().text("one").usage(1_500, 400, 0).anthropic());
    let answer = setup.post_as(&pass, "fake/v1/messages", &message("m")).await;
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap();
    setup.ended("fake", 1).await;
    let refused = setup.post_as(&pass, "fake/v1/messages", &message("m")).await;
    let (status, content) = error(refused).await;
    assert_eq!(status, 403);
    assert!(content["message"].as_str().unwrap().contains("the limit of main on"), "{content}");
    assert_eq!(setup.upstream.requests().len(), 1);
    // Other agents have their own limits.
    setup.upstream.reply(ModelOutput::new().text("two").usage(10, 5, 0).anthropic());
    let answer = setup.post("fake/v1/messages", &message("m")).await;
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap();
    setup.ended("fake", 2).await;
    let report =
        Reader::open(&setup.daemon.home.home).unwrap().spend_report(SpendGrouping::Agent, None).unwrap();
    let lines: Vec<(&str, u64, u64)> =
        report.lines.iter().map(|line| (line.name.as_str(), line.input, line.output)).collect();
    assert_eq!(lines, [("(operator)", 10, 5), ("main", 1_500, 400)]);
    setup.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_refused_proxy_request_is_free_and_missing_usage_costs_its_reservation() {
    let setup = setup("perDay: { tokens: 5000 }").await;
    setup.upstream.reply(UpstreamReply::json(400, &json!({ "error": { "message": "no" } })));
    assert_eq!(setup.post("chat/v1/chat/completions", &message("m")).await.status(), 400);
    setup.ended("chat", 1).await;
    for wrong in [
        json!({ "max_tokens": 4e3 }),
        json!({ "max_tokens": "10" }),
        json!({ "n": 1000 }),
        json!({ "N": -1 }),
    ] {
        let mut body = message("m");
        for (name, value) in wrong.as_object().unwrap() {
            body[name] = value.clone();
        }
        assert_eq!(setup.post("chat/v1/chat/completions", &body).await.status(), 400, "{body}");
    }
    setup.upstream.reply(ModelOutput::new().text("cut").openai().first(2).then_close());
    let cut = setup.post("chat/v1/chat/completions", &message("m")).await;
    let _ = cut.text().await;
    setup.ended("chat", 2).await;
    let report =
        Reader::open(&setup.daemon.home.home).unwrap().spend_report(SpendGrouping::Model, None).unwrap();
    assert_eq!((report.all.requests, report.all.estimated), (1, 1));
    assert!(report.all.input > 10, "{report:?}");
    setup.close("chat").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_early_disconnect_does_not_evade_a_limit() {
    // The number of events after which the connection to the provider ends; the first event has the input tokens.
    for events in [0, 1, 3, 5] {
        let setup = setup("perAgentAndDay: { tokens: 20000 }").await;
        let pass = setup.pass("main").await;
        let reply = ModelOutput::new()
            .text("a long answer")
            .usage(50, 9_000, 0)
            .anthropic()
            .first(events)
            .then_silence();
        setup.upstream.reply(reply);
        let body = json!({ "model": "m", "max_tokens": 15000, "stream": true, "messages": [] });
        let asked = setup.post_as(&pass, "fake/v1/messages", &body);
        match tokio::time::timeout(std::time::Duration::from_millis(500), asked).await {
            Ok(mut answer) => {
                let _ = tokio::time::timeout(std::time::Duration::from_millis(300), answer.chunk()).await;
                drop(answer);
            }
            Err(_) => assert_eq!(events, 0),
        }
        setup.ended("fake", 1).await;
        let report =
            Reader::open(&setup.daemon.home.home).unwrap().spend_report(SpendGrouping::Agent, None).unwrap();
        assert_eq!((report.all.output, report.all.estimated), (15_000, 1), "{events}: {report:?}");
        let refused = setup.post_as(&pass, "fake/v1/messages", &body).await;
        assert_eq!(refused.status(), 403, "{events}");
        setup.close("fake").await;
    }
}
