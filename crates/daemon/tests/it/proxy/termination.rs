//! How requests end, on either side, and the ledger entry of the end.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tribune_ledger::{Draft, EntryQuality};
use tribune_records::ledger_payloads::{ProxyRecord, payload, proxy_entity};
use tribune_storage::clock::SystemClock;
use tribune_storage::store::Store;
use tribune_testkit::upstream::{ModelOutput, UpstreamReply};
use tribune_testkit::{TestDaemon, assert_sound, config};

use super::{Setup, entries, error, message};

#[tokio::test(flavor = "multi_thread")]
async fn broken_stream_breaks_for_the_client_and_is_recorded() {
    let setup = Setup::open().await;
    let whole = ModelOutput::new().text("hello there, and more").usage(30, 7, 0);
    for (reply, is_torn) in [
        (whole.anthropic().first(4).then_reset(), true),
        (whole.anthropic().first(4).then_close(), true),
        (whole.anthropic().first(4), false),
    ] {
        setup.upstream.reply(reply.clone());
        let mut got = setup.post("fake/v1/messages", &message("m")).await;
        let mut bytes = Vec::new();
        let end = loop {
            match got.chunk().await {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        assert_eq!((bytes, end), (reply.bytes(), is_torn));
    }
    for ended in setup.ended("fake", 3).await {
        assert_eq!((&ended["outcome"], &ended["usage"]["input"]), (&json!("cut"), &json!(30)));
    }
    setup.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_disconnect_cancels_its_request() {
    let setup = Setup::open().await;
    setup.upstream.reply(ModelOutput::new().text("hello").anthropic().first(3).then_silence());
    let mut got = setup.post("fake/v1/messages", &message("m")).await;
    got.chunk().await.unwrap().unwrap();
    drop(got);
    assert_eq!(setup.ended("fake", 1).await[0]["outcome"], "left");
    // Before the response begins, too.
    setup.upstream.reply(UpstreamReply::silence());
    let asked = setup.request(Method::POST, "fake/v1/messages").bearer_auth(&setup.token);
    let asked = tokio::spawn(asked.body(message("m").to_string()).send());
    while setup.upstream.requests().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    asked.abort();
    assert_eq!(setup.ended("fake", 2).await[1]["outcome"], "left");
    setup.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn global_freeze_ends_streams_and_refuses_new_ones() {
    let setup = Setup::open().await;
    setup.upstream.reply(ModelOutput::new().text("hello").anthropic().first(3).then_silence());
    let mut got = setup.post("fake/v1/messages", &message("m")).await;
    got.chunk().await.unwrap().unwrap();
    let mut operator = setup.daemon.operator().await;
    operator.call("gate.stop_all", &json!({})).await.unwrap();
    while let Ok(chunk) = got.chunk().await {
        assert!(chunk.is_some(), "a stopped stream does not look complete");
    }
    assert_eq!(setup.ended("fake", 1).await[0]["outcome"], "stopped");
    let asked = setup.upstream.requests().len();
    let (status, content) = error(setup.post("fake/v1/messages", &message("m")).await).await;
    assert_eq!((status, &content["code"]), (409, &json!("frozen")));
    assert_eq!(setup.upstream.requests().len(), asked, "no request was sent");
    operator.call("gate.resume", &json!({})).await.unwrap();
    setup.upstream.reply(ModelOutput::new().text("hello").anthropic());
    assert_eq!(setup.post("fake/v1/messages", &message("m")).await.status(), 200);
    drop(operator);
    setup.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_shutdown_ends_streams_and_records_it() {
    let setup = Setup::open().await;
    setup.upstream.reply(ModelOutput::new().text("hello").anthropic().first(3).then_silence());
    let mut got = setup.post("fake/v1/messages", &message("m")).await;
    got.chunk().await.unwrap().unwrap();
    let content = setup.close("fake").await;
    assert_eq!(content.last().unwrap()["outcome"], "stopped");
    while let Ok(chunk) = got.chunk().await {
        assert!(chunk.is_some(), "a stopped stream does not look complete");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_request_is_recorded_at_the_next_start() {
    let home = TestDaemon::start().await.stop().await;
    let asked = ProxyRecord::Asked {
        session: None,
        by: "operator".into(),
        provider: "fake".into(),
        model: Some("m".into()),
        method: "POST".into(),
        path: "v1/messages".into(),
    };
    let entity = proxy_entity("fake");
    let draft = Draft {
        entity_id: entity.clone(),
        target: entity,
        quality: EntryQuality::Delivery,
        timestamp: "2030-01-01T00:00:00.000000Z".parse().unwrap(),
        source: "proxy".into(),
        actor: "operator".into(),
        parents: Vec::new(),
        tags: Vec::new(),
        payload: payload(&asked),
        attested_by: None,
        envelope: None,
    };
    let root = home.home.clone();
    tokio::task::spawn_blocking(move || {
        let store = Store::open(&root, &SystemClock).unwrap();
        store.writer().unwrap().append_blocking(&draft).unwrap();
    })
    .await
    .unwrap();
    let daemon = TestDaemon::start_at(home, &config()).await;
    assert_eq!(daemon.daemon.recovered().calls, 1);
    let home = daemon.stop().await;
    assert_sound(&home.home);
    let ended = json!({ "event": "ended", "status": null, "outcome": "interrupted", "usage": null });
    assert_eq!(entries(&home, "fake").last(), Some(&ended));
    let daemon = TestDaemon::start_at(home, &config()).await;
    assert_eq!(daemon.daemon.recovered().calls, 0, "once");
    daemon.stop().await;
}
