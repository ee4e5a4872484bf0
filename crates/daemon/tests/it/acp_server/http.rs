//! Streamable HTTP: a connection belongs to its principal, and each message is delivered once.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tribune_testkit::TestDaemon;

use super::{path, setup};
use crate::raw_clients::within;

/// One request and its whole response: status, head and body.
async fn request(
    daemon: &TestDaemon,
    method: &str,
    head: &[(&str, &str)],
    body: &str,
) -> (u16, String, String) {
    let mut stream = open(daemon, method, head, body).await;
    let mut answer = String::new();
    within("a response", stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
}

async fn open(daemon: &TestDaemon, method: &str, head: &[(&str, &str)], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
    let mut text = format!("{method} /acp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", daemon.address());
    text.push_str(&format!("authorization: Bearer {}\r\ncontent-length: {}\r\n", daemon.token(), body.len()));
    for (name, value) in head {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).await.unwrap();
    stream
}

const JSON: (&str, &str) = ("content-type", "application/json");

/// Opens a connection; returns its id.
async fn connection(daemon: &TestDaemon) -> String {
    let hello =
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } });
    let (status, head, body) = request(daemon, "POST", &[JSON], &hello.to_string()).await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("\"protocolVersion\":1"), "{body}");
    head.lines().find_map(|line| line.strip_prefix("acp-connection-id: ")).unwrap().to_owned()
}

async fn post(daemon: &TestDaemon, id: &str, session: Option<&str>, message: &Value) -> u16 {
    let mut head = vec![JSON, ("acp-connection-id", id)];
    head.extend(session.map(|session| ("acp-session-id", session)));
    request(daemon, "POST", &head, &message.to_string()).await.0
}

/// A stream of events, after its head.
async fn listen(daemon: &TestDaemon, id: &str, session: Option<&str>) -> BufReader<TcpStream> {
    let mut head = vec![("accept", "text/event-stream"), ("acp-connection-id", id)];
    head.extend(session.map(|session| ("acp-session-id", session)));
    let mut stream = BufReader::new(open(daemon, "GET", &head, "").await);
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    assert!(line.contains(" 200 "), "{line}");
    stream
}

async fn event(stream: &mut BufReader<TcpStream>) -> Value {
    loop {
        let mut line = String::new();
        assert!(within("an event", stream.read_line(&mut line)).await.unwrap() > 0, "the stream ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).unwrap();
        }
    }
}

#[tokio::test]
async fn responses_arrive_on_streams_and_each_session_has_its_own() {
    let (daemon, folder) = setup().await;
    let id = connection(&daemon).await;
    let mut own = listen(&daemon, &id, None).await;
    let new = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": { "cwd": path(&folder), "mcpServers": [] } });
    assert_eq!(post(&daemon, &id, None, &new).await, 202);
    let opened = event(&mut own).await;
    let session = opened["result"]["sessionId"].as_str().unwrap();
    let text = json!([{ "type": "text", "text": "!say over HTTP" }]);
    let prompt = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": { "sessionId": session, "prompt": text } });
    assert_eq!(post(&daemon, &id, None, &prompt).await, 400, "the header must name the session");
    assert_eq!(post(&daemon, &id, Some(session), &prompt).await, 202);
    // A later listener receives the earlier messages.
    let mut stream = listen(&daemon, &id, Some(session)).await;
    let mut received = String::new();
    loop {
        let message = event(&mut stream).await;
        received.push_str(message["params"]["update"]["content"]["text"].as_str().unwrap_or_default());
        if message["id"] == 2 {
            assert_eq!(message["result"]["stopReason"], "end_turn");
            break;
        }
    }
    assert_eq!(received, "over HTTP");
    let (status, ..) = request(
        &daemon,
        "GET",
        &[("accept", "text/event-stream"), ("acp-connection-id", &id), ("acp-session-id", session)],
        "",
    )
    .await;
    assert_eq!(status, 409, "one listener for each stream");
    let (status, ..) = request(&daemon, "DELETE", &[("acp-connection-id", &id)], "").await;
    assert_eq!(status, 202);
    let mut rest = String::new();
    within("the stream ends with its connection", own.read_to_string(&mut rest)).await.unwrap();
    assert_eq!(post(&daemon, &id, None, &new).await, 404);
}

#[tokio::test]
async fn load_response_follows_the_replayed_updates() {
    let (daemon, folder) = setup().await;
    let id = connection(&daemon).await;
    let mut own = listen(&daemon, &id, None).await;
    let ask = |number: u64, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": params });
    let new = ask(1, "session/new", json!({ "cwd": path(&folder), "mcpServers": [] }));
    assert_eq!(post(&daemon, &id, None, &new).await, 202);
    let opened = event(&mut own).await;
    let session = opened["result"]["sessionId"].as_str().unwrap();
    let mut stream = listen(&daemon, &id, Some(session)).await;
    let text = json!([{ "type": "text", "text": "!say over HTTP" }]);
    let prompt = ask(2, "session/prompt", json!({ "sessionId": session, "prompt": text }));
    assert_eq!(post(&daemon, &id, Some(session), &prompt).await, 202);
    while event(&mut stream).await["id"] != 2 {}
    let load = ask(3, "session/load", super::load(session, &path(&folder)));
    assert_eq!(post(&daemon, &id, Some(session), &load).await, 202);
    let mut received = String::new();
    loop {
        let message = event(&mut stream).await;
        received.push_str(message["params"]["update"]["content"]["text"].as_str().unwrap_or_default());
        if message["id"] == 3 {
            assert!(message["result"].is_object(), "{message}");
            break;
        }
    }
    assert_eq!(received, "!say over HTTPover HTTP", "the whole text, on the same stream");
}

#[tokio::test]
async fn each_invalid_request_has_its_own_status() {
    let (daemon, _folder) = setup().await;
    let id = connection(&daemon).await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/list", "params": {} }).to_string();
    let named = ("acp-connection-id", id.as_str());
    for (method, head, body, expected) in [
        ("POST", vec![("content-type", "text/plain"), named], list.as_str(), 415),
        ("POST", vec![JSON], list.as_str(), 400),
        ("POST", vec![JSON, ("acp-connection-id", "nobody")], list.as_str(), 404),
        (
            "POST",
            vec![JSON, named],
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#,
            400,
        ),
        ("POST", vec![JSON], r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#, 400),
        ("GET", vec![named], "", 406),
        ("GET", vec![("accept", "text/event-stream")], "", 400),
        ("GET", vec![("accept", "text/event-stream"), ("acp-connection-id", "nobody")], "", 404),
        ("DELETE", vec![("acp-connection-id", "nobody")], "", 404),
    ] {
        let (status, _, answer) = request(&daemon, method, &head, body).await;
        assert_eq!(status, expected, "{method} {head:?}: {answer}");
    }
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(9 << 20));
    let (status, ..) = request(&daemon, "POST", &[JSON, named], &large).await;
    assert_eq!(status, 413);
}
