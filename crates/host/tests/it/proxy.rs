//! The model proxy with a real client on one side and a real provider on the other: what passes, what does not, who sees the
//! key, and what is on record afterwards.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::{Value, json};
use tribune_host::config::Config;
use tribune_host::daemon::{Daemon, Extras};
use tribune_host::record::{ProxyRecord, payload, proxy_entity};
use tribune_host::store::Filter;
use tribune_host::{Reader, Store, SystemClock};
use tribune_ledger::{Draft, EntryQuality};
use tribune_testkit::upstream::{FakeUpstream, Reply, Say};
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config};

/// What the environment holds for the providers: nothing that anyone should see.
const SECRET: &str = "fixture-key-5f1c9e0b7a";

const ROSTER: &str = "{\"id\":\"main\",\"backend\":\"native\",\"model\":\"fake:m\",\"mandate\":\"default\",\"standing\":false}\n\
                      {\"id\":\"talker\",\"backend\":\"native\",\"model\":\"chat:m\",\"mandate\":\"default\",\"standing\":false}\n\
                      {\"id\":\"mute\",\"backend\":\"rehearsal\",\"mandate\":\"default\",\"standing\":false}\n";

/// Longer than anything here takes on a busy machine. A test that waits for this long has failed.
const BOUND: Duration = Duration::from_secs(60);

struct House {
    daemon: TestDaemon,
    upstream: FakeUpstream,
    token: String,
    http: reqwest::Client,
}

/// Providers `fake` and `chat`, one in each dialect, at one upstream; `dark` has no key, `off` is switched off.
fn providers(upstream: &FakeUpstream) -> Config {
    let base = upstream.base_url();
    let models = "models: { m: { contextWindow: 100000, maxOutputTokens: 1000 } }, startupValidation: 'off'";
    let text = format!(
        "{{ models: {{ providers: {{ \
           fake: {{ kind: 'anthropic', baseUrl: '{base}', keyEnv: 'FAKE_API_KEY', {models} }}, \
           chat: {{ kind: 'openai', baseUrl: '{base}/v1', keyEnv: 'FAKE_API_KEY', {models} }}, \
           dark: {{ kind: 'openai', baseUrl: '{base}/v1', keyEnv: 'DARK_API_KEY', {models} }}, \
           off: {{ kind: 'openai', baseUrl: '{base}/v1', keyEnv: 'FAKE_API_KEY', enabled: false, {models} }} \
         }} }} }}"
    );
    let models = Config::parse("config.json5", &text).unwrap().models;
    Config { models, ..config() }
}

impl House {
    async fn open() -> Self {
        let upstream = FakeUpstream::start().await;
        let home = TempHome::new();
        home.write("data/agent-roster.jsonl", ROSTER);
        let config = providers(&upstream);
        let env = |name: &str| (name == "FAKE_API_KEY").then(|| SECRET.to_owned());
        let extras = Extras { env: Some(Arc::new(env)), ..Extras::default() };
        let daemon = Daemon::start_with(&home.home, &config, Arc::new(SystemClock), extras).await.unwrap();
        let daemon = TestDaemon { daemon, home };
        let token = daemon.token();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        Self { daemon, upstream, token, http }
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("http://{}/v1/proxy/{path}", self.daemon.address()))
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        self.post_as(&self.token, path, body).await
    }

    async fn post_as(&self, token: &str, path: &str, body: &Value) -> Response {
        self.request(Method::POST, path).bearer_auth(token).body(body.to_string()).send().await.unwrap()
    }

    /// A pass of this agent.
    async fn pass(&self, agent: &str) -> String {
        let mut operator = self.daemon.operator().await;
        let pass = operator.call("proxy.pass", &json!({ "agent_id": agent, "minutes": 5 })).await.unwrap();
        pass["token"].as_str().unwrap().to_owned()
    }

    /// Waits until so many entries of a provider say how a request ended.
    async fn ended(&self, provider: &str, count: usize) -> Vec<Value> {
        let mut operator = self.daemon.operator().await;
        let waiting = async {
            loop {
                let asked = json!({ "entity_id": proxy_entity(provider), "limit": 100 });
                let tail = operator.call("ledger.tail", &asked).await.unwrap();
                let payloads: Vec<Value> = tail["entries"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|entry| entry["entry"]["payload"].clone())
                    .collect();
                let ended: Vec<Value> =
                    payloads.into_iter().filter(|payload| payload["event"] == "ended").collect();
                if ended.len() >= count {
                    return ended;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(BOUND, waiting).await.expect("the end is written down")
    }

    /// Stops the daemon, checks its log, and gives what it says of a provider.
    async fn close(self, provider: &str) -> Vec<Value> {
        let home = self.daemon.stop().await;
        assert_sound(&home.home);
        entries(&home, provider)
    }
}

fn entries(home: &TempHome, provider: &str) -> Vec<Value> {
    let reader = Reader::open(&home.home).unwrap();
    let filter = Filter { entity_id: Some(proxy_entity(provider)), quality: Some(EntryQuality::Delivery) };
    let stored = reader.tail(&filter, 1_000).unwrap();
    stored.iter().map(|stored| serde_json::from_str(&stored.entry.payload).unwrap()).collect()
}

async fn error(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    assert!(!text.contains(SECRET), "{text}");
    (status, serde_json::from_str::<Value>(&text).unwrap_or_else(|_| panic!("{text}"))["error"].clone())
}

fn message(model: &str) -> Value {
    json!({ "model": model, "max_tokens": 10, "stream": true, "messages": [{ "role": "user", "content": "hi" }] })
}

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
    let got = house.post("fake/v1/messages/count_tokens", &asked).await;
    assert_eq!(got.text().await.unwrap(), "{\"input_tokens\":9}");
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
        (401, "the house's key in FAKE_API_KEY"),
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
    let outcomes: Vec<&str> = said.iter().filter_map(|said| said["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["refused", "refused", "answered", "failed", "failed", "failed"]);
    assert!(!format!("{said:?}").contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_on_the_list_never_leaves_the_house() {
    use std::io::{Read as _, Write as _};
    let house = House::open().await;
    let forbidden = |answer: &str| answer.starts_with("HTTP/1.1 403") && answer.contains("permission_error");
    for line in [
        "GET /v1/proxy/fake/v1/files",
        "DELETE /v1/proxy/fake/v1/models/m",
        "POST /v1/proxy/fake/v1/messages/batches",
        "GET /v1/proxy/fake/v1/models/../../admin",
        "GET /v1/proxy/fake/v1/models/%2e%2e%2fadmin",
        "GET /v1/proxy/fake//v1/models",
        "GET /v1/proxy/fake/v1/models?limit=1&x=/../admin",
        "GET /v1/proxy/fake/v1/models?key=stolen",
        "POST /v1/proxy/chat/v1/responses",
        "GET /v1/proxy/chat/v1/organization/api_keys",
        "GET /v1/proxy/off/models",
    ] {
        let mut stream = std::net::TcpStream::connect(house.daemon.address()).unwrap();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}",
            house.daemon.address(),
            house.token
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(forbidden(&answer), "{line}: {answer}");
    }
    for path in ["nobody/v1/messages", "../v1/status", "%66ake/v1/messages"] {
        let got = house.request(Method::POST, path).bearer_auth(&house.token).send().await.unwrap();
        assert!([404, 405].contains(&got.status().as_u16()), "{path}: {}", got.status());
    }
    let (status, said) = error(house.post("dark/v1/chat/completions", &message("m")).await).await;
    assert_eq!((status, &said["code"]), (503, &json!("no_key")));
    assert_eq!(said["message"], "Missing DARK_API_KEY: set it in the environment of the daemon to use dark");
    assert_eq!(house.upstream.connections(), 0, "nobody was asked");
    let said = house.close("fake").await;
    assert_eq!(said, vec![json!({ "event": "refused", "by": "operator", "provider": "fake" }); 8]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_operator_and_agents_with_a_pass_are_let_in() {
    let house = House::open().await;
    let mut operator = house.daemon.operator().await;
    let approver = operator.call("approver.add", &json!({ "id": "ada" })).await.unwrap();
    for (token, status, kind) in [
        ("", 401, "authentication_error"),
        ("trb_wrong", 401, "authentication_error"),
        ("trbp_wrong", 401, "authentication_error"),
        (SECRET, 401, "authentication_error"),
        (approver["token"].as_str().unwrap(), 403, "permission_error"),
    ] {
        for header in ["authorization", "x-api-key"] {
            let value = if header == "authorization" { format!("Bearer {token}") } else { token.to_owned() };
            let asked = house.request(Method::POST, "fake/v1/messages").header(header, value);
            let (got, said) = error(asked.body(message("m").to_string()).send().await.unwrap()).await;
            assert_eq!((got, said["type"].as_str()), (status, Some(kind)), "{header}: {token}");
        }
    }
    let asked = house.request(Method::POST, "fake/v1/messages").body(message("m").to_string());
    assert_eq!(error(asked.send().await.unwrap()).await.0, 401);
    // A pass opens the proxy and nothing else.
    let pass = house.pass("main").await;
    let status = house.http.get(format!("http://{}/v1/status", house.daemon.address())).bearer_auth(&pass);
    assert_eq!(status.send().await.unwrap().status(), 401);
    for (params, code) in [
        (json!({ "agent_id": "mute" }), "invalid_params"),
        (json!({ "agent_id": "nobody" }), "unknown_agent"),
        (json!({}), "invalid_params"),
        (json!({ "agent_id": "main", "minutes": 0 }), "invalid_params"),
        (json!({ "agent_id": "main", "minutes": 1441 }), "invalid_params"),
    ] {
        assert_eq!(operator.call("proxy.pass", &params).await.unwrap_err().code(), Some(code), "{params}");
    }
    assert_eq!(house.upstream.connections(), 0, "nobody was asked");
    drop(operator);
    assert!(house.close("fake").await.is_empty(), "who is nobody leaves no trace in the ledger");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_asks_its_own_model_for_an_answer_and_nothing_else() {
    let house = House::open().await;
    let pass = house.pass("main").await;
    let with = |more: Value| {
        let mut body = message("m");
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (path, body) in [
        ("fake/v1/messages", message("other")),
        ("fake/v1/messages", message("M")),
        ("chat/v1/chat/completions", message("m")),
        (
            "fake/v1/messages",
            with(json!({ "mcp_servers": [{ "type": "url", "url": "https://evil.example" }] })),
        ),
        (
            "fake/v1/messages",
            with(json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] })),
        ),
        (
            "fake/v1/messages",
            with(
                json!({ "messages": [{ "role": "user", "content": [{ "type": "image", "source": { "type": "url", "url": "https://evil.example/?q=1" } }] }] }),
            ),
        ),
    ] {
        let (status, said) = error(house.post_as(&pass, path, &body).await).await;
        assert_eq!((status, said["type"].as_str()), (403, Some("permission_error")), "{path} {body}");
    }
    for twice in [r#"{"model":"m","model":"other"}"#, r#"{"model":"m","Model":"other"}"#] {
        let asked = house.request(Method::POST, "fake/v1/messages").bearer_auth(&pass).body(twice);
        assert_eq!(error(asked.send().await.unwrap()).await.0, 400, "{twice}");
    }
    let list = house.request(Method::GET, "fake/v1/models").bearer_auth(&pass);
    assert_eq!(list.send().await.unwrap().status(), 403);
    assert_eq!(house.upstream.connections(), 0, "nobody was asked");

    house.upstream.reply(Say::new().text("hello").anthropic());
    let got = house.post_as(&pass, "fake/v1/messages", &message("m")).await;
    assert_eq!(got.bytes().await.unwrap(), Say::new().text("hello").anthropic().bytes());
    house.ended("fake", 1).await;
    let said = house.close("fake").await;
    let by: Vec<_> = said.iter().filter_map(|said| said["by"].as_str()).collect();
    assert_eq!(by, ["main"; 7]);
    assert_eq!(said.iter().filter(|said| said["event"] == "refused").count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_is_refused_before_anyone_is_asked() {
    let house = House::open().await;
    let huge = json!({ "model": "m", "messages": ["x".repeat(9 << 20)] });
    let sent = house.request(Method::POST, "fake/v1/messages").bearer_auth(&house.token);
    // The daemon may hang up before all of it was sent; either way nobody is asked.
    if let Ok(got) = sent.body(huge.to_string()).send().await {
        assert_eq!(error(got).await.1["type"], "request_too_large");
    }
    assert_eq!(house.upstream.connections(), 0);
    house.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_take_all_their_room_do_not_keep_the_operator_out() {
    let house = House::open().await;
    let pass = house.pass("main").await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..32 {
        house.upstream.reply(Reply::silence());
        let asked = house.request(Method::POST, "fake/v1/messages").bearer_auth(&pass);
        waiting.spawn(asked.body(message("m").to_string()).send());
    }
    while house.upstream.requests().len() < 32 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (status, said) = error(house.post_as(&pass, "fake/v1/messages", &message("m")).await).await;
    assert_eq!((status, &said["code"]), (429, &json!("busy")));
    house.upstream.reply(Say::new().text("hello").anthropic());
    assert_eq!(house.post("fake/v1/messages", &message("m")).await.status(), 200);
    drop(waiting);
    house.ended("fake", 33).await;
    house.upstream.reply(Say::new().text("hello").anthropic());
    assert_eq!(
        house.post_as(&pass, "fake/v1/messages", &message("m")).await.status(),
        200,
        "there is room again"
    );
    house.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_is_broken_for_the_client_too_and_on_record() {
    let house = House::open().await;
    let whole = Say::new().text("hello there, and more").usage(30, 7, 0);
    for (reply, is_torn) in [
        (whole.anthropic().first(4).then_reset(), true),
        (whole.anthropic().first(4).then_close(), true),
        (whole.anthropic().first(4), false),
    ] {
        house.upstream.reply(reply.clone());
        let mut got = house.post("fake/v1/messages", &message("m")).await;
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
    for ended in house.ended("fake", 3).await {
        assert_eq!((&ended["outcome"], &ended["usage"]["input"]), (&json!("cut"), &json!(30)));
    }
    house.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_takes_its_request_along() {
    let house = House::open().await;
    house.upstream.reply(Say::new().text("hello").anthropic().first(3).then_silence());
    let mut got = house.post("fake/v1/messages", &message("m")).await;
    got.chunk().await.unwrap().unwrap();
    drop(got);
    assert_eq!(house.ended("fake", 1).await[0]["outcome"], "left");
    // Before the answer begins, too.
    house.upstream.reply(Reply::silence());
    let asked = house.request(Method::POST, "fake/v1/messages").bearer_auth(&house.token);
    let asked = tokio::spawn(asked.body(message("m").to_string()).send());
    while house.upstream.requests().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    asked.abort();
    assert_eq!(house.ended("fake", 2).await[1]["outcome"], "left");
    house.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_everything_ends_streams_and_refuses_new_ones() {
    let house = House::open().await;
    house.upstream.reply(Say::new().text("hello").anthropic().first(3).then_silence());
    let mut got = house.post("fake/v1/messages", &message("m")).await;
    got.chunk().await.unwrap().unwrap();
    let mut operator = house.daemon.operator().await;
    operator.call("gate.stop_all", &json!({})).await.unwrap();
    while let Ok(chunk) = got.chunk().await {
        assert!(chunk.is_some(), "a stream that is stopped does not look whole");
    }
    assert_eq!(house.ended("fake", 1).await[0]["outcome"], "stopped");
    let asked = house.upstream.requests().len();
    let (status, said) = error(house.post("fake/v1/messages", &message("m")).await).await;
    assert_eq!((status, &said["code"]), (409, &json!("frozen")));
    assert_eq!(house.upstream.requests().len(), asked, "nobody was asked");
    operator.call("gate.resume", &json!({})).await.unwrap();
    house.upstream.reply(Say::new().text("hello").anthropic());
    assert_eq!(house.post("fake/v1/messages", &message("m")).await.status(), 200);
    drop(operator);
    house.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_ends_streams_and_writes_down_that_it_did() {
    let house = House::open().await;
    house.upstream.reply(Say::new().text("hello").anthropic().first(3).then_silence());
    let mut got = house.post("fake/v1/messages", &message("m")).await;
    got.chunk().await.unwrap().unwrap();
    let said = house.close("fake").await;
    assert_eq!(said.last().unwrap()["outcome"], "stopped");
    while let Ok(chunk) = got.chunk().await {
        assert!(chunk.is_some(), "a stream that is stopped does not look whole");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_a_crash_cut_short_is_found_at_the_next_start() {
    let home = TestDaemon::start().await.stop().await;
    let asked = ProxyRecord::Asked {
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
    let daemon = TestDaemon::on(home, &config()).await;
    assert_eq!(daemon.daemon.recovered().calls, 1);
    let home = daemon.stop().await;
    assert_sound(&home.home);
    let ended = json!({ "event": "ended", "status": null, "outcome": "interrupted", "usage": null });
    assert_eq!(entries(&home, "fake").last(), Some(&ended));
    let daemon = TestDaemon::on(home, &config()).await;
    assert_eq!(daemon.daemon.recovered().calls, 0, "once");
    daemon.stop().await;
}
