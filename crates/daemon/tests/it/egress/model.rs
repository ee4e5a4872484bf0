//! The socket to a session's model: the provider key is sent upstream, nothing of it comes back, and the session is
//! charged.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tribune_config::Config;
use tribune_daemon::daemon::{Daemon, DaemonOverrides};
use tribune_egress::SessionSockets;
use tribune_records::ledger_payloads::proxy_entity;
use tribune_records::spend::report::SpendGrouping;
use tribune_storage::clock::SystemClock;
use tribune_storage::store::EntryFilter;
use tribune_storage::store::Reader;
use tribune_testkit::upstream::{FakeUpstream, ModelOutput};
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config};

use super::{KEY, TIMEOUT, key};

/// The provider key in the environment: no output may contain it.
const SECRET: &str = "fixture-key-5f1c9e0b7a";

/// The placeholder that a program in a sandbox has instead of a key.
const PLACEHOLDER: &str = "placeholder-of-the-sandbox";

const ROSTER: &str = "{\"id\":\"main\",\"backend\":\"native\",\"model\":\"fake:m\",\"mandate\":\"default\",\"standing\":false}\n\
                      {\"id\":\"mute\",\"backend\":\"rehearsal\",\"mandate\":\"default\",\"standing\":false}\n";

struct Setup {
    daemon: TestDaemon,
    upstream: FakeUpstream,
    sockets: SessionSockets,
}

impl Setup {
    async fn open(spend: &str) -> Self {
        Self::open_as("anthropic", spend).await
    }

    /// The same with a provider of another kind.
    async fn open_as(kind: &str, spend: &str) -> Self {
        let upstream = FakeUpstream::start().await;
        let home = TempHome::new();
        home.write("data/agent-roster.jsonl", ROSTER);
        let text = format!(
            "{{ spend: {{ {spend} }}, models: {{ providers: {{ fake: {{ kind: '{kind}', baseUrl: '{}', keyEnv: 'FAKE_API_KEY', \
               models: {{ m: {{ contextWindow: 100000, maxOutputTokens: 1000 }} }}, startupValidation: 'off' }} }} }} }}",
            upstream.base_url()
        );
        let read = Config::parse("config.json5", &text).unwrap();
        let config = Config { models: read.models, spend: read.spend, ..config() };
        let env = |name: &str| (name == "FAKE_API_KEY").then(|| SECRET.to_owned());
        let extras = DaemonOverrides { env: Some(Arc::new(env)), ..DaemonOverrides::default() };
        let daemon = Daemon::start_with(&home.home, &config, Arc::new(SystemClock), extras).await.unwrap();
        let sockets = daemon.socket_service().open(&key(KEY)).unwrap();
        Self { daemon: TestDaemon { daemon, home }, upstream, sockets }
    }

    /// Sends a request as a program in the sandbox does, whose SDK has a placeholder for a key.
    async fn post(&self, path: &str, body: &Value) -> (u16, String) {
        send(&self.sockets, path, body).await
    }

    fn entries(&self) -> Vec<Value> {
        let reader = Reader::open(&self.daemon.home.home).unwrap();
        let filter = EntryFilter { entity_id: Some(proxy_entity("fake")), quality: None };
        let stored = reader.tail(&filter, 1_000).unwrap();
        stored.iter().map(|stored| serde_json::from_str(&stored.entry.payload).unwrap()).collect()
    }

    async fn ended(&self, count: usize) {
        let waiting = async {
            while self.entries().iter().filter(|payload| payload["event"] == "ended").count() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.expect("the end is recorded");
    }
}

async fn send(sockets: &SessionSockets, path: &str, body: &Value) -> (u16, String) {
    let body = body.to_string();
    let mut stream = UnixStream::connect(sockets.model()).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:4000\r\nauthorization: Bearer {PLACEHOLDER}\r\nx-api-key: other-{PLACEHOLDER}\r\nx-goog-api-key: third-{PLACEHOLDER}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer))
        .await
        .expect("the end of the response")
        .unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(!answer.contains(SECRET), "{answer}");
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn message(model: &str) -> Value {
    json!({ "model": model, "max_tokens": 10, "messages": [{ "role": "user", "content": "hi" }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_key_is_inserted_and_no_other_is_forwarded() {
    let setup = Setup::open("").await;
    setup.upstream.reply(ModelOutput::new().text("hello from the model").usage(30, 7, 0).anthropic());
    let (status, answer) = setup.post("/v1/messages", &message("m")).await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("hello") && answer.contains("message_stop"), "{answer}");
    let seen = setup.upstream.requests();
    assert_eq!((seen[0].path.as_str(), seen[0].header("x-api-key")), ("/v1/messages", Some(SECRET)));
    assert!(!format!("{:?}", seen[0].headers).contains(PLACEHOLDER));
    setup.ended(1).await;
    assert_eq!(
        setup.entries()[0],
        json!({ "event": "asked", "by": "main", "session": KEY, "provider": "fake", "model": "m", "method": "POST", "path": "v1/messages" })
    );
    drop(setup.sockets);
    assert_sound(&setup.daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_reaches_only_its_own_model_on_the_allowed_paths() {
    let setup = Setup::open("").await;
    for (path, body, expected) in [
        ("/v1/messages", message("other"), 403),
        ("/v1/files", message("m"), 403),
        ("/v1/../v1/messages", message("m"), 403),
        ("/v1/proxy/fake/v1/messages", message("m"), 403),
        ("/v1/sessions", json!({}), 403),
        ("/rpc", json!({}), 403),
        ("http://evil.example/v1/files", message("m"), 403),
        ("/v1/messages", json!({ "model": "m", "mcp_servers": [{ "url": "https://evil.example" }] }), 403),
        ("/v1/messages", json!([]), 400),
    ] {
        let (status, answer) = setup.post(path, &body).await;
        assert_eq!(status, expected, "{path} {body}: {answer}");
    }
    assert_eq!(setup.upstream.requests().len(), 0);
    // An agent without a model has none on its socket either.
    let other = setup.daemon.daemon.socket_service().open(&key("agent:mute:cli:local:dm:op")).unwrap();
    let (status, answer) = send(&other, "/v1/messages", &message("m")).await;
    assert_eq!(status, 403);
    assert!(answer.contains("has no model"), "{answer}");
    drop((other, setup.sockets));
    assert_sound(&setup.daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn s9_sandbox_requests_are_charged_to_the_session_up_to_its_limit() {
    let setup = Setup::open("perSession: { tokens: 1950 }").await;
    setup.upstream.reply(ModelOutput::new().text("one").usage(1_500, 400, 0).anthropic());
    assert_eq!(setup.post("/v1/messages", &message("m")).await.0, 200);
    setup.ended(1).await;
    let (status, answer) = setup.post("/v1/messages", &message("m")).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("the limit of"), "{answer}");
    assert_eq!(setup.upstream.requests().len(), 1);
    // Another session has its own budget.
    let other = setup.daemon.daemon.socket_service().open(&key("agent:main:cli:local:dm:two")).unwrap();
    setup.upstream.reply(ModelOutput::new().text("two").usage(10, 5, 0).anthropic());
    assert_eq!(send(&other, "/v1/messages", &message("m")).await.0, 200);
    setup.ended(2).await;
    let report =
        Reader::open(&setup.daemon.home.home).unwrap().spend_report(SpendGrouping::Session, None).unwrap();
    let mut lines: Vec<(&str, u64)> =
        report.lines.iter().map(|line| (line.name.as_str(), line.input)).collect();
    lines.sort_unstable();
    assert_eq!(lines, [(KEY, 1_500), ("agent:main:cli:local:dm:two", 10)]);
    drop((other, setup.sockets));
    assert_sound(&setup.daemon.stop().await.home);
}

/// The requests of the other two APIs on a socket: the kind of provider, the path, a body, and the text of the model.
fn other_apis() -> [(&'static str, &'static str, Value, tribune_testkit::UpstreamReply); 2] {
    let say = ModelOutput::new().text("hello from the model").usage(30, 7, 60);
    let responses = json!({
        "model": "m", "stream": true, "store": false, "max_output_tokens": 10, "include": ["reasoning.encrypted_content"],
        "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hi" }] }],
    });
    let gemini = json!({
        "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }], "generationConfig": { "maxOutputTokens": 10 },
    });
    [
        ("openai", "/v1/responses", responses, say.responses()),
        ("gemini", "/v1beta/models/m:streamGenerateContent?alt=sse", gemini, say.gemini()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_and_gemini_are_forwarded_with_the_key_and_counted() {
    for (kind, path, body, reply) in other_apis() {
        let setup = Setup::open_as(kind, "perSession: { tokens: 4000 }").await;
        let whole = String::from_utf8(reply.bytes()).unwrap();
        setup.upstream.reply(reply);
        let (status, answer) = setup.post(path, &body).await;
        assert_eq!(status, 200, "{answer}");
        let last = whole.trim_end().rsplit("\n").next().unwrap();
        assert!(answer.contains(last), "byte for byte, {kind}: {answer}");
        let seen = &setup.upstream.requests()[0];
        let (header, expected) = match kind {
            "openai" => ("authorization", format!("Bearer {SECRET}")),
            _ => ("x-goog-api-key", SECRET.to_owned()),
        };
        assert_eq!(seen.header(header), Some(expected.as_str()));
        assert!(!format!("{:?}", seen.headers).contains(PLACEHOLDER), "{kind}");
        assert_eq!(seen.json(), body);
        setup.ended(1).await;
        let entries = setup.entries();
        let usage = json!({ "input": 30, "output": 7, "cache_read": 60, "cache_written": 0 });
        let ended = entries.iter().find(|payload| payload["event"] == "ended").unwrap();
        assert_eq!((&ended["outcome"], &ended["usage"]), (&json!("answered"), &usage), "{kind}");
        let report = Reader::open(&setup.daemon.home.home)
            .unwrap()
            .spend_report(SpendGrouping::Session, None)
            .unwrap();
        assert_eq!(report.lines[0].input + report.lines[0].output, 37, "{kind}");
        drop(setup.sockets);
        assert_sound(&setup.daemon.stop().await.home);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_and_gemini_reach_no_other_path() {
    for (kind, path, body, _) in other_apis() {
        let setup = Setup::open_as(kind, "perSession: { tokens: 4000 }").await;
        let with = |name: &str, value: Value| {
            let mut body = body.clone();
            body[name] = value;
            body
        };
        let other = path.replace("/m:", "/other:");
        for (path, body, expected) in [
            (other.as_str(), with("model", json!("other")), if kind == "openai" { 403 } else { 400 }),
            ("/v1/responses/resp_1", body.clone(), 403),
            ("/v1beta/models/other:generateContent", body.clone(), 403),
            ("/v1beta/models/m:streamGenerateContent", body.clone(), 403),
            ("/v1beta/models/m:generateContent?key=mine", body.clone(), 403),
            ("/v1beta/cachedContents", body.clone(), 403),
            (path, with("tools", json!([{ "type": "web_search" }])), 403),
            (path, with("tools", json!([{ "googleSearch": {} }])), 403),
            (path, with("previous_response_id", json!("resp_1")), 403),
            (path, with("cachedContent", json!("x")), 403),
            (path, with("store", json!(true)), 403),
            // More than the remaining budget of the session.
            (path, with("max_output_tokens", json!(100_000)), 403),
            (path, with("generationConfig", json!({ "maxOutputTokens": 100_000 })), 403),
            (
                path,
                with("generationConfig", json!({ "maxOutputTokens": 10, "candidateCount": 1000 })),
                if kind == "openai" { 403 } else { 400 },
            ),
        ] {
            let (status, answer) = setup.post(path, &body).await;
            assert_eq!(status, expected, "{kind} {path} {body}: {answer}");
            let shape = if kind == "openai" { "\"type\":" } else { "\"status\":" };
            assert!(answer.contains(shape), "{answer}");
        }
        assert_eq!(setup.upstream.requests().len(), 0, "{kind}");
        drop(setup.sockets);
        assert_sound(&setup.daemon.stop().await.home);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_stream_costs_its_reservation() {
    for (kind, path, body, reply) in other_apis() {
        let setup = Setup::open_as(kind, "").await;
        setup.upstream.reply(reply.first(2).then_close());
        setup.post(path, &body).await;
        setup.ended(1).await;
        let ended = setup.entries().into_iter().find(|payload| payload["event"] == "ended").unwrap();
        assert_eq!(ended["outcome"], "cut", "{kind}");
        drop(setup.sockets);
        assert_sound(&setup.daemon.stop().await.home);
    }
}
