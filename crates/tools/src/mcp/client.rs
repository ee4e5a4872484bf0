//! An MCP client for one server over a pair of pipes: JSON-RPC, one message per line. The server is not trusted: its output may
//! be too long, invalid, or never arrive.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tribune_json_rpc::{self as json_rpc, ErrorObject, LineError, LineReader, METHOD_NOT_FOUND, RpcMessage};
use tribune_redact::Redactor;

use super::server_spec::ServerSpec;
use super::tools::Listing;

/// The protocol version that the client requests, and those that a server may choose: newer ones have no `initialize`.
pub(super) const VERSION: &str = "2025-11-25";
pub(super) const VERSIONS: [&str; 4] = [VERSION, "2025-06-18", "2025-03-26", "2024-11-05"];

/// Maximum bytes of a line. A result may be long, because the agent gets its beginning; a longer line ends the server.
const MAX_LINE_BYTES: usize = 4 << 20;

/// Maximum number of lines that are not messages, such as logs on the wrong stream.
const MAX_JUNK: usize = 1000;

/// Maximum number of messages in the send queue. When a server does not read, its callers wait.
const MAX_UNWRITTEN: usize = 64;

/// The reason recorded when the output of a server ends.
const CLOSED: &str = "it closed its output";

/// Maximum number of pages of `tools/list`.
const MAX_PAGES: usize = 16;

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server is gone; the text says why.
    Ended(String),
    TimedOut,
    /// The server returned an error; the text is its message.
    Refused(String),
    /// The server returned an invalid response; the text says how.
    Nonsense(&'static str),
}

/// The connection to one server.
#[derive(Debug)]
pub(super) struct Client {
    outgoing: mpsc::Sender<String>,
    waiting: Arc<Waiting>,
    /// Cancelled when the server sends nothing more.
    pub(super) over: CancellationToken,
    /// The reader and the writer. They end with the client.
    _tasks: JoinSet<()>,
}

/// Requests without a response yet.
#[derive(Debug, Default)]
struct Waiting(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    newest: u64,
    open: HashMap<u64, oneshot::Sender<Result<Value, Value>>>,
    /// Why no more responses will arrive.
    over: Option<String>,
}

impl Waiting {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails every open request. The first reason is kept.
    fn end(&self, why: &str) {
        let mut requests = self.requests();
        requests.over.get_or_insert_with(|| why.to_owned());
        requests.open.clear();
    }

    fn why(&self) -> String {
        self.requests().over.clone().unwrap_or_else(|| "it closed the connection".to_owned())
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
        let mut reading = MessageReader { waiting: Arc::clone(&waiting), replies: outgoing.clone(), junk: 0 };
        let ends = over.clone().drop_guard();
        tasks.spawn(async move {
            let why = reading.read(stdout).await;
            reading.waiting.end(why);
            drop(ends);
        });
        Self { outgoing, waiting, over, _tasks: tasks }
    }

    /// Ends the client. The caller owns the process and so knows better than the reader why the output ended.
    pub(super) fn end(&self, why: &str) {
        self.waiting.requests().over.take_if(|known| known == CLOSED);
        self.waiting.end(why);
        self.over.cancel();
    }

    /// Why the server sends nothing more.
    pub(super) fn why(&self) -> String {
        self.waiting.why()
    }

    /// Initializes the connection and lists the server's tools.
    pub(super) async fn greet(&self, wanted: &ServerSpec, redactor: &Redactor) -> Result<Listing, Fault> {
        let hello = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": { "name": "tribune", "title": "Tribune", "version": env!("CARGO_PKG_VERSION") },
        });
        let greeting = self.request("initialize", hello, IfDropped::Nothing).await?;
        let version = greeting["protocolVersion"].as_str().unwrap_or_default();
        if !VERSIONS.contains(&version) {
            return Err(Fault::Nonsense("it uses an unsupported version of MCP"));
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
                return Err(Fault::Nonsense("it returned no list of tools"));
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
        let mut asked = PendingRequest { client: self, id, if_dropped };
        let line = json_rpc::request(id, method, &params);
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
        let line = json_rpc::notification(method, params);
        self.outgoing.send(line).await.map_err(|_| Fault::Ended(self.waiting.why()))
    }
}

/// What the server is told when a request is dropped before its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfDropped {
    Cancel,
    Nothing,
}

/// A request for as long as its caller waits for the response.
struct PendingRequest<'a> {
    client: &'a Client,
    id: u64,
    if_dropped: IfDropped,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.client.waiting.requests().open.remove(&self.id);
        if self.if_dropped == IfDropped::Cancel {
            let params = json!({ "requestId": self.id, "reason": "the caller stopped waiting" });
            let line = json_rpc::notification("notifications/cancelled", &params);
            // A server that does not read is not told.
            let _ = self.client.outgoing.try_send(line);
        }
    }
}

async fn write(mut stdin: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        // The reader reports that the server is gone.
        if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

/// Reads the output of a server.
struct MessageReader {
    waiting: Arc<Waiting>,
    replies: mpsc::Sender<String>,
    junk: usize,
}

impl MessageReader {
    /// Reads until the end and returns its reason.
    async fn read(&mut self, stdout: impl AsyncRead + Unpin) -> &'static str {
        let mut lines = LineReader::new(stdout, MAX_LINE_BYTES);
        loop {
            match lines.next().await.map(|line| line.map(|line| String::from_utf8(line.bytes))) {
                Ok(Some(Ok(line))) => self.receive(&line),
                Ok(Some(Err(_))) | Err(LineError::Io(_)) => {
                    return "its output is not UTF-8, or cannot be read";
                }
                Ok(None) => return CLOSED,
                Err(LineError::TooLong) => return "it sent a line that is too long",
            }
            if self.junk > MAX_JUNK {
                return "it sent too much that is not MCP";
            }
        }
    }

    fn receive(&mut self, line: &str) {
        let Ok(message) = serde_json::from_str::<RpcMessage<Value>>(line) else {
            self.junk += usize::from(!line.trim().is_empty());
            return;
        };
        let id = message.id.filter(|id| id.is_string() || id.is_number());
        let method = message.method.as_ref().and_then(Value::as_str);
        match (id, method) {
            // A server may ping the client. The client offers nothing else.
            (Some(id), Some("ping")) => self.reply(json_rpc::response(id, "{}")),
            (Some(id), Some(_)) => {
                let error = ErrorObject::new(METHOD_NOT_FOUND, "unsupported method");
                self.reply(json_rpc::error_response(id, &error));
            }
            (None, Some(_)) => {}
            (Some(id), None) => {
                let waiting = id.as_u64().and_then(|id| self.waiting.requests().open.remove(&id));
                // A response to no request, or a second one, has no effect.
                let Some(waiting) = waiting else { return };
                let _ = waiting.send(match message.error {
                    Some(error) => Err(error),
                    None => Ok(message.result.unwrap_or_default()),
                });
            }
            (None, None) => self.junk += 1,
        }
    }

    /// Replies, unless the server sends requests faster than it reads.
    fn reply(&self, line: String) {
        let _ = self.replies.try_send(line);
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
