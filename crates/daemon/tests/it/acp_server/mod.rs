//! Tribune as an ACP agent, over its WebSocket and over HTTP: the requirements of version 1 of the protocol, by name.

mod additional_directories;
mod error_echo;
mod folder_labels;
mod http;
mod models;
mod pending_approvals;
mod permissions;
mod prompts;
mod protocol;
mod sessions;
mod workspaces;

use serde_json::{Value, json};
use tempfile::TempDir;
use tribune_client::acp::{self, AcpReceiver, AcpSender};
use tribune_testkit::{TestDaemon, config};

use crate::approvals::home;
use crate::raw_clients::within;

/// A client that keeps every message.
pub(crate) struct Editor {
    sending: AcpSender,
    receiving: AcpReceiver,
    next: u64,
    /// Every message that was not an awaited response.
    pub(crate) messages: Vec<Value>,
}

impl Editor {
    pub(crate) async fn connect(daemon: &TestDaemon) -> Self {
        Self::connect_to(daemon, None, None).await
    }

    pub(crate) async fn connect_to(daemon: &TestDaemon, agent: Option<&str>, session: Option<&str>) -> Self {
        let connected = acp::connect(&daemon.address(), Some(&daemon.token()), agent, session).await;
        let (sending, receiving) = connected.unwrap();
        Self { sending, receiving, next: 0, messages: Vec::new() }
    }

    /// Connects and initializes.
    pub(crate) async fn ready(daemon: &TestDaemon) -> Self {
        let mut editor = Self::connect(daemon).await;
        let hello =
            editor.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} })).await;
        assert_eq!(hello["result"]["protocolVersion"], 1);
        editor
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.sending.send(text.to_owned()).await.unwrap();
    }

    /// Sends a request; [`Self::answer`] waits for its response.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        id
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    /// The next message of any kind. It is kept.
    pub(crate) async fn next_message(&mut self) -> Value {
        let text = within("a message from the daemon", self.receiving.next()).await.unwrap();
        let message: Value = serde_json::from_str(&text).unwrap();
        self.messages.push(message.clone());
        message
    }

    /// The response to a request.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        self.until(|message| message["id"] == id && message["method"].is_null()).await
    }

    /// The first message that matches, among those that were kept or arrive from now on.
    pub(crate) async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.messages.iter().position(&is_it) {
            return self.messages.remove(at);
        }
        loop {
            if is_it(&self.next_message().await) {
                return self.messages.pop().unwrap();
            }
        }
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.answer(id).await
    }

    /// Opens a new session in a folder.
    pub(crate) async fn session(&mut self, cwd: &str) -> String {
        let opened = self.call("session/new", json!({ "cwd": cwd, "mcpServers": [] })).await;
        opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned()
    }

    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> Value {
        let id = self.send_prompt(session, text).await;
        self.answer(id).await
    }

    pub(crate) async fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.request("session/prompt", json!({ "sessionId": session, "prompt": prompt })).await
    }

    /// Waits for a permission request.
    pub(crate) async fn permission_request(&mut self) -> Value {
        self.until(|message| message["method"] == "session/request_permission").await
    }

    pub(crate) async fn choose(&mut self, question: &Value, option: &str) {
        let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option } });
        self.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": outcome })).await;
    }

    /// Takes the updates of a session out of the kept messages.
    pub(crate) fn updates(&mut self, session: &str) -> Vec<Value> {
        let is_one = |message: &Value| {
            message["method"] == "session/update" && message["params"]["sessionId"] == session
        };
        let (updates, rest) = std::mem::take(&mut self.messages).into_iter().partition(is_one);
        self.messages = rest;
        updates.into_iter().map(|mut message: Value| message["params"]["update"].take()).collect()
    }

    pub(crate) async fn close(self) {
        self.sending.close().await;
    }
}

/// The combined text of the chunks of a kind.
pub(crate) fn text_of(updates: &[Value], kind: &str) -> String {
    let chunks = updates.iter().filter(|update| update["sessionUpdate"] == kind);
    chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
}

/// A daemon whose agent needs an approval to write, and a folder to work in.
pub(crate) async fn setup() -> (TestDaemon, TempDir) {
    (TestDaemon::start_at(home(), &config()).await, tempfile::tempdir().unwrap())
}

pub(crate) fn path(folder: &TempDir) -> String {
    folder.path().canonicalize().unwrap().to_str().unwrap().to_owned()
}

pub(crate) fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}"))
}

pub(crate) fn load(session: &str, cwd: &str) -> Value {
    json!({ "sessionId": session, "cwd": cwd, "mcpServers": [] })
}
