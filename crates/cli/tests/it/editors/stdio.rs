//! `tribune acp` itself: it prints only ACP messages, ends with its input, and the session stays.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use super::{EditorHome, assert_valid};

/// Cancels the turn instead of answering a permission request.
pub(super) const CANCEL: &str = "cancel";

pub(super) struct Editor {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// All lines of both sides.
    pub(super) lines: String,
    /// Its answer to permission requests.
    pub(super) option: &'static str,
}

impl Editor {
    pub(super) fn start(desk: &EditorHome, args: &[&str]) -> Self {
        let mut command = desk.place.command(&[&["acp"], args].concat());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout, lines: String::new(), option: "allow_once" }
    }

    pub(super) fn call(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it ended");
            self.lines.push_str(&line);
            let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not ACP: {line}"));
            if said["method"] == "session/request_permission" {
                let mut outcome = json!({ "outcome": { "outcome": "selected", "optionId": self.option } });
                if self.option == CANCEL {
                    let params = json!({ "sessionId": said["params"]["sessionId"] });
                    self.send(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }));
                    outcome = json!({ "outcome": { "outcome": "cancelled" } });
                }
                self.send(&json!({ "jsonrpc": "2.0", "id": said["id"], "result": outcome }));
            } else if said["id"] == id && said["method"].is_null() {
                return said;
            }
        }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
        self.lines.push_str(&format!("{message}\n"));
    }

    /// Closes its input, and waits for its end.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.stdin.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

#[test]
fn it_starts_a_daemon_ends_with_its_input_and_leaves_the_session() {
    let desk = EditorHome::new();
    let project = desk.project();
    let mut editor = Editor::start(&desk, &[]);
    assert_eq!(
        editor.call(1, "initialize", &json!({ "protocolVersion": 1 }))["result"]["protocolVersion"],
        1
    );
    let opened = editor.call(2, "session/new", &json!({ "cwd": project, "mcpServers": [] }));
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "!say remember" }] });
    assert_eq!(editor.call(3, "session/prompt", &prompt)["result"]["stopReason"], "end_turn");
    let (code, said) = editor.end();
    assert_eq!(code, Some(0));
    assert!(said.starts_with("started the daemon of "), "{said}");
    // The daemon still runs, and the conversation is kept.
    let mut again = Editor::start(&desk, &["--session", &session]);
    again.call(1, "initialize", &json!({ "protocolVersion": 1 }));
    let opened = again.call(2, "session/new", &json!({ "cwd": project, "mcpServers": [] }));
    assert_eq!(opened["result"]["sessionId"], session.as_str());
    assert_eq!(again.end(), (Some(0), String::new()));
    let shown = desk.place.ok(&["sessions", "show", &session, "--json"]);
    assert!(shown.contains("remember"), "{shown}");
}

#[test]
fn requests_just_before_the_end_are_answered() {
    let desk = EditorHome::new();
    desk.place.ok(&["up", "--detach"]);
    let mut command = desk.place.command(&["acp"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let hello =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } });
    writeln!(child.stdin.take().unwrap(), "{hello}").unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!((answer["result"]["protocolVersion"].as_u64(), output.status.code()), (Some(1), Some(0)));
}

#[test]
fn without_a_daemon_every_request_gets_the_reason() {
    let desk = EditorHome::new();
    std::fs::write(desk.place.home().join("config.json5"), "{ gatway: {} }").unwrap();
    let mut editor = Editor::start(&desk, &[]);
    for id in 1..3 {
        let refused = editor.call(id, "initialize", &json!({ "protocolVersion": 1 }));
        assert_eq!(refused["error"]["code"], -32603);
        assert!(refused["error"]["message"].as_str().unwrap().contains("unknown key `gatway`"), "{refused}");
    }
    let (code, said) = editor.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("unknown key `gatway`"), "{said}");
}

#[test]
fn a_message_that_is_too_large_is_refused_and_the_connection_goes_on() {
    let desk = EditorHome::new();
    let mut editor = Editor::start(&desk, &[]);
    editor.call(1, "initialize", &json!({ "protocolVersion": 1 }));
    let opened = editor.call(2, "session/new", &json!({ "cwd": desk.project(), "mcpServers": [] }));
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = |text: &str| json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
    let refused = editor.call(3, "session/prompt", &prompt(&"x".repeat(9 << 20)));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(refused["error"]["data"]["code"], "too_large");
    assert!(refused["error"]["message"].as_str().unwrap().contains("gateway.maxMessageBytes"), "{refused}");
    assert_eq!(editor.call(4, "session/prompt", &prompt("!say on"))["result"]["stopReason"], "end_turn");
    assert_eq!(editor.end().0, Some(0));
}

#[test]
fn every_line_that_it_prints_is_in_the_schema() {
    let desk = EditorHome::new();
    let project = desk.project();
    let mut editor = Editor::start(&desk, &[]);
    let refused = editor.call(1, "session/list", &json!({}));
    assert_eq!(refused["error"]["code"], -32600);
    editor.call(2, "initialize", &json!({ "protocolVersion": 1 }));
    let server = json!({ "name": "context", "command": "/bin/x", "args": [], "env": [] });
    let opened = editor.call(3, "session/new", &json!({ "cwd": project, "mcpServers": [server] }));
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    let with = |more: Value| {
        let mut params = json!({ "sessionId": session });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let say = |text: &str| with(json!({ "prompt": [{ "type": "text", "text": text }] }));
    let write = "!think hm\n!call write {\"path\":\"made.txt\",\"content\":\"by hand\"}\n!say $result";
    for (method, params) in [
        ("session/prompt", say(write)),
        ("session/prompt", say("!call web_fetch {\"url\":\"https://example.com/\"}")),
        ("session/prompt", say("/tribune")),
        ("session/set_mode", with(json!({ "modeId": "deny-all" }))),
        ("session/set_config_option", with(json!({ "configId": "agent", "value": "main" }))),
        ("session/list", json!({})),
        ("session/load", with(json!({ "cwd": project, "mcpServers": [] }))),
        ("session/resume", with(json!({ "cwd": project, "mcpServers": [] }))),
        ("session/close", with(json!({}))),
        ("session/delete", with(json!({}))),
    ] {
        let id = 10 + editor.lines.lines().count() as u64;
        let answer = editor.call(id, method, &params);
        assert!(answer["result"].is_object(), "{method}: {answer}");
    }
    for (id, method) in [(5_000, "session/fork"), (5_001, "session/prompt")] {
        assert!(editor.call(id, method, &json!({}))["error"]["message"].is_string());
    }
    assert_eq!(std::fs::read_to_string(project.join("made.txt")).unwrap(), "by hand");
    assert!(assert_valid(&desk.place, &editor.lines) > 40);
    editor.end();
}

#[test]
fn an_agent_that_is_not_there_is_an_error_of_the_session() {
    let desk = EditorHome::new();
    let mut editor = Editor::start(&desk, &["--agent", "nobody"]);
    editor.call(1, "initialize", &json!({ "protocolVersion": 1 }));
    let refused = editor.call(2, "session/new", &json!({ "cwd": desk.project(), "mcpServers": [] }));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("there is no such agent"), "{refused}");
    editor.end();
}
