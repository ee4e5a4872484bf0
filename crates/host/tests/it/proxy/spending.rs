//! What requests through the proxy cost, and that it ends at the limit.

use tribune_host::Reader;
use tribune_host::config::Config;
use tribune_host::spend::By;
use tribune_testkit::upstream::{Reply, Say};

use super::{House, error, message};

async fn house(spend: &str) -> House {
    let spend = Config::parse("config.json5", &format!("{{ spend: {{ {spend} }} }}")).unwrap().spend;
    House::with(|config| Config { spend, ..config }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_what_an_agent_asks_through_the_proxy_counts_and_ends_at_its_limit() {
    let house = house("perAgentAndDay: { tokens: 1950 }").await;
    let pass = house.pass("main").await;
    house.upstream.reply(Say::new().text("one").usage(1_500, 400, 0).anthropic());
    let answer = house.post_as(&pass, "fake/v1/messages", &message("m")).await;
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap();
    house.ended("fake", 1).await;
    let refused = house.post_as(&pass, "fake/v1/messages", &message("m")).await;
    let (status, said) = error(refused).await;
    assert_eq!(status, 403);
    assert!(said["message"].as_str().unwrap().contains("the limit of main on"), "{said}");
    assert_eq!(house.upstream.requests().len(), 1);
    // Others have limits of their own.
    house.upstream.reply(Say::new().text("two").usage(10, 5, 0).anthropic());
    let answer = house.post("fake/v1/messages", &message("m")).await;
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap();
    house.ended("fake", 2).await;
    let report = Reader::open(&house.daemon.home.home).unwrap().spend_report(By::Agent, None).unwrap();
    let lines: Vec<(&str, u64, u64)> =
        report.lines.iter().map(|line| (line.name.as_str(), line.input, line.output)).collect();
    assert_eq!(lines, [("main", 1_500, 400), ("operator", 10, 5)]);
    house.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_what_the_provider_refuses_costs_nothing_and_what_it_does_not_tell_counts_in_full() {
    let house = house("perDay: { tokens: 5000 }").await;
    house.upstream.reply(Reply::json(400, &serde_json::json!({ "error": { "message": "no" } })));
    assert_eq!(house.post("chat/v1/chat/completions", &message("m")).await.status(), 400);
    house.ended("chat", 1).await;
    house.upstream.reply(Say::new().text("cut").openai().first(2).then_close());
    let cut = house.post("chat/v1/chat/completions", &message("m")).await;
    let _ = cut.text().await;
    house.ended("chat", 2).await;
    let report = Reader::open(&house.daemon.home.home).unwrap().spend_report(By::Model, None).unwrap();
    assert_eq!((report.all.requests, report.all.estimated), (1, 1));
    assert!(report.all.input > 10, "{report:?}");
    house.close("chat").await;
}
