//! Requests that the proxy forwards: responses byte for byte, tokens counted, and never the key.

use reqwest::Method;
use serde_json::{Value, json};
use tribune_testkit::upstream::{ModelOutput, UpstreamReply};

use super::{SECRET, Setup, message};

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_forwarded_byte_for_byte_with_only_the_provider_key() {
    let setup = Setup::open().await;
    let say =
        ModelOutput::new().text("Let me look.").call("c1", "read", r#"{"path":"ü.txt"}"#).usage(30, 7, 60);
    let reply = say.anthropic().with_comments("ping").in_writes_of(13).header("request-id", "req_1");
    setup.upstream.reply(reply.clone());
    let got = setup
        .request(Method::POST, "fake/v1/messages?beta=true")
        .header("x-api-key", &setup.token)
        .header("cookie", "a=b")
        .header("anthropic-version", "2023-06-01")
        .header("anthropic-beta", "x-1")
        .header("openai-organization", "org")
        .header("accept-encoding", "gzip")
        .body(message("m").to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(got.status(), 200);
    assert_eq!(got.headers()["content-type"], "text/event-stream; charset=utf-8");
    assert_eq!(got.headers()["request-id"], "req_1");
    assert!(got.headers()["tribune-entry"].to_str().unwrap().starts_with("b3:"));
    assert_eq!(got.bytes().await.unwrap(), reply.bytes());

    let asked =
        json!({ "model": "m", "stream": true, "stream_options": { "include_usage": true }, "messages": [] });
    setup.upstream.reply(say.openai().crlf());
    let got = setup.post("chat/v1/chat/completions", &asked).await;
    assert_eq!(got.bytes().await.unwrap(), say.openai().crlf().bytes());

    let seen = setup.upstream.requests();
    assert_eq!(seen[0].path, "/v1/messages?beta=true");
    assert_eq!(seen[0].json(), message("m"));
    assert_eq!(seen[0].header("x-api-key"), Some(SECRET));
    assert_eq!(
        (seen[0].header("anthropic-version"), seen[0].header("anthropic-beta")),
        (Some("2023-06-01"), Some("x-1"))
    );
    assert_eq!(seen[0].header("accept-encoding"), Some("identity"));
    assert_eq!(seen[0].header("host"), Some(setup.upstream.address().to_string().as_str()));
    for name in ["authorization", "cookie", "openai-organization"] {
        assert_eq!(seen[0].header(name), None, "{name}");
    }
    assert_eq!(seen[1].path, "/v1/chat/completions");
    assert_eq!(seen[1].header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
    assert_eq!((seen[1].header("x-api-key"), seen[1].json()), (None, asked));
    assert!(seen.iter().all(|request| !format!("{:?}", request.headers).contains(&setup.token)));

    let usage = json!({ "input": 30, "output": 7, "cache_read": 60, "cache_written": 0 });
    setup.ended("chat", 1).await;
    assert_eq!(
        setup.close("fake").await,
        [
            json!({ "event": "asked", "by": "operator", "provider": "fake", "model": "m", "method": "POST", "path": "v1/messages" }),
            json!({ "event": "ended", "status": 200, "outcome": "answered", "usage": usage }),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unrequested_usage_is_counted_and_stripped() {
    let setup = Setup::open().await;
    let say = ModelOutput::new().text("hello").usage(30, 7, 0);
    setup.upstream.reply(say.openai().in_writes_of(5));
    let got = setup.post("chat/chat/completions", &message("m")).await.text().await.unwrap();
    let all = String::from_utf8(say.openai().bytes()).unwrap();
    let kept: String = all.split_inclusive("\n\n").filter(|event| !event.contains("prompt_tokens")).collect();
    assert_eq!(got, kept);
    assert_eq!(setup.upstream.requests()[0].json()["stream_options"], json!({ "include_usage": true }));
    let metrics = setup.http.get(format!("http://{}/metrics", setup.daemon.address()));
    let ended = setup.ended("chat", 1).await;
    assert_eq!(ended[0]["usage"], json!({ "input": 30, "output": 7, "cache_read": 0, "cache_written": 0 }));
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tribune_proxied_total{provider=\"chat\",outcome=\"answered\"} 1"), "{metrics}");
    assert!(
        metrics.contains("tribune_proxied_tokens_total{provider=\"chat\",kind=\"input\"} 30"),
        "{metrics}"
    );
    let home = setup.daemon.stop().await;
    let lines = home.read("logs/chat/tribune.log");
    assert!(
        lines.contains("\"input_tokens\":30") && !lines.contains(SECRET) && !lines.contains("hi"),
        "{lines}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unstreamed_answers_are_counted_and_model_lists_forwarded() {
    let setup = Setup::open().await;
    let body = json!({ "id": "msg", "content": [{ "type": "text", "text": "hello" }], "usage": { "input_tokens": 5, "output_tokens": 2 } });
    setup
        .upstream
        .reply(UpstreamReply::json(200, &body))
        .reply(UpstreamReply::json(200, &json!({ "input_tokens": 9 })));
    let asked = json!({ "model": "m", "max_tokens": 10, "messages": [] });
    let got = setup.post("fake/v1/messages", &asked).await;
    assert_eq!(got.text().await.unwrap(), body.to_string());
    // The ledger has the same order.
    setup.ended("fake", 1).await;
    let got = setup.post("fake/v1/messages/count_tokens", &asked).await;
    assert_eq!(got.text().await.unwrap(), "{\"input_tokens\":9}");
    setup.ended("fake", 2).await;
    setup.upstream.set_models(&["m"]);
    let got =
        setup.request(Method::GET, "fake/v1/models?limit=5").bearer_auth(&setup.token).send().await.unwrap();
    assert!(got.text().await.unwrap().contains("\"m\""));
    assert_eq!(setup.upstream.requests()[2].path, "/v1/models?limit=5");
    let ended: Vec<Value> = setup.ended("fake", 3).await.iter().map(|ended| ended["usage"].clone()).collect();
    let counted = json!({ "input": 5, "output": 2, "cache_read": 0, "cache_written": 0 });
    assert_eq!(ended, [counted, Value::Null, Value::Null]);
    setup.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_key_is_masked_in_every_response() {
    let setup = Setup::open().await;
    let echo =
        json!({ "error": { "type": "invalid_request_error", "message": format!("you sent {SECRET}") } });
    let cut = SECRET.len() / 2;
    setup
        .upstream
        .reply(UpstreamReply::json(400, &echo).header("x-request-id", SECRET).header("set-cookie", SECRET))
        .reply(UpstreamReply::json(401, &echo))
        .reply(
            UpstreamReply::stream(format!("data: {}", &SECRET[..cut]))
                .then(format!("{}\n\n", &SECRET[cut..]))
                .in_writes_of(9),
        )
        .reply(UpstreamReply::redirect(307, &format!("https://evil.example/{SECRET}")))
        .reply(UpstreamReply::json(200, &echo).header("content-encoding", "gzip"))
        .reply(UpstreamReply::reset_at_once());
    for (status, shown) in [
        (400, "you sent"),
        (401, "Tribune's key in FAKE_API_KEY"),
        (200, "data: ***"),
        (502, "redirects"),
        (502, "compressed"),
        (502, "closed the connection"),
    ] {
        let got = setup.post("fake/v1/messages", &message("m")).await;
        assert_eq!(got.status(), status, "{shown}");
        assert!(!format!("{:?}", got.headers()).contains(SECRET), "{:?}", got.headers());
        assert!(got.headers().get("set-cookie").is_none() && got.headers().get("location").is_none());
        let text = got.text().await.unwrap();
        assert!(text.contains(shown) && !text.contains(SECRET), "{text}");
    }
    setup.ended("fake", 6).await;
    let content = setup.close("fake").await;
    // The requests end concurrently, in any order.
    let mut outcomes: Vec<&str> = content.iter().filter_map(|content| content["outcome"].as_str()).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["answered", "failed", "failed", "failed", "refused", "refused"]);
    assert!(!format!("{content:?}").contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn key_split_over_several_events_is_masked_and_the_rest_unchanged() {
    let setup = Setup::open().await;
    let say = ModelOutput::new().text(&format!("your key is {SECRET}, fixture or not")).usage(10, 5, 0);
    setup.upstream.reply(say.anthropic().in_writes_of(11)).reply(say.openai().crlf());
    for (path, place) in
        [("fake/v1/messages", "/delta/text"), ("chat/v1/chat/completions", "/choices/0/delta/content")]
    {
        let body = json!({ "model": "m", "max_tokens": 100, "stream": true, "messages": [] });
        let text = setup.post(path, &body).await.text().await.unwrap();
        let events = text.lines().filter_map(|line| line.trim().strip_prefix("data: "));
        let values = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let content: String =
            values.filter_map(|value| value.pointer(place)?.as_str().map(str::to_owned)).collect();
        let stars = "*".repeat(SECRET.len() - 3);
        assert!(content.starts_with("your key is ") && content.ends_with(", fixture or not"), "{content}");
        assert!(content.contains(&stars) && !content.contains(&SECRET[3..]), "{content}");
    }
    setup.ended("fake", 1).await;
    setup.ended("chat", 1).await;
    // The request log has the estimates and reservations.
    let folder = setup.daemon.home.home.root().join("logs/fake");
    let mut lines = String::new();
    for _ in 0..2_000 {
        let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        lines = files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
        if lines.ends_with('\n') {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let line: Value = serde_json::from_str(lines.trim()).unwrap();
    assert!(line["estimated_tokens"].as_u64().unwrap() >= 10, "{line}");
    assert_eq!(line["reserved_tokens"], 100, "{line}");
    setup.close("fake").await;
}
