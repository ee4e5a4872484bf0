//! `tribune acp` itself: nothing but ACP goes out, the end of the input is the end, and the session lives on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use super::Desk;

struct Editor {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Editor {
    fn start(desk: &Desk, args: &[&str]) -> Self {
        let mut command = desk.place.command(&[&["acp"], args].concat());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    fn call(&mut self, id: u64, method: &str, params: &Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it ended");
            let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not ACP: {line}"));
            if said["id"] == id && said["method"].is_null() {
                return said;
            }
        }
    }

    /// Closes its input, and waits for it to end.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.stdin.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

#[test]
fn it_starts_a_daemon_ends_with_its_input_and_leaves_the_session() {
    let desk = Desk::new();
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
    // The daemon is still there, and so is what was said.
    let mut again = Editor::start(&desk, &["--session", &session]);
    again.call(1, "initialize", &json!({ "protocolVersion": 1 }));
    let opened = again.call(2, "session/new", &json!({ "cwd": project, "mcpServers": [] }));
    assert_eq!(opened["result"]["sessionId"], session.as_str());
    assert_eq!(again.end(), (Some(0), String::new()));
    let shown = desk.place.ok(&["sessions", "show", &session, "--json"]);
    assert!(shown.contains("remember"), "{shown}");
}

#[test]
fn without_a_daemon_every_request_is_told_why() {
    let desk = Desk::new();
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
fn an_agent_that_is_not_there_is_an_error_of_the_session() {
    let desk = Desk::new();
    let mut editor = Editor::start(&desk, &["--agent", "nobody"]);
    editor.call(1, "initialize", &json!({ "protocolVersion": 1 }));
    let refused = editor.call(2, "session/new", &json!({ "cwd": desk.project(), "mcpServers": [] }));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("there is no agent `nobody`"),
        "{refused}"
    );
    editor.end();
}
