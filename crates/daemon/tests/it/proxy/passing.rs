//! What passes: answers to the byte, tokens counted on the way, and never the key.

use reqwest::Method;
use serde_json::{Value, json};
use tribune_testkit::upstream::{Reply, Say};

use super::{House, SECRET, message};

#[tokio::test(flavor = "multi_thread")]
async fn streams_pass_to_the_byte_in_both_dialects_and_the_key_goes_up_alone() {
    let house = House::open().await;
    let say = Say::new().text("Let me look.").call("c1", "read", r#"{"path":"ü.txt"}"#).usage(30, 7, 60);
    let reply = say.anthropic().with_comments("ping").in_writes_of(13).header("request-id", "req_1");
    house.upstream.reply(reply.clone());
    let got = house
        .request(Method::POST, "fake/v1/messages?beta=true")
        .header("x-api-key", &house.token)
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
    house.upstream.reply(say.openai().crlf());
    let got = house.post("chat/v1/chat/completions", &asked).await;
    assert_eq!(got.bytes().await.unwrap(), say.openai().crlf().bytes());

    let seen = house.upstream.requests();
    assert_eq!(seen[0].path, "/v1/messages?beta=true");
    assert_eq!(seen[0].json(), message("m"));
    assert_eq!(seen[0].header("x-api-key"), Some(SECRET));
    assert_eq!(
        (seen[0].header("anthropic-version"), seen[0].header("anthropic-beta")),
        (Some("2023-06-01"), Some("x-1"))
    );
    assert_eq!(seen[0].header("accept-encoding"), Some("identity"));
    assert_eq!(seen[0].header("host"), Some(house.upstream.address().to_string().as_str()));
    for name in ["authorization", "cookie", "openai-organization"] {
        assert_eq!(seen[0].header(name), None, "{name}");
    }
    assert_eq!(seen[1].path, "/v1/chat/completions");
    assert_eq!(seen[1].header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
    assert_eq!((seen[1].header("x-api-key"), seen[1].json()), (None, asked));
    assert!(seen.iter().all(|request| !format!("{:?}", request.headers).contains(&house.token)));

    let usage = json!({ "input": 30, "output": 7, "cache_read": 60, "cache_written": 0 });
    house.ended("chat", 1).await;
    assert_eq!(
        house.close("fake").await,
        [
            json!({ "event": "asked", "by": "operator", "provider": "fake", "model": "m", "method": "POST", "path": "v1/messages" }),
            json!({ "event": "ended", "status": 200, "outcome": "answered", "usage": usage }),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_the_client_did_not_ask_for_are_counted_and_not_shown() {
    let house = House::open().await;
    let say = Say::new().text("hello").usage(30, 7, 0);
    house.upstream.reply(say.openai().in_writes_of(5));
    let got = house.post("chat/chat/completions", &message("m")).await.text().await.unwrap();
    let all = String::from_utf8(say.openai().bytes()).unwrap();
    let kept: String = all.split_inclusive("\n\n").filter(|event| !event.contains("prompt_tokens")).collect();
    assert_eq!(got, kept);
    assert_eq!(house.upstream.requests()[0].json()["stream_options"], json!({ "include_usage": true }));
    let metrics = house.http.get(format!("http://{}/metrics", house.daemon.address()));
    let ended = house.ended("chat", 1).await;
    assert_eq!(ended[0]["usage"], json!({ "input": 30, "output": 7, "cache_read": 0, "cache_written": 0 }));
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tribune_proxied_total{provider=\"chat\",outcome=\"answered\"} 1"), "{metrics}");
    assert!(
        metrics.contains("tribune_proxied_tokens_total{provider=\"chat\",kind=\"input\"} 30"),
        "{metrics}"
    );
    let home = house.daemon.stop().await;
    let lines = home.read("logs/chat/tribune.log");
    assert!(
        lines.contains("\"input_tokens\":30") && !lines.contains(SECRET) && !lines.contains("hi"),
        "{lines}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_in_one_piece_are_counted_and_lists_are_forwarded() {
    let house = House::open().await;
    let body = json!({ "id": "msg", "content": [{ "type": "text", "text": "hello" }], "usage": { "input_tokens": 5, "output_tokens": 2 } });
    house.upstream.reply(Reply::json(200, &body)).reply(Reply::json(200, &json!({ "input_tokens": 9 })));
    let asked = json!({ "model": "m", "max_tokens": 10, "messages": [] });
    let got = house.post("fake/v1/messages", &asked).await;
    assert_eq!(got.text().await.unwrap(), body.to_string());
    // In this order on record as well.
    house.ended("fake", 1).await;
    let got = house.post("fake/v1/messages/count_tokens", &asked).await;
    assert_eq!(got.text().await.unwrap(), "{\"input_tokens\":9}");
    house.ended("fake", 2).await;
    house.upstream.lists(&["m"]);
    let got =
        house.request(Method::GET, "fake/v1/models?limit=5").bearer_auth(&house.token).send().await.unwrap();
    assert!(got.text().await.unwrap().contains("\"m\""));
    assert_eq!(house.upstream.requests()[2].path, "/v1/models?limit=5");
    let ended: Vec<Value> = house.ended("fake", 3).await.iter().map(|ended| ended["usage"].clone()).collect();
    let counted = json!({ "input": 5, "output": 2, "cache_read": 0, "cache_written": 0 });
    assert_eq!(ended, [counted, Value::Null, Value::Null]);
    house.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_never_sees_the_key_whatever_the_provider_sends() {
    let house = House::open().await;
    let echo =
        json!({ "error": { "type": "invalid_request_error", "message": format!("you sent {SECRET}") } });
    let cut = SECRET.len() / 2;
    house
        .upstream
        .reply(Reply::json(400, &echo).header("x-request-id", SECRET).header("set-cookie", SECRET))
        .reply(Reply::json(401, &echo))
        .reply(
            Reply::stream(format!("data: {}", &SECRET[..cut]))
                .then(format!("{}\n\n", &SECRET[cut..]))
                .in_writes_of(9),
        )
        .reply(Reply::redirect(307, &format!("https://evil.example/{SECRET}")))
        .reply(Reply::json(200, &echo).header("content-encoding", "gzip"))
        .reply(Reply::reset_at_once());
    for (status, shown) in [
        (400, "you sent"),
        (401, "Tribune's key in FAKE_API_KEY"),
        (200, "data: ***"),
        (502, "redirects"),
        (502, "compressed"),
        (502, "closed the connection"),
    ] {
        let got = house.post("fake/v1/messages", &message("m")).await;
        assert_eq!(got.status(), status, "{shown}");
        assert!(!format!("{:?}", got.headers()).contains(SECRET), "{:?}", got.headers());
        assert!(got.headers().get("set-cookie").is_none() && got.headers().get("location").is_none());
        let text = got.text().await.unwrap();
        assert!(text.contains(shown) && !text.contains(SECRET), "{text}");
    }
    house.ended("fake", 6).await;
    let said = house.close("fake").await;
    // Each ends by itself, in no order.
    let mut outcomes: Vec<&str> = said.iter().filter_map(|said| said["outcome"].as_str()).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["answered", "failed", "failed", "failed", "refused", "refused"]);
    assert!(!format!("{said:?}").contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_pieces_over_several_events_is_veiled_and_all_else_stays() {
    let house = House::open().await;
    let say = Say::new().text(&format!("your key is {SECRET}, fixture or not")).usage(10, 5, 0);
    house.upstream.reply(say.anthropic().in_writes_of(11)).reply(say.openai().crlf());
    for (path, place) in
        [("fake/v1/messages", "/delta/text"), ("chat/v1/chat/completions", "/choices/0/delta/content")]
    {
        let body = json!({ "model": "m", "max_tokens": 100, "stream": true, "messages": [] });
        let text = house.post(path, &body).await.text().await.unwrap();
        let events = text.lines().filter_map(|line| line.trim().strip_prefix("data: "));
        let values = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let said: String =
            values.filter_map(|value| value.pointer(place)?.as_str().map(str::to_owned)).collect();
        let stars = "*".repeat(SECRET.len() - 3);
        assert!(said.starts_with("your key is ") && said.ends_with(", fixture or not"), "{said}");
        assert!(said.contains(&stars) && !said.contains(&SECRET[3..]), "{said}");
    }
    house.ended("fake", 1).await;
    house.ended("chat", 1).await;
    // The log of requests knows what was estimated and set aside.
    let folder = house.daemon.home.home.root().join("logs/fake");
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
    house.close("fake").await;
}
