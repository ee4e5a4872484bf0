//! Every failure has a code and a one-line message with a next step, and the message never contains the key.

use std::time::Duration;

use insta::assert_snapshot;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpSocket};
use tribune_providers::{ApiDialect, ApiKey, ModelResponse, ProviderClient, ProviderEndpoint, ProviderError};
use tribune_testkit::{FakeUpstream, ModelOutput, UpstreamReply};

use crate::fixture::{KEY, ask, client, endpoint, hello, refused};

/// The code and the message, after checks that hold for every message.
fn line(error: &ProviderError) -> String {
    let line = error.to_string();
    assert!(!line.contains(KEY) && !format!("{error:?}").contains(KEY), "{line}");
    assert!(!line.contains(['\n', '\r', '<', '\u{1b}']), "{line}");
    assert!(line.contains(": "), "a next step: {line}");
    format!("{}: {line}", error.code())
}

/// The errors that the replies produce, one per line.
async fn lines(dialect: ApiDialect, replies: Vec<UpstreamReply>) -> String {
    let mut lines = Vec::new();
    for reply in replies {
        let upstream = FakeUpstream::start().await;
        for _ in 0..3 {
            upstream.reply(reply.clone());
        }
        lines.push(line(&refused(&client(dialect, &upstream)).await));
    }
    lines.join("\n")
}

fn anthropic(status: u16, kind: &str, message: &str) -> UpstreamReply {
    let error =
        json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_011" });
    UpstreamReply::json(status, &error)
}

fn openai(status: u16, kind: &str, code: Value, message: &str) -> UpstreamReply {
    UpstreamReply::json(
        status,
        &json!({ "error": { "message": message, "type": kind, "param": null, "code": code } }),
    )
}

#[tokio::test]
async fn what_anthropic_answers() {
    let replies = vec![
        anthropic(400, "invalid_request_error", "messages: at least one message is required"),
        anthropic(400, "invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum"),
        anthropic(401, "authentication_error", &format!("invalid x-api-key {KEY}")),
        anthropic(402, "billing_error", "pay"),
        anthropic(403, "permission_error", "Your API key does not have permission"),
        anthropic(404, "not_found_error", "model: claude-nope"),
        anthropic(413, "request_too_large", "Request exceeds the maximum size"),
        anthropic(
            429,
            "rate_limit_error",
            "Number of request tokens has exceeded your per-minute rate limit",
        ),
        anthropic(429, "rate_limit_error", "slow down").header("retry-after", "3600"),
        anthropic(500, "api_error", "Internal server error"),
        anthropic(529, "overloaded_error", "Overloaded"),
        UpstreamReply::page(502),
        UpstreamReply::page(200),
        UpstreamReply::json(200, &json!({ "error": { "message": "not here" } })),
        UpstreamReply::redirect(307, "https://user:secret@elsewhere.example/v1/messages?key=1"),
        UpstreamReply::events([(
            Some("error"),
            json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } })
                .to_string(),
        )]),
        UpstreamReply::stream("data: <html>\n\n"),
        UpstreamReply::stream("just a line\n"),
        UpstreamReply::stream(vec![b'x'; 5 << 20]),
    ];
    assert_snapshot!(lines(ApiDialect::Anthropic, replies).await);
}

#[tokio::test]
async fn what_others_answer() {
    let replies = vec![
        openai(
            401,
            "invalid_request_error",
            json!("invalid_api_key"),
            "Incorrect API key provided: sk-te***cdef.",
        ),
        openai(429, "insufficient_quota", json!("insufficient_quota"), "You exceeded your current quota"),
        openai(429, "engine_overloaded_error", Value::Null, "The engine is currently overloaded"),
        openai(429, "rate_limit_reached_error", Value::Null, "max RPM: 3"),
        openai(
            400,
            "invalid_request_error",
            json!("context_length_exceeded"),
            "This model's maximum context length is 8192",
        ),
        openai(404, "invalid_request_error", json!("model_not_found"), "The model `gpt-nope` does not exist"),
        UpstreamReply::json(404, &json!({ "error": "model 'nope' not found" })),
        UpstreamReply::json(
            400,
            &json!([{ "error": { "code": 400, "message": "API key not valid.\nPlease pass one.", "status": "INVALID_ARGUMENT" } }]),
        ),
        UpstreamReply::json(422, &json!({ "detail": format!("\u{1b}[31m{KEY} {}", "long ".repeat(200)) })),
        UpstreamReply::json(500, &json!({ "error": { "message": "<html><body>proxy</body></html>" } })),
        openai(503, "server_error", Value::Null, "busy"),
        UpstreamReply::events([(
            None,
            json!({ "error": { "message": "Rate limited upstream", "code": 429 } }).to_string(),
        )]),
    ];
    assert_snapshot!(lines(ApiDialect::OpenAiCompatible, replies).await);
}

#[tokio::test]
async fn missing_key_fails_before_any_connection() {
    let upstream = FakeUpstream::start().await;
    let endpoint =
        ProviderEndpoint { key: None, ..endpoint(ApiDialect::OpenAiCompatible, &upstream.base_url()) };
    let client = ProviderClient::new(endpoint).unwrap();
    let error = refused(&client).await;
    assert_snapshot!(line(&error), @"missing_key: Missing MOONSHOT_API_KEY: set it in the environment of the daemon to use moonshot");
    assert_eq!(client.models().await.unwrap_err(), error);
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn key_with_invalid_characters_is_rejected() {
    let endpoint = ProviderEndpoint {
        key: ApiKey::new("a\nb"),
        ..endpoint(ApiDialect::Anthropic, "http://127.0.0.1:9")
    };
    let error = refused(&ProviderClient::new(endpoint).unwrap()).await;
    assert_snapshot!(line(&error), @"unusable_key: the key for anthropic in ANTHROPIC_API_KEY contains an invalid character: copy it again");
}

#[tokio::test]
async fn key_over_plain_http_is_rejected() {
    let error = ProviderClient::new(endpoint(ApiDialect::OpenAi, "http://api.example.com/v1")).unwrap_err();
    assert_snapshot!(line(&error), @"insecure_url: the key for openai would be sent unencrypted over http: use https in baseUrl");
    // A server in the local network that requires no key is allowed.
    let keyless = ProviderEndpoint {
        key: None,
        key_env: None,
        ..endpoint(ApiDialect::OpenAiCompatible, "http://10.0.0.7:11434/v1")
    };
    assert!(ProviderClient::new(keyless).is_ok());
}

#[tokio::test]
async fn unresolvable_host_name() {
    let client = ProviderClient::new(endpoint(ApiDialect::Anthropic, "https://api.nowhere.invalid")).unwrap();
    assert_snapshot!(line(&refused(&client).await), @"dns_failed: the host name api.nowhere.invalid of anthropic could not be resolved: check baseUrl and the network");
}

#[tokio::test]
async fn refused_connection() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let client =
        ProviderClient::new(endpoint(ApiDialect::Anthropic, &format!("http://127.0.0.1:{port}"))).unwrap();
    let error = refused(&client).await;
    assert_snapshot!(line(&error).replace(&port.to_string(), "PORT"), @"connect_failed: the connection to 127.0.0.1:PORT for anthropic failed (refused): check that the server runs and that baseUrl is correct");
}

#[tokio::test]
async fn server_without_tls() {
    let upstream = FakeUpstream::start().await;
    let client =
        ProviderClient::new(endpoint(ApiDialect::Anthropic, &format!("https://{}", upstream.address())))
            .unwrap();
    let error = refused(&client).await;
    assert_snapshot!(line(&error).replace(&upstream.address().port().to_string(), "PORT"), @"tls_failed: the TLS handshake with 127.0.0.1:PORT for anthropic failed: check that it serves https and that this machine trusts its certificate");
    // A server that closes the connection during the handshake.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
    });
    let client = ProviderClient::new(endpoint(ApiDialect::Anthropic, &base)).unwrap();
    assert_eq!(refused(&client).await.code(), "tls_failed");
    server.await.unwrap();
}

#[tokio::test]
async fn connect_timeout() {
    // The accept queue is full, so further connections are neither accepted nor refused.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    for _ in 0..8 {
        let connect = tokio::net::TcpStream::connect(address);
        let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(100), connect).await else { break };
        queued.push(stream);
    }
    assert!(queued.len() < 8, "the queue fills up");
    let mut endpoint = endpoint(ApiDialect::Anthropic, &format!("http://{address}"));
    endpoint.timeouts.connect = Duration::from_millis(200);
    let error = refused(&ProviderClient::new(endpoint).unwrap()).await;
    assert_snapshot!(line(&error).replace(&address.port().to_string(), "PORT"), @"connect_timeout: the connection to 127.0.0.1:PORT for anthropic was not established within 200 ms: check baseUrl and the network");
}

#[tokio::test]
async fn first_byte_timeout() {
    let upstream = FakeUpstream::start().await;
    upstream.reply(UpstreamReply::silence()).reply(ModelOutput::new().anthropic().first(0).then_silence());
    let mut endpoint = endpoint(ApiDialect::Anthropic, &upstream.base_url());
    endpoint.timeouts.first_byte = Duration::from_millis(100);
    let client = ProviderClient::new(endpoint).unwrap();
    for what in ["no head", "no body"] {
        let error = refused(&client).await;
        assert_eq!(
            line(&error),
            "first_byte_timeout: anthropic sent nothing within 100 ms: try again, or shorten the conversation",
            "{what}"
        );
    }
}

#[tokio::test]
async fn connection_reset_before_the_response() {
    let upstream = FakeUpstream::start().await;
    upstream.reply(UpstreamReply::reset_at_once());
    let error = refused(&client(ApiDialect::Anthropic, &upstream)).await;
    assert_snapshot!(line(&error), @"connection_lost: anthropic closed the connection before it answered: try again");
}

/// The partial answer that arrives before each kind of interruption, and the error after it.
#[tokio::test]
async fn an_answer_that_breaks_off_keeps_what_arrived() {
    let say = ModelOutput::new().text("one two three four five");
    let mut lines = Vec::new();
    for (dialect, reply) in
        [(ApiDialect::Anthropic, say.anthropic()), (ApiDialect::OpenAiCompatible, say.openai())]
    {
        for (what, reply) in [
            ("reset", reply.clone().first(5).then_reset()),
            ("closed", reply.clone().first(5).then_close()),
            ("ended", reply.clone().first(5)),
            ("silent", reply.clone().first(5).then_silence()),
            ("rubbish", reply.clone().first(5).then("data: {]\n\n")),
            ("too large", reply.first(5).then(vec![b'x'; 6 << 20])),
        ] {
            let upstream = FakeUpstream::start().await;
            upstream.reply(reply);
            let mut endpoint = endpoint(dialect, &upstream.base_url());
            endpoint.timeouts.idle = Duration::from_millis(150);
            let (answer, error) = ask(&ProviderClient::new(endpoint).unwrap(), &hello()).await;
            assert!("one two three four five".starts_with(&answer.text()));
            lines.push(format!("{what}: {:?}, then {}", answer.text(), line(&error.expect("an error"))));
            assert_eq!(answer.finish_reason, None);
            // Output had arrived, so the request was not retried.
            assert_eq!(upstream.requests().len(), 1);
        }
    }
    assert_snapshot!(lines.join("\n"));
}

#[tokio::test]
async fn pings_do_not_extend_the_answer_timeout() {
    let upstream = FakeUpstream::start().await;
    let mut reply = ModelOutput::new().text("hm").anthropic().first(4);
    for _ in 0..100 {
        reply = reply.then(": ping\n\n").then_pause(Duration::from_millis(20));
    }
    upstream.reply(reply);
    let mut endpoint = endpoint(ApiDialect::Anthropic, &upstream.base_url());
    (endpoint.timeouts.idle, endpoint.timeouts.total) =
        (Duration::from_millis(200), Duration::from_millis(400));
    let (answer, error) = ask(&ProviderClient::new(endpoint).unwrap(), &hello()).await;
    assert_eq!(answer.text(), "hm");
    assert_snapshot!(line(&error.unwrap()), @"answer_timeout: anthropic did not finish its answer within 400 ms: the partial answer is kept, ask for less at once");
}

#[tokio::test]
async fn a_list_of_models_that_is_none() {
    let upstream = FakeUpstream::start().await;
    let client = client(ApiDialect::OpenAi, &upstream);
    upstream
        .reply(UpstreamReply::json(200, &json!({ "models": [] })))
        .reply(UpstreamReply::json(401, &json!({ "error": { "message": KEY } })))
        .reply(UpstreamReply::json(200, &json!({ "data": "x".repeat(5 << 20) })));
    let mut lines = Vec::new();
    for _ in 0..3 {
        lines.push(line(&client.models().await.unwrap_err()));
    }
    assert_snapshot!(lines.join("\n"));
}

#[tokio::test]
async fn empty_answer_is_not_an_error() {
    let upstream = FakeUpstream::start().await;
    upstream.reply(ModelOutput::new().anthropic());
    let (answer, error) = ask(&client(ApiDialect::Anthropic, &upstream), &hello()).await;
    assert_eq!((answer.parts, error), (ModelResponse::default().parts, None));
}
