//! Hostile clients: each gets one clear error, and the daemon stays healthy.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tribune_client::{ClientError, RpcClient, RpcIncoming};
use tribune_config::Config;
use tribune_daemon::daemon::DaemonOverrides;
use tribune_gateway::Timeouts;
use tribune_testkit::{TempHome, TestDaemon, config, turn_params};

use crate::principals::guest_token;
use crate::raw_clients::{
    BINARY, RawMessage, RawSocket, TEXT, assert_healthy, body, events_until, flood, http, is_done,
    start_with, wait_for_status, within,
};

const KEY: &str = "agent:main:cli:local:dm:hostile";

/// Limits that a test can exceed and that fit everything else.
fn small() -> Config {
    let mut config = config();
    config.gateway.max_message_bytes = 64 << 10;
    config
}

async fn with_timeouts(config: &Config, change: impl FnOnce(&mut Timeouts)) -> TestDaemon {
    let mut extras = DaemonOverrides::default();
    change(&mut extras.timeouts);
    start_with(TempHome::new(), config, extras).await
}

/// The JSON-RPC number, the code and the message of an error.
fn error_of(message: RawMessage) -> (Value, i64, String, String) {
    let RawMessage::Text(answer) = message else { panic!("{message:?}") };
    let error = &answer["error"];
    (
        answer["id"].clone(),
        error["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}")),
        error["data"]["code"].as_str().unwrap().to_owned(),
        error["message"].as_str().unwrap().to_owned(),
    )
}

fn close(code: u16, reason: &str) -> RawMessage {
    RawMessage::Close(code, reason.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_frames_close_the_connection_with_a_reason() {
    let daemon = TestDaemon::start_at(TempHome::new(), &small()).await;
    let giant = vec![b' '; (64 << 10) + 1];
    let reserved = [0xF1];
    let attacks: [(u8, &[u8], RawMessage); 6] = [
        (TEXT, &giant, close(1009, "the frame is larger than gateway.maxMessageBytes")),
        (BINARY, b"{}", close(1003, "text frames only")),
        (TEXT, b"\"\xC3\x28\"", close(1007, "a text frame must be UTF-8")),
        (TEXT, b"\xED\xA0\x80", close(1007, "a text frame must be UTF-8")),
        (0x83, b"x", close(1002, "the frame is not WebSocket")),
        (reserved[0], b"x", close(1002, "the frame is not WebSocket")),
    ];
    for (kind, payload, expected) in attacks {
        let mut raw = RawSocket::operator(&daemon).await;
        raw.send(kind, payload).await;
        let what = format!("{kind:#x} with {} bytes", payload.len());
        assert_eq!(raw.next().await, expected, "{what}");
        assert_eq!(raw.next().await, RawMessage::Gone, "{what}");
        assert_healthy(&daemon).await;
    }
    // A fragmented message has the size of the whole.
    let mut raw = RawSocket::operator(&daemon).await;
    raw.send(0x01, &giant[..40_000]).await;
    raw.send(0x80, &giant[..40_000]).await;
    assert_eq!(raw.next().await, close(1009, "the frame is larger than gateway.maxMessageBytes"));
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_request_gets_one_error_and_the_connection_stays_open() {
    let daemon = TestDaemon::start().await;
    let mut raw = RawSocket::operator(&daemon).await;
    let request = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"auth.whoami"}}"#);
    let with = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#)
    };
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let id_words = "an id is a whole number or a string of at most 256 bytes";
    let turn = |input: &str| with("turn.run", &format!(r#"{{"session_key":"{KEY}","input":{input}}}"#));
    for (frame, id, number, code, words) in [
        (String::new(), Value::Null, -32700, "parse_error", "the frame is not JSON: "),
        ("{".to_owned(), Value::Null, -32700, "parse_error", "the frame is not JSON: "),
        ("\u{feff}{}".to_owned(), Value::Null, -32700, "parse_error", "the frame is not JSON: "),
        (
            with("auth.whoami", &deep),
            Value::Null,
            -32700,
            "parse_error",
            "the frame is nested deeper than 64",
        ),
        (deep.clone(), Value::Null, -32600, "invalid_request", "batches are not taken"),
        (
            format!("[{},{}]", request("1"), request("2")),
            Value::Null,
            -32600,
            "invalid_request",
            "batches are not taken: send one request per frame",
        ),
        ("null".to_owned(), Value::Null, -32600, "invalid_request", "a request is an object"),
        ("17".to_owned(), Value::Null, -32600, "invalid_request", "a request is an object"),
        ("{}".to_owned(), Value::Null, -32600, "invalid_request", "`jsonrpc` must be"),
        (
            r#"{"jsonrpc":"2.0","id":5,"method":"auth.whoami","extra":1}"#.to_owned(),
            json!(5),
            -32600,
            "invalid_request",
            "a request has the members jsonrpc, id, method and params",
        ),
        (request("null"), Value::Null, -32600, "invalid_request", id_words),
        (request("1.5"), Value::Null, -32600, "invalid_request", id_words),
        (request("1e400"), Value::Null, -32600, "invalid_request", id_words),
        (request("{}"), Value::Null, -32600, "invalid_request", id_words),
        (request("[1]"), Value::Null, -32600, "invalid_request", id_words),
        (request("true"), Value::Null, -32600, "invalid_request", id_words),
        (request(&format!("\"{}\"", "x".repeat(257))), Value::Null, -32600, "invalid_request", id_words),
        (
            with("session.inti", "{}"),
            json!(7),
            -32601,
            "method_not_found",
            "there is no such method: did you mean `session.init`?",
        ),
        (with("", "{}"), json!(7), -32601, "method_not_found", "there is no such method"),
        (
            with("auth.whoami", r#"{"a":1}"#),
            json!(7),
            -32602,
            "invalid_params",
            "auth.whoami: params must be empty: nothing is asked for here",
        ),
        (with("auth.whoami", "[]"), json!(7), -32602, "invalid_params", "params is an object"),
        (
            with("session.status", "{}"),
            json!(7),
            -32602,
            "invalid_params",
            "session.status: `session_key` is missing",
        ),
        (
            with("session.status", r#"{"session_key":5}"#),
            json!(7),
            -32602,
            "invalid_params",
            "session.status: `session_key` must be a string",
        ),
        (
            with("session.status", r#"{"session_key":"main"}"#),
            json!(7),
            -32602,
            "invalid_params",
            "this is not a session key: the form is agent:",
        ),
        (
            with("session.status", r#"{"session_key":"agent:main:a:b:dm:../x"}"#),
            json!(7),
            -32602,
            "invalid_params",
            "",
        ),
        (
            with("session.status", r#"{"session_key":"agent:main:a:b:dm:nobody"}"#),
            json!(7),
            -32003,
            "not_found",
            "there is no such session: open it first",
        ),
        (
            with("session.init", r#"{"mode":"eternal"}"#),
            json!(7),
            -32602,
            "invalid_params",
            "mode must be persistent, domain or oneshot",
        ),
        (
            with("session.list", r#"{"limit":0}"#),
            json!(7),
            -32602,
            "invalid_params",
            "limit is 1 to 1000, not 0",
        ),
        (
            with("session.list", r#"{"limit":-1}"#),
            json!(7),
            -32602,
            "invalid_params",
            "session.list: `limit` must be a whole number, 0 or more",
        ),
        (
            with("session.events", &format!(r#"{{"session_key":"{KEY}","after":-1}}"#)),
            json!(7),
            -32602,
            "invalid_params",
            "session.events: `after` must be a whole number, 0 or more",
        ),
        (turn(r#"{"content":[]}"#), json!(7), -32602, "invalid_params", "input.content holds 1 to 64 blocks"),
        (
            turn(r#"{"content":[{"type":"video"}]}"#),
            json!(7),
            -32602,
            "invalid_params",
            "turn.run: `input.content[0].type` is not one of text, image, audio, resource",
        ),
        (
            turn(r#"{"content":"hi"}"#),
            json!(7),
            -32602,
            "invalid_params",
            "turn.run: `input.content` must be a list",
        ),
        (
            turn(r#"{"content":[{"type":"text","text":"hi"}]}"#),
            json!(7),
            -32003,
            "not_found",
            "there is no such session: open it first",
        ),
    ] {
        let shown: String = frame.chars().take(120).collect();
        let (of, found, word, sentence) = error_of(raw.request(&frame).await);
        assert_eq!((&of, found, word.as_str()), (&id, number, code), "{shown}: {sentence}");
        assert!(sentence.starts_with(words), "{shown}: {sentence}");
        assert!(sentence.len() < 300, "{shown}: {sentence}");
    }
    // These ids are valid and are returned unchanged. Notifications get no answer.
    for id in ["0", "-1", "\"\"", "\"a b\"", "18446744073709551615"] {
        raw.text(r#"{"jsonrpc":"2.0","method":"auth.whoami"}"#).await;
        let RawMessage::Text(answer) = raw.request(&request(id)).await else { panic!("{id}") };
        assert_eq!(answer["id"], serde_json::from_str::<Value>(id).unwrap());
        assert_eq!(answer["result"]["principal"], "operator");
    }
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_connection_gets_no_answers() {
    let daemon = TestDaemon::start().await;
    let mut raw = RawSocket::connect(&daemon, None).await;
    for method in tribune_gateway::METHODS.iter().filter(|method| !method.starts_with("auth.")) {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        let (_, number, code, sentence) = error_of(raw.request(&frame).await);
        assert_eq!((number, code.as_str()), (-32001, "unauthorized"), "{method}");
        assert!(sentence.contains("run/token"), "{sentence}");
    }
    // The fifth wrong token closes the connection.
    for attempt in 1..=5 {
        let wrong = r#"{"jsonrpc":"2.0","id":1,"method":"auth.token","params":{"token":"trb_wrong"}}"#;
        let (_, number, code, sentence) = error_of(raw.request(wrong).await);
        assert_eq!((number, code.as_str()), (-32001, "unauthorized"), "{attempt}: {sentence}");
        assert!(!sentence.contains("trb_wrong"), "{sentence}");
    }
    assert_eq!(raw.next().await, close(4401, "too many wrong attempts"));
    assert_healthy(&daemon).await;

    let refused = RpcClient::connect(&daemon.address(), Some("trb_wrong")).await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "the daemon refused the connection: this is neither the operator's token, which is in run/token of the daemon's home, nor an approver's"
    );
    let get = |header: &str| {
        format!("GET /v1/status HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{header}\r\n", daemon.address())
    };
    for header in [
        "",
        "Authorization: Bearer \r\n",
        "Authorization: Basic eDp5\r\n",
        "Authorization: Bearer trb_\r\n",
        "Authorization: \r\n",
    ] {
        let answer = http(&daemon.address(), get(header).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{header}: {answer}");
        assert_eq!(body(&answer)["error"]["code"], "unauthorized", "{header}");
    }
    let good =
        http(&daemon.address(), get(&format!("Authorization: bearer {}\r\n", daemon.token())).as_bytes())
            .await;
    assert!(good.starts_with("HTTP/1.1 200 "), "{good}");
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_frame_has_at_most_64_kib() {
    let daemon = TestDaemon::start().await;
    let closed = close(1009, "a frame has at most 64 KiB before authentication, and from guests");
    let half = vec![b' '; 45_000];
    // As one frame, in fragments, and from a guest.
    for token in [None, guest_token(&daemon)] {
        for kinds in [&[TEXT][..], &[0x01, 0x80]] {
            let mut raw = RawSocket::connect(&daemon, token.as_deref()).await;
            let payload = if kinds.len() == 1 { [half.clone(), half.clone()].concat() } else { half.clone() };
            for kind in kinds {
                raw.send(*kind, &payload).await;
            }
            let end = raw.next().await;
            assert!([&closed, &RawMessage::Gone].contains(&&end), "{end:?}");
        }
    }
    // Many small frames are no large one, and after authentication the configured limit holds.
    let mut raw = RawSocket::connect(&daemon, None).await;
    let challenge = r#"{"jsonrpc":"2.0","id":1,"method":"auth.challenge"}"#;
    let padded = format!("{challenge}{}", " ".repeat(40_000));
    for _ in 0..8 {
        assert!(matches!(raw.request(&padded).await, RawMessage::Text(_)));
    }
    let token =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "auth.token", "params": { "token": daemon.token() } });
    assert!(matches!(raw.request(&token.to_string()).await, RawMessage::Text(_)));
    let large = format!("{challenge}{}", " ".repeat(1 << 20));
    assert!(matches!(raw.request(&large).await, RawMessage::Text(_)));
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_connections_share_a_budget_of_bytes() {
    let daemon = TestDaemon::start().await;
    // The head of a frame of 60,000 bytes, and most of them.
    let mut part = vec![TEXT, 0x80 | 126];
    part.extend_from_slice(&60_000_u16.to_be_bytes());
    part.extend_from_slice(&[0; 4]);
    part.resize(59_000, b' ');
    let mut sockets = Vec::new();
    for _ in 0..200 {
        let mut raw = RawSocket::connect(&daemon, None).await;
        let _ = raw.stream.write_all(&part).await;
        sockets.push(raw);
    }
    // 200 of them would hold 12 MB. What is beyond the budget is closed; the operator gets in by the same way.
    let mut operator = RpcClient::connect(&daemon.address(), None).await.unwrap();
    operator.call("auth.token", &json!({ "token": daemon.token() })).await.unwrap();
    let status = wait_for_status(&mut operator, "connections beyond the budget are closed", |status| {
        status["connections"].as_u64().is_some_and(|open| open <= 80)
    })
    .await;
    assert!(status["connections"].as_u64().unwrap() > 40, "the budget is used: {status}");
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_rate_limited_and_the_right_one_is_accepted() {
    let daemon = TestDaemon::start().await;
    let mut answers = Vec::new();
    for _ in 0..25 {
        let request = format!(
            "GET /v1/status HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer trb_0\r\n\r\n",
            daemon.address()
        );
        answers.push(http(&daemon.address(), request.as_bytes()).await[9..12].to_owned());
    }
    assert_eq!(answers[..20], vec!["401"; 20]);
    assert_eq!(answers[20..], vec!["429"; 5]);
    let refused = RpcClient::connect(&daemon.address(), Some("trb_0")).await.unwrap_err().to_string();
    assert!(refused.ends_with("too many wrong attempts: wait 60 seconds"), "{refused}");
    let mut raw = RawSocket::connect(&daemon, None).await;
    let wrong = r#"{"jsonrpc":"2.0","id":1,"method":"auth.token","params":{"token":"trb_0"}}"#;
    assert_eq!(error_of(raw.request(wrong).await).2, "rate_limited");
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_host_or_origin_is_refused_on_every_endpoint() {
    let daemon = TestDaemon::start().await;
    let own = format!("Host: {}\r\n", daemon.address());
    let port = daemon.daemon.address().port();
    let cases = [
        ("Host: evil.example\r\n".to_owned(), "foreign_host"),
        (format!("Host: evil.example:{port}\r\n"), "foreign_host"),
        (format!("Host: localhost.evil.example:{port}\r\n"), "foreign_host"),
        ("Host: 127.0.0.1\r\n".to_owned(), "foreign_host"),
        (format!("{own}Host: evil.example\r\n"), "foreign_host"),
        (format!("{own}{own}"), "foreign_host"),
        (String::new(), "foreign_host"),
        (format!("{own}Origin: https://evil.example\r\n"), "foreign_origin"),
        (format!("{own}Origin: null\r\n"), "foreign_origin"),
        (
            format!("{own}Origin: http://localhost:{port}\r\nOrigin: https://evil.example\r\n"),
            "foreign_origin",
        ),
    ];
    let token = daemon.token();
    for (headers, code) in &cases {
        for path in
            ["/rpc", "/", "/healthz", "/readyz", "/metrics", "/v1/status", "/v1/openapi.json", "/nothing"]
        {
            let upgrade = "Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
            let request =
                format!("GET {path} HTTP/1.1\r\n{headers}{upgrade}Authorization: Bearer {token}\r\n\r\n");
            let answer = http(&daemon.address(), request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{path} {headers:?}: {answer}");
            assert_eq!(body(&answer)["error"]["code"], *code, "{path} {headers:?}");
        }
    }
    let own_page =
        format!("GET /healthz HTTP/1.1\r\n{own}Origin: http://localhost:{port}\r\nConnection: close\r\n\r\n");
    assert!(http(&daemon.address(), own_page.as_bytes()).await.starts_with("HTTP/1.1 200 "));
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn authority_of_an_absolute_target_is_checked() {
    let daemon = TestDaemon::start().await;
    let host = daemon.address();
    let head = format!("Host: {host}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n", daemon.token());
    for (target, status) in [
        (format!("http://{host}/v1/status"), "200"),
        ("http://evil.example/v1/status".to_owned(), "403"),
        (format!("http://evil.example:{}/v1/status", daemon.daemon.address().port()), "403"),
        (format!("http://{host}@evil.example/v1/status"), "403"),
        (format!("http://x@{host}/v1/status"), "403"),
        (format!("https://{host}/v1/status"), "403"),
    ] {
        let answer = http(&host, format!("GET {target} HTTP/1.1\r\n{head}\r\n").as_bytes()).await;
        assert_eq!(answer.get(9..12), Some(status), "{target}: {answer}");
        if status == "403" {
            assert_eq!(body(&answer)["error"]["code"], "foreign_host", "{target}");
        }
    }
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bare_line_feed_in_a_request_head_is_refused() {
    let daemon = TestDaemon::start().await;
    let host = daemon.address();
    let good = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let posted = format!("POST /v1/nothing HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\n\r\na\nb");
    let bare = [
        good.replace("\r\n", "\n"),
        good.replacen("\r\n", "\n", 1),
        format!("GET /healthz HTTP/1.1\r\nHost: {host}\n\r\n"),
        format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\n"),
        format!("\n{good}"),
        format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nX: a\nContent-Length: 5\r\n\r\n"),
    ];
    for request in &bare {
        let answer = http(&host, request.as_bytes()).await;
        assert_eq!(answer.get(9..12), Some("400"), "{request:?}: {answer}");
        // Also behind other requests on the same connection.
        for before in [&good, &posted] {
            let answer = http(&host, format!("{before}{before}{request}").as_bytes()).await;
            assert_eq!(answer.matches("HTTP/1.1 400 ").count(), 1, "{before:?} and {request:?}: {answer}");
            assert!(!answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
    }
    // A body whose end the guard does not know ends its connection.
    let chunked =
        format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    let upgrade =
        format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    for last in [chunked, upgrade] {
        let answer = http(&host, format!("{last}{}", good.replace("\r\n", "\n")).as_bytes()).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{last:?}: {answer}");
    }
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_drips_is_ended_on_every_route() {
    let daemon = with_timeouts(&config(), |timeouts| timeouts.body = Duration::from_secs(1)).await;
    for path in ["/v1/sessions", "/v1/gate/message_received", "/acp", "/v1/proxy/none/v1/messages"] {
        let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{{",
            daemon.address(),
            daemon.token()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut read, mut write) = stream.into_split();
        let dripping = async {
            while write.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let mut answer = Vec::new();
        tokio::select! {
            end = within("a body that drips is ended", read.read_to_end(&mut answer)) => drop(end),
            () = dripping => {}
        }
    }
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_and_oversized_http_is_refused() {
    let daemon = TestDaemon::start_at(TempHome::new(), &small()).await;
    let host = daemon.address();
    let head = format!("Host: {host}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n", daemon.token());
    let long = "x".repeat(100_000);
    for (request, status) in [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\0\0\0\0\r\n\r\n".to_vec(), "400"),
        (b"HELO there\r\n\r\n".to_vec(), "400"),
        (
            format!("GET / HTTP/1.1\r\n{head}Content-Length: 5\r\nContent-Length: 6\r\n\r\n").into_bytes(),
            "400",
        ),
        (format!("GET /{long} HTTP/1.1\r\n{head}\r\n").into_bytes(), "414"),
        (format!("GET / HTTP/1.1\r\n{head}X: {long}{long}\r\n\r\n").into_bytes(), "431"),
        (format!("GET /v1/nothing HTTP/1.1\r\n{head}\r\n").into_bytes(), "404"),
        (format!("DELETE /v1/status HTTP/1.1\r\n{head}\r\n").into_bytes(), "405"),
    ] {
        let answer = http(&daemon.address(), &request).await;
        assert_eq!(
            answer.get(9..12),
            Some(status),
            "{:?}: {answer}",
            String::from_utf8_lossy(&request[..20.min(request.len())])
        );
        assert_healthy(&daemon).await;
    }
    let post = |body: &str, more: &str| {
        format!("POST /v1/sessions HTTP/1.1\r\n{head}{more}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    let json_type = "Content-Type: application/json\r\n";
    let large = format!(r#"{{"session_key":"{long}"}}"#);
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for (request, status, code) in [
        (post(&large, json_type), "413", "too_large"),
        (post("{}", ""), "400", "invalid_params"),
        (post("{", json_type), "400", "invalid_params"),
        (post(&deep, json_type), "400", "invalid_params"),
        (post(r#"{"mandate":"all"}"#, json_type), "400", "invalid_params"),
        (post(r#"{"session_key":7}"#, json_type), "400", "invalid_params"),
    ] {
        let answer = http(&daemon.address(), request.as_bytes()).await;
        assert_eq!(answer.get(9..12), Some(status), "{answer}");
        assert_eq!(body(&answer)["error"]["code"], code, "{answer}");
    }
    // The head has at most 64 KiB in all, which is less than the parser's buffer takes.
    let headers = |count: usize| format!("X-Filler: {}\r\n", "x".repeat(1000)).repeat(count);
    for (count, status) in [(62, "200"), (66, "431"), (100, "431")] {
        let request = format!("GET /healthz HTTP/1.1\r\n{head}{}\r\n", headers(count));
        let answer = http(&daemon.address(), request.as_bytes()).await;
        assert_eq!(answer.get(9..12), Some(status), "{count}: {answer}");
    }
    // Chunked bodies, which do not announce their length.
    let mut chunked =
        format!("POST /v1/sessions HTTP/1.1\r\n{head}{json_type}Transfer-Encoding: chunked\r\n\r\n");
    for _ in 0..100 {
        chunked.push_str(&format!("400\r\n{}\r\n", "x".repeat(0x400)));
    }
    chunked.push_str("0\r\n\r\n");
    let answer = http(&daemon.address(), chunked.as_bytes()).await;
    assert_eq!(body(&answer)["error"]["code"], "too_large", "{answer}");
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_heads_and_bodies_time_out() {
    let mut config = config();
    config.gateway.idle = Duration::from_secs(1);
    let daemon = with_timeouts(&config, |timeouts| timeouts.head = Duration::from_secs(1)).await;
    let mut sockets = Vec::new();
    for n in 0..100 {
        let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
        let start = match n % 3 {
            0 => String::new(),
            1 => format!("GET / HTTP/1.1\r\nHost: {}\r\nX-Sl", daemon.address()),
            _ => format!(
                "POST /v1/sessions HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
                daemon.address(),
                daemon.token()
            ),
        };
        stream.write_all(start.as_bytes()).await.unwrap();
        sockets.push(stream);
    }
    assert_healthy(&daemon).await;
    for (n, mut stream) in sockets.into_iter().enumerate() {
        let mut answer = String::new();
        within("the daemon closes a silent connection", stream.read_to_string(&mut answer)).await.unwrap();
        if n % 3 == 2 {
            assert!(answer.contains("the body did not arrive within gateway.idleSeconds"), "{answer}");
        }
    }
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_over_the_limit_is_refused_with_a_reason() {
    let mut config = config();
    config.gateway.max_connections = 4;
    let daemon = TestDaemon::start_at(TempHome::new(), &config).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        let mut client = daemon.operator().await;
        client.call("auth.whoami", &json!({})).await.unwrap();
        open.push(client);
    }
    for _ in 0..10 {
        let request =
            format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", daemon.address());
        let answer = http(&daemon.address(), request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        let error = &body(&answer)["error"];
        assert_eq!(error["code"], "too_many_connections");
        assert_eq!(error["message"], "gateway.maxConnections are open: close some");
    }
    let refused = RpcClient::connect(&daemon.address(), Some(&daemon.token())).await.unwrap_err();
    assert!(matches!(refused, ClientError::Rejected(_)), "{refused}");
    open.pop().unwrap().close().await;
    wait_for_status(&mut open[0], "the daemon notices the disconnect", |status| status["connections"] == 3)
        .await;
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_without_authentication_is_closed() {
    let daemon =
        with_timeouts(&config(), |timeouts| timeouts.authenticate = Duration::from_millis(500)).await;
    let mut silent = RawSocket::connect(&daemon, None).await;
    assert_eq!(silent.next().await, close(4401, "authenticate first: auth.token or auth.agent"));
    // Other requests do not extend the deadline; authentication does.
    let mut talking = RawSocket::connect(&daemon, None).await;
    let end = loop {
        match talking.request(r#"{"jsonrpc":"2.0","id":1,"method":"auth.challenge"}"#).await {
            RawMessage::Text(_) => {}
            end => break end,
        }
    };
    assert_eq!(end, close(4401, "authenticate first: auth.token or auth.agent"));
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_reader_is_disconnected_and_delays_no_other_client() {
    let daemon = with_timeouts(&config(), |timeouts| timeouts.slow_reader = Duration::from_secs(1)).await;
    let mut operator = daemon.operator().await;
    let mut slow = Vec::new();
    for n in 0..3 {
        let key = format!("{KEY}-{n}");
        let raw = flood(&daemon, &mut operator, &key).await;
        slow.push((key, raw));
    }
    assert_healthy(&daemon).await;
    wait_for_status(&mut operator, "slow readers are disconnected", |status| status["connections"] == 1)
        .await;
    // Each slow reader has received a prefix; the rest starts at the next number.
    for (key, mut raw) in slow {
        let mut last = 0;
        while let Some((kind, payload)) = within("the frames sent before the disconnect", raw.frame()).await {
            if kind == 1 {
                let message: Value = serde_json::from_slice(&payload).unwrap();
                let seq = message["params"]["event"]["seq"].as_u64().unwrap();
                assert_eq!(seq, last + 1);
                last = seq;
            }
        }
        assert!(last < 2000, "it was disconnected in the middle, and not at {last}");
        let mut client = daemon.operator().await;
        client.call("session.events", &json!({ "session_key": key, "after": last })).await.unwrap();
        let rest = events_until(&mut client, "the rest of the turn", is_done).await;
        assert_eq!(rest[0]["seq"], last + 1);
        assert!(rest.len() > 10);
    }
    assert_healthy(&daemon).await;
}

/// A flood on the same connection does not delay a cancel.
#[tokio::test(flavor = "multi_thread")]
async fn cancel_is_processed_during_a_request_flood() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    let turn =
        client.send("turn.run", &turn_params(KEY, "!repeat 1000\n!flood 90\n!wait 1ms\n!end")).await.unwrap();
    let cancel = loop {
        match within("the flood begins", client.next()).await.unwrap() {
            RpcIncoming::Notification(message) if message.params["event"]["type"] == "text_delta" => {
                break client.send("session.cancel", &json!({ "session_key": KEY })).await.unwrap();
            }
            _ => {}
        }
    };
    let mut answers = Vec::new();
    while answers.len() < 2 {
        if let RpcIncoming::Response(id, answer) =
            within("both requests are answered", client.next()).await.unwrap()
        {
            answers.push((id, answer.unwrap()));
        }
    }
    assert_eq!(answers[0], (cancel, json!({ "cancelled": true })));
    assert_eq!((answers[1].0, &answers[1].1["stop_reason"]), (turn, &json!("cancelled")));
    assert_healthy(&daemon).await;
}
