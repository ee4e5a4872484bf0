//! The handshake, invalid messages, and authentication.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tribune_client::acp;
use tribune_testkit::{TempHome, TestDaemon, config};

use super::{Editor, code, path, setup};

#[tokio::test]
async fn unsupported_protocol_version_is_answered_with_the_supported_one() {
    let (daemon, _folder) = setup().await;
    for asked in [0, 1, 2, 65535] {
        let mut editor = Editor::connect(&daemon).await;
        let hello = editor.call("initialize", json!({ "protocolVersion": asked })).await;
        assert_eq!(hello["result"]["protocolVersion"], 1, "{asked}");
        assert_eq!(hello["result"]["agentInfo"]["name"], "tribune");
        assert_eq!(hello["result"]["agentCapabilities"]["loadSession"], true);
        assert_eq!(hello["result"]["authMethods"].as_array().unwrap().len(), 1);
    }
    let mut editor = Editor::connect(&daemon).await;
    assert_eq!(code(&editor.call("initialize", json!({ "protocolVersion": "1" })).await), -32602);
}

#[tokio::test]
async fn a_request_before_initialize_is_refused() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::connect(&daemon).await;
    let early = editor.call("session/new", json!({ "cwd": path(&folder), "mcpServers": [] })).await;
    assert_eq!(code(&early), -32600);
    assert!(editor.call("initialize", json!({ "protocolVersion": 1 })).await["error"].is_null());
    assert_eq!(
        code(&editor.call("initialize", json!({ "protocolVersion": 1 })).await),
        -32600,
        "once is enough"
    );
}

#[tokio::test]
async fn an_unknown_session_is_not_found() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    for session in ["agent:main:acp:local:dm:nobody", "nonsense", ""] {
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "x" }] });
        assert_eq!(code(&editor.call("session/prompt", prompt).await), -32002, "{session}");
        assert_eq!(
            code(&editor.call("session/load", super::load(session, &path(&folder))).await),
            -32002,
            "{session}"
        );
        assert_eq!(
            code(&editor.call("session/resume", super::load(session, &path(&folder))).await),
            -32002,
            "{session}"
        );
        assert_eq!(
            code(&editor.call("session/close", json!({ "sessionId": session })).await),
            -32002,
            "{session}"
        );
        assert_eq!(
            code(&editor.call("session/delete", json!({ "sessionId": session })).await),
            -32002,
            "{session}"
        );
    }
    // A cancel for a session that is not open gets no answer.
    editor.notify("session/cancel", json!({ "sessionId": "nonsense" })).await;
    assert!(editor.call("session/list", json!({})).await["result"].is_object());
}

#[tokio::test]
async fn invalid_params_and_unknown_methods_have_different_codes() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    for (method, params) in [
        ("session/new", json!({})),
        ("session/new", json!({ "cwd": 7, "mcpServers": [] })),
        ("session/prompt", json!({ "prompt": [] })),
        ("session/prompt", json!({ "sessionId": session, "prompt": [] })),
        ("session/prompt", json!({ "sessionId": session, "prompt": "hello" })),
        ("session/prompt", json!({ "sessionId": session, "prompt": [{ "type": "hologram" }] })),
        ("session/set_mode", json!({ "sessionId": session, "modeId": "yolo" })),
        ("session/set_config_option", json!({ "sessionId": session, "configId": "colour", "value": "red" })),
        (
            "session/set_config_option",
            json!({ "sessionId": session, "configId": "agent", "value": "nobody" }),
        ),
        ("session/list", json!({ "cursor": "not one of ours" })),
        ("authenticate", json!({ "methodId": "password" })),
    ] {
        assert_eq!(code(&editor.call(method, params.clone()).await), -32602, "{method} {params}");
    }
    for method in
        ["session/fork", "session/set_model", "fs/read_text_file", "_tribune/nothing", "_other/thing", ""]
    {
        assert_eq!(code(&editor.call(method, json!({})).await), -32601, "{method}");
    }
    assert_eq!(editor.call("_tribune/status", json!({})).await["result"]["ready"], true);
    assert!(editor.call("authenticate", json!({ "methodId": "tribune-token" })).await["result"].is_object());
    // The connection stays usable after all of these.
    assert_eq!(editor.prompt(&session, "!say still here").await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn invalid_message_gets_an_error_and_the_connection_stays_open() {
    let (daemon, _folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    for (text, expected) in [("{", -32700), ("[]", -32600), ("7", -32600), ("{\"jsonrpc\":\"2.0\"}", -32600)]
    {
        editor.sending.send(text.to_owned()).await.unwrap();
        let answer = editor.next_message().await;
        assert_eq!((&answer["id"], code(&answer)), (&Value::Null, expected), "{text}");
    }
    // A response to no request is ignored.
    editor.send(&json!({ "jsonrpc": "2.0", "id": 99, "result": {} })).await;
    assert!(editor.call("session/list", json!({})).await["result"].is_object());
}

/// The status of a request that is sent unchanged.
async fn status(daemon: &TestDaemon, method: &str, more: &str) -> u16 {
    let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
    let head = format!(
        "{method} /acp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{more}\r\n\r\n",
        daemon.address()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

const UPGRADE: &str =
    "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";

#[tokio::test]
async fn foreign_origin_gets_403_and_missing_token_gets_401() {
    let (daemon, _folder) = setup().await;
    let token = daemon.token();
    for (method, head) in [
        ("GET", UPGRADE),
        ("POST", "content-type: application/json\r\ncontent-length: 2"),
        ("DELETE", "x: y"),
    ] {
        assert_eq!(status(&daemon, method, head).await, 401, "{method} without a token");
        let wrong = format!("{head}\r\nauthorization: Bearer wrong");
        assert_eq!(status(&daemon, method, &wrong).await, 401, "{method} with a wrong token");
        let foreign = format!("{head}\r\nauthorization: Bearer {token}\r\norigin: https://evil.example");
        assert_eq!(status(&daemon, method, &foreign).await, 403, "{method} from elsewhere");
    }
    let refused = acp::connect(&daemon.address(), Some("wrong"), None, None).await;
    assert!(refused.unwrap_err().to_string().contains("neither the operator's token"));
}

#[tokio::test]
async fn anonymous_caller_sees_only_its_own_sessions_and_cannot_choose_a_folder() {
    let mut config = config();
    config.gateway.anonymous = tribune_config::Anonymous::DefaultMandate;
    let daemon = TestDaemon::start_at(TempHome::new(), &config).await;
    let (sending, receiving) = acp::connect(&daemon.address(), None, None, None).await.unwrap();
    let mut editor = Editor { sending, receiving, next: 0, messages: Vec::new() };
    let hello = editor.call("initialize", json!({ "protocolVersion": 1 })).await;
    assert_eq!(hello["result"]["_meta"]["tribune"]["principal"], "anonymous");
    assert_eq!(code(&editor.call("authenticate", json!({ "methodId": "tribune-token" })).await), -32000);
    let folder = tempfile::tempdir().unwrap();
    let opened = editor.call("session/new", json!({ "cwd": path(&folder), "mcpServers": [] })).await;
    assert_eq!(code(&opened), -32602);
    let session = editor.session("/workspace").await;
    assert!(session.starts_with("agent:anonymous"), "{session}");
    assert_eq!(editor.prompt(&session, "!say hello").await["result"]["stopReason"], "end_turn");
    // An anonymous caller cannot decide, so its calls cannot wait for an approval.
    let all = json!({ "sessionId": session, "modeId": "approve-all" });
    assert_eq!(code(&editor.call("session/set_mode", all).await), -32000);
    let others = super::load("agent:main:standing:local:dm:main", "/workspace");
    assert_eq!(code(&editor.call("session/load", others).await), -32000);
    assert_eq!(code(&editor.call("session/delete", json!({ "sessionId": session })).await), -32000);
}
