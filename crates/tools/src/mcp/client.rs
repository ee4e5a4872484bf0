//! MCP with one server, over a pair of pipes: JSON-RPC, a message a line. Nothing that a server says is believed to be short, to
//! be an answer, or to come at all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};
use tokio_util::sync::CancellationToken;
use tribune_redact::Redactor;

use super::server_spec::ServerSpec;
use super::tools::Listing;

/// The version that is asked for, and those that an answer may name: newer ones have no `initialize`.
pub(super) const VERSION: &str = "2025-11-25";
pub(super) const VERSIONS: [&str; 4] = [VERSION, "2025-06-18", "2025-03-26", "2024-11-05"];

/// Bytes of a line. A result of which an agent gets the beginning may be long; one that is longer is no result.
const MAX_LINE_BYTES: usize = 4 << 20;

/// Lines that are no messages, such as logs that belong elsewhere.
const MAX_JUNK: usize = 1000;

/// Messages that wait to be written. Behind a server that does not read, whoever calls it waits.
const MAX_UNWRITTEN: usize = 64;

/// Why nothing more comes from a server that says nothing more.
const CLOSED: &str = "it closed its output";

/// Pages of `tools/list`.
const MAX_PAGES: usize = 16;

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server is gone, and why.
    Ended(String),
    TimedOut,
    /// It refused, and what it said.
    Refused(String),
    /// It answered what is no answer, and how.
    Nonsense(&'static str),
}

/// The way to one server.
#[derive(Debug)]
pub(super) struct Client {
    outgoing: mpsc::Sender<String>,
    waiting: Arc<Waiting>,
    /// Fires when nothing more comes from it.
    pub(super) over: CancellationToken,
    /// They end with the client.
    _tasks: JoinSet<()>,
}

/// Requests that wait for their answers.
#[derive(Debug, Default)]
struct Waiting(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    newest: u64,
    open: HashMap<u64, oneshot::Sender<Result<Value, Value>>>,
    /// Why there will be no more answers.
    over: Option<String>,
}

impl Waiting {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No more answers come. Whoever waits is told. The first reason is the one that counts.
    fn end(&self, why: &str) {
        let mut requests = self.requests();
        requests.over.get_or_insert_with(|| why.to_owned());
        requests.open.clear();
    }

    fn why(&self) -> String {
        self.requests().over.clone().unwrap_or_else(|| "it says nothing more".to_owned())
    }
}

impl Client {
    pub(super) fn new(
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        stdout: impl AsyncRead + Send + Unpin + 'static,
    ) -> Self {
        let (outgoing, lines) = mpsc::channel(MAX_UNWRITTEN);
        let (waiting, over) = (Arc::new(Waiting::default()), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(write(stdin, lines));
        let mut reading = Reading { waiting: Arc::clone(&waiting), replies: outgoing.clone(), junk: 0 };
        let ends = over.clone().drop_guard();
        tasks.spawn(async move {
            let why = reading.read(stdout).await;
            reading.waiting.end(why);
            drop(ends);
        });
        Self { outgoing, waiting, over, _tasks: tasks }
    }

    /// Whoever holds its process knows better why it closed its output.
    pub(super) fn end(&self, why: &str) {
        self.waiting.requests().over.take_if(|known| known == CLOSED);
        self.waiting.end(why);
        self.over.cancel();
    }

    /// Why nothing more comes from it.
    pub(super) fn why(&self) -> String {
        self.waiting.why()
    }

    /// Gets to know the server, and what tools it has.
    pub(super) async fn greet(&self, wanted: &ServerSpec, redactor: &Redactor) -> Result<Listing, Fault> {
        let hello = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": { "name": "tribune", "title": "Tribune", "version": env!("CARGO_PKG_VERSION") },
        });
        let greeting = self.request("initialize", hello, IfDropped::Nothing).await?;
        let version = greeting["protocolVersion"].as_str().unwrap_or_default();
        if !VERSIONS.contains(&version) {
            return Err(Fault::Nonsense("it speaks a version of MCP that is not known here"));
        }
        self.notify("notifications/initialized", &json!({})).await?;
        let mut listing = Listing::default();
        if !greeting["capabilities"]["tools"].is_object() {
            return Ok(listing);
        }
        let mut cursor = Value::Null;
        for _ in 0..MAX_PAGES {
            let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
            let mut page = self.request("tools/list", params, IfDropped::Cancel).await?;
            if !page["tools"].is_array() {
                return Err(Fault::Nonsense("it has no list of tools"));
            }
            listing.take(wanted, redactor, &page);
            cursor = page["nextCursor"].take();
            if !cursor.is_string() {
                break;
            }
        }
        Ok(listing)
    }

    /// Calls a tool.
    pub(super) async fn call(&self, tool: &str, arguments: &Value, wait: Duration) -> Result<Value, Fault> {
        let params = json!({ "name": tool, "arguments": arguments });
        let called = self.request("tools/call", params, IfDropped::Cancel);
        tokio::time::timeout(wait, called).await.unwrap_or(Err(Fault::TimedOut))
    }

    async fn request(&self, method: &str, params: Value, if_dropped: IfDropped) -> Result<Value, Fault> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut requests = self.waiting.requests();
            if let Some(why) = &requests.over {
                return Err(Fault::Ended(why.clone()));
            }
            requests.newest += 1;
            let id = requests.newest;
            requests.open.insert(id, answer);
            id
        };
        let mut asked = AskedFor { client: self, id, if_dropped };
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        self.outgoing.send(line).await.map_err(|_| Fault::Ended(self.waiting.why()))?;
        let answer = answered.await;
        asked.if_dropped = IfDropped::Nothing;
        match answer {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(Fault::Refused(error["message"].as_str().unwrap_or_default().to_owned())),
            Err(_) => Err(Fault::Ended(self.waiting.why())),
        }
    }

    async fn notify(&self, method: &str, params: &Value) -> Result<(), Fault> {
        let line = json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string();
        self.outgoing.send(line).await.map_err(|_| Fault::Ended(self.waiting.why()))
    }
}

/// What a server is told when nobody waits for its answer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfDropped {
    Cancel,
    Nothing,
}

/// A request for as long as somebody waits for its answer.
struct AskedFor<'a> {
    client: &'a Client,
    id: u64,
    if_dropped: IfDropped,
}

impl Drop for AskedFor<'_> {
    fn drop(&mut self) {
        self.client.waiting.requests().open.remove(&self.id);
        if self.if_dropped == IfDropped::Cancel {
            let params = json!({ "requestId": self.id, "reason": "nobody waits for it any more" });
            let line = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
            // One that does not read is not told.
            let _ = self.client.outgoing.try_send(line.to_string());
        }
    }
}

async fn write(mut stdin: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        // Whoever reads from it hears that it is gone.
        if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

/// Reads what a server says.
struct Reading {
    waiting: Arc<Waiting>,
    replies: mpsc::Sender<String>,
    junk: usize,
}

impl Reading {
    /// Returns why it is over.
    async fn read(&mut self, stdout: impl AsyncRead + Unpin) -> &'static str {
        let mut lines = FramedRead::new(stdout, LinesCodec::new_with_max_length(MAX_LINE_BYTES));
        loop {
            match lines.next().await {
                Some(Ok(line)) => self.heard(&line),
                Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                    return "it said more in one line than is listened to";
                }
                Some(Err(LinesCodecError::Io(_))) => {
                    return "it said what is no text, or its output broke off";
                }
                None => return CLOSED,
            }
            if self.junk > MAX_JUNK {
                return "it said too much that is not MCP";
            }
        }
    }

    fn heard(&mut self, line: &str) {
        let Ok(Value::Object(mut message)) = serde_json::from_str(line) else {
            self.junk += usize::from(!line.trim().is_empty());
            return;
        };
        let id = message.get("id").filter(|id| id.is_string() || id.is_number()).cloned();
        let method = message.get("method").and_then(Value::as_str);
        match (id, method) {
            // It wants to know whether we are there; it is told nothing else, and given nothing.
            (Some(id), Some("ping")) => self.reply(&json!({ "jsonrpc": "2.0", "id": id, "result": {} })),
            (Some(id), Some(_)) => {
                let error = json!({ "code": -32601, "message": "there is no such method here" });
                self.reply(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            (None, Some(_)) => {}
            (Some(id), None) => {
                let asked = id.as_u64().and_then(|id| self.waiting.requests().open.remove(&id));
                // An answer to nothing, or a second one, changes nothing.
                let Some(asked) = asked else { return };
                let answer = match (message.remove("error"), message.remove("result")) {
                    (Some(error), _) => Err(error),
                    (None, result) => Ok(result.unwrap_or_default()),
                };
                let _ = asked.send(answer);
            }
            (None, None) => self.junk += 1,
        }
    }

    /// Answers, unless the server asks faster than it reads.
    fn reply(&self, message: &Value) {
        let _ = self.replies.try_send(message.to_string());
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
