//! The two pipes to an agent: sends requests and matches their responses; hands the agent's requests and notifications
//! to the turn that listens. While none does, every request of the agent is refused.
//!
//! A violation of the protocol breaks the connection for good: the first reason is kept, everyone who waits gets it,
//! and the supervisor of the process ends the agent.

mod end;
mod reception;
mod requests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tribune_runtime::{ErrorKind, EventKind, RuntimeError};

use self::end::ConnectionEnd;
use self::reception::Reception;
use self::requests::PendingRequests;
use crate::bounded_lines::{BoundedLines, LineError};
use crate::codec::{AgentMessage, CallPhase, ErrorResponse, MessageCodec};

/// How long an agent may take for each response of the handshake. The slowest of the known ones needed nine seconds.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(90);

/// Messages that wait to be written, and to be received by the turn.
const QUEUE: usize = 32;

/// How long the agent may leave a line of ours unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The reason for a response without a request.
const UNKNOWN_RESPONSE: &str = "it responded to a request that was not made";

/// A message of the agent's, for the turn that listens.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A notification: its line as it came, and the parsed value.
    Notification {
        line: String,
        params: Value,
    },
    Request {
        id: Value,
        method: String,
        params: Value,
        line: String,
    },
    /// A notification outside the protocol.
    OutOfProtocol {
        method: String,
        line: String,
    },
}

/// The reason for which there is no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionFault {
    /// The agent answered with an error.
    Refused(ErrorResponse),
    /// The connection is broken.
    Broken(String),
    TimedOut,
}

impl ConnectionFault {
    /// The error in a sentence that names the request.
    pub(crate) fn into_error(self, method: &str) -> RuntimeError {
        match self {
            Self::Refused(refusal) => RuntimeError::new(
                ErrorKind::AgentRefused,
                format!("the agent refused {method}: {}", refusal.message),
            ),
            Self::Broken(why) => {
                let what =
                    format!("the connection to the agent is broken: {why}; the next turn starts it again");
                RuntimeError::new(ErrorKind::AgentEnded, what)
            }
            Self::TimedOut => {
                let what = format!(
                    "the agent did not answer {method} within {} s: try again",
                    HANDSHAKE_TIMEOUT.as_secs()
                );
                RuntimeError::new(ErrorKind::AgentSilent, what)
            }
        }
    }
}

/// The pipes of one agent; clones share them.
#[derive(Clone)]
pub(crate) struct AgentConnection(Arc<Shared>);

struct Shared {
    codec: &'static dyn MessageCodec,
    output: mpsc::Sender<String>,
    requests: PendingRequests,
    reception: Reception,
    end: ConnectionEnd,
    /// An event of the handshake, for the first turn.
    opening: Mutex<Option<EventKind>>,
}

/// The phase in which messages are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenPhase {
    Handshake,
    Turn,
}

/// Receives the agent's messages. Messages that it did not take count as sent while nobody listened.
pub(crate) struct TurnReceiver {
    connection: AgentConnection,
    phase: ListenPhase,
    /// The number of this receiver among those of the connection.
    number: u64,
    messages: mpsc::Receiver<Incoming>,
}

impl TurnReceiver {
    /// The next message. Never `None` while the connection is there.
    pub(crate) async fn next(&mut self) -> Option<Incoming> {
        let message = self.messages.recv().await?;
        let (Incoming::Notification { params, .. } | Incoming::Request { params, .. }) = &message else {
            return Some(message);
        };
        let Shared { codec, reception, .. } = &*self.connection.0;
        if let Some((id, CallPhase::Active)) = codec.call(params) {
            reception.note_call(id);
        }
        Some(message)
    }
}

impl Drop for TurnReceiver {
    fn drop(&mut self) {
        let Shared { codec, output, reception, .. } = &*self.connection.0;
        // Before the receiver is closed: a message that arrives from here on comes after the turn.
        if self.phase == ListenPhase::Turn && reception.is_newest(self.number) {
            reception.mark_idle();
        }
        self.messages.close();
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Incoming::Request { id, method, .. } => {
                    // If the queue is full, the request stays without an answer.
                    let _ = output.try_send(codec.reject_request(&id, &method));
                }
                Incoming::Notification { params, .. } => reception.record_violation(*codec, &params),
                Incoming::OutOfProtocol { .. } => {}
            }
        }
    }
}

impl AgentConnection {
    /// A connection, and the two tasks that it needs: one reads, the other writes.
    pub(crate) fn new(
        codec: &'static dyn MessageCodec,
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        stdout: impl AsyncRead + Send + Unpin + 'static,
    ) -> (Self, impl Future<Output = ()> + Send, impl Future<Output = ()> + Send) {
        let (output, lines) = mpsc::channel(QUEUE);
        let connection = Self(Arc::new(Shared {
            codec,
            output,
            requests: PendingRequests::new(),
            reception: Reception::default(),
            end: ConnectionEnd::default(),
            opening: Mutex::default(),
        }));
        let reading = read(connection.clone(), BoundedLines::new(stdout, codec.max_line_bytes()));
        let writing = write(connection.clone(), stdin, lines);
        (connection, reading, writing)
    }

    /// Sends a request, and waits for the response as long as a handshake may take.
    pub(crate) async fn request(&self, method: &str, params: &Value) -> Result<Value, ConnectionFault> {
        self.request_with_line(method, params).await.map(|(result, _)| result)
    }

    /// The same, with the line of the response.
    pub(crate) async fn request_with_line(
        &self,
        method: &str,
        params: &Value,
    ) -> Result<(Value, String), ConnectionFault> {
        let response = self.response(method, params);
        tokio::time::timeout(HANDSHAKE_TIMEOUT, response).await.unwrap_or(Err(ConnectionFault::TimedOut))
    }

    /// Sends a request, and waits without a limit.
    pub(crate) async fn request_unbounded(
        &self,
        method: &str,
        params: &Value,
    ) -> Result<Value, ConnectionFault> {
        self.response(method, params).await.map(|(result, _)| result)
    }

    async fn response(&self, method: &str, params: &Value) -> Result<(Value, String), ConnectionFault> {
        let (id, response) = self.0.requests.add();
        self.send(self.0.codec.request(id, method, params)).await;
        tokio::select! {
            biased;
            Ok(result) = response => result.map_err(ConnectionFault::Refused),
            why = self.broken() => Err(ConnectionFault::Broken(why)),
        }
    }

    /// Sends a request without waiting: its response is ignored.
    pub(crate) async fn request_and_forget(&self, method: &str, params: &Value) {
        let id = self.0.requests.next_id();
        self.send(self.0.codec.request(id, method, params)).await;
    }

    /// Receives messages from now on, in place of the earlier receiver.
    pub(crate) fn listen(&self, phase: ListenPhase) -> TurnReceiver {
        let (number, messages) = self.0.reception.open();
        TurnReceiver { connection: self.clone(), phase, number, messages }
    }

    /// Between two turns from now on.
    pub(crate) fn mark_idle(&self) {
        self.0.reception.mark_idle();
    }

    /// Keeps an event of the handshake for the first turn.
    pub(crate) fn keep_opening(&self, event: Option<EventKind>) {
        *self.0.opening.lock().unwrap_or_else(PoisonError::into_inner) = event;
    }

    /// Takes the event of the handshake.
    pub(crate) fn take_opening(&self) -> Option<EventKind> {
        self.0.opening.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The violation between two turns, if there was one.
    pub(crate) fn violation(&self) -> Option<String> {
        self.0.reception.violation()
    }

    /// Breaks the connection, for this reason unless there is an earlier one.
    pub(crate) fn disconnect(&self, reason: impl Into<String>) {
        self.0.end.set(reason.into());
    }

    /// The same, because the agent's process is gone.
    pub(crate) fn disconnect_exited(&self, how: impl Into<String>) {
        self.0.end.set_exited(how.into());
    }

    /// Whether the agent's process ended without a message since a receiver was opened: it may not have read its input.
    pub(crate) fn has_exited_silently(&self) -> bool {
        self.0.end.has_exited() && self.0.reception.is_silent()
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.0.end.is_broken()
    }

    /// Whether the agent sends nothing any more: its output is at its end, or the connection is broken.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_broken() || self.0.end.is_output_closed()
    }

    /// Waits until the connection is broken, and returns the reason.
    pub(crate) async fn broken(&self) -> String {
        self.0.end.broken().await;
        self.0.end.reason()
    }

    /// Waits until the agent's output is at its end.
    pub(crate) async fn ended(&self) {
        self.0.end.output_closed().await;
    }

    pub(crate) async fn send_all(&self, lines: Vec<String>) {
        for line in lines {
            self.send(line).await;
        }
    }

    pub(crate) async fn send(&self, line: String) {
        tokio::select! {
            // A broken connection has no writer.
            _ = self.0.output.send(line) => {}
            () = self.0.end.broken() => {}
        }
    }

    /// Handles a line of the agent's. False if it is no message.
    async fn take(&self, line: String) -> bool {
        let Some(message) = self.0.codec.parse(&line) else { return false };
        match message {
            AgentMessage::Response { id, result } => {
                if !self.0.requests.resolve(id, result.map(|result| (result, line))) {
                    self.disconnect(UNKNOWN_RESPONSE);
                }
            }
            AgentMessage::UnknownResponse => self.disconnect(UNKNOWN_RESPONSE),
            AgentMessage::Notification(params) => self.deliver(Incoming::Notification { line, params }).await,
            AgentMessage::Request { id, method, params } => {
                self.deliver(Incoming::Request { id, method, params, line }).await;
            }
            AgentMessage::OutOfProtocol(method) => {
                self.deliver(Incoming::OutOfProtocol { method, line }).await;
            }
            AgentMessage::Ignored => {}
        }
        true
    }

    async fn deliver(&self, message: Incoming) {
        let undelivered = match self.0.reception.receiver() {
            Some(receiver) => tokio::select! {
                // A turn that does not receive slows the agent down.
                sent = receiver.send(message) => sent.err().map(|unsent| unsent.0),
                () = self.0.end.broken() => None,
            },
            None => Some(message),
        };
        match undelivered {
            Some(Incoming::Request { id, method, .. }) => {
                self.send(self.0.codec.reject_request(&id, &method)).await;
            }
            Some(Incoming::Notification { params, .. }) => {
                self.0.reception.record_violation(self.0.codec, &params);
            }
            Some(Incoming::OutOfProtocol { .. }) | None => {}
        }
    }
}

async fn read(connection: AgentConnection, mut lines: BoundedLines<impl AsyncRead + Unpin>) {
    let Shared { codec, reception, end, .. } = &*connection.0;
    let fault = loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = end.broken() => return,
        };
        match line {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => {
                if !connection.take(line).await && reception.count_junk_line() {
                    break format!("it writes what is no {}", codec.protocol().title());
                }
            }
            // The supervisor of the process finds the reason.
            Err(LineError::Eof) => return end.close_output(),
            Err(LineError::TooLong) => {
                break format!("it wrote a line of more than {} bytes", codec.max_line_bytes());
            }
            Err(LineError::Io(error)) => break format!("its output cannot be read ({error})"),
        }
    };
    connection.disconnect(fault);
}

async fn write(
    connection: AgentConnection,
    mut stdin: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<String>,
) {
    loop {
        let line = tokio::select! {
            biased;
            () = connection.0.end.broken() => return,
            Some(line) = lines.recv() => line,
        };
        let writing = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.write_all(b"\n").await?;
            stdin.flush().await
        };
        match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                return connection.disconnect_exited(format!("it takes no more input ({error})"));
            }
            Err(_) => return connection.disconnect("it does not read its input"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream};

    use super::reception::MAX_JUNK_LINES;
    use super::*;

    /// A connection, and the agent's ends of its pipes.
    fn linked() -> (AgentConnection, DuplexStream, BufReader<DuplexStream>) {
        let (ours_in, theirs_in) = tokio::io::duplex(1 << 16);
        let (theirs_out, ours_out) = tokio::io::duplex(1 << 16);
        let (link, reading, writing) = AgentConnection::new(&crate::acp::Acp, ours_in, ours_out);
        tokio::spawn(reading);
        tokio::spawn(writing);
        (link, theirs_out, BufReader::new(theirs_in))
    }

    async fn told(from: &mut BufReader<DuplexStream>) -> Value {
        let mut line = String::new();
        from.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[tokio::test]
    async fn responses_find_their_request_and_late_ones_are_ignored() {
        let (link, mut agent, mut input) = linked();
        let asking = link.clone();
        let asked = tokio::spawn(async move { asking.request("m", &json!({})).await });
        let id = told(&mut input).await["id"].clone();
        let twice = format!("{{\"id\":{id},\"result\":7}}\n{{\"id\":{id},\"result\":8}}\nwarning: x\n\n");
        agent.write_all(twice.as_bytes()).await.unwrap();
        assert_eq!(asked.await.unwrap(), Ok(json!(7)));
        assert!(!link.is_broken());
        agent.write_all(b"{\"id\":99,\"result\":1}\n").await.unwrap();
        assert_eq!(link.broken().await, "it responded to a request that was not made");
        assert!(matches!(link.request("m", &json!({})).await, Err(ConnectionFault::Broken(_))));
    }

    #[tokio::test]
    async fn requests_are_refused_while_no_turn_listens() {
        let (link, mut agent, mut input) = linked();
        agent.write_all(b"{\"id\":\"a\",\"method\":\"session/request_permission\"}\n").await.unwrap();
        assert_eq!(told(&mut input).await["result"]["outcome"]["outcome"], "cancelled");
        agent.write_all(b"{\"id\":0,\"method\":\"fs/write_text_file\"}\n").await.unwrap();
        let refused = told(&mut input).await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(0), &json!(-32603)));
        assert_eq!(link.violation(), None);
        let of = |id: &str, kind: &str, status: &str| {
            let call = json!({ "sessionUpdate": kind, "toolCallId": id, "status": status });
            format!("{}\n", json!({ "method": "session/update", "params": { "update": call } }))
        };
        let update = |kind: &str, status: &str| of("t", kind, status);
        // An old conversation is reported again; then a turn ends, and its last notification comes late.
        agent.write_all(update("tool_call", "completed").as_bytes()).await.unwrap();
        agent.write_all(b"{\"id\":1,\"method\":\"x\"}\n").await.unwrap();
        told(&mut input).await;
        let mut ear = link.listen(ListenPhase::Turn);
        agent.write_all(update("tool_call", "in_progress").as_bytes()).await.unwrap();
        ear.next().await.unwrap();
        link.mark_idle();
        drop(ear);
        agent.write_all(update("tool_call_update", "completed").as_bytes()).await.unwrap();
        agent.write_all(b"{\"id\":1,\"method\":\"x\"}\n").await.unwrap();
        told(&mut input).await;
        assert_eq!(link.violation(), None);
        agent.write_all(of("another", "tool_call_update", "completed").as_bytes()).await.unwrap();
        agent.write_all(b"{\"id\":1,\"method\":\"x\"}\n").await.unwrap();
        told(&mut input).await;
        assert!(link.violation().is_some(), "a call that no turn knew");
    }

    /// The turn took its response, and its end was not noted yet.
    #[tokio::test]
    async fn messages_that_a_turn_did_not_take_come_after_it() {
        let (link, mut agent, mut input) = linked();
        let ear = link.listen(ListenPhase::Turn);
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "status": "completed" });
        let line = json!({ "method": "session/update", "params": { "update": call } });
        agent.write_all(format!("{line}\n{{\"id\":1,\"method\":\"x\"}}\n").as_bytes()).await.unwrap();
        drop(ear);
        told(&mut input).await;
        assert!(link.violation().is_some());
    }

    #[tokio::test]
    async fn work_between_turns_is_a_violation() {
        for status in ["pending", "in_progress", "completed"] {
            let (link, mut agent, mut input) = linked();
            link.mark_idle();
            let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "status": status });
            let line = json!({ "method": "session/update", "params": { "update": call } });
            agent.write_all(format!("{line}\n{{\"id\":1,\"method\":\"x\"}}\n").as_bytes()).await.unwrap();
            told(&mut input).await;
            assert!(link.violation().is_some(), "{status}");
        }
    }

    #[tokio::test]
    async fn junk_lines_and_endless_lines_break_the_connection() {
        let (link, mut agent, _input) = linked();
        agent.write_all("no message\n".repeat(MAX_JUNK_LINES + 1).as_bytes()).await.unwrap();
        assert_eq!(link.broken().await, "it writes what is no ACP");
        let (link, mut agent, _input) = linked();
        let endless = tokio::spawn(async move { while agent.write_all(&[b'x'; 1 << 16]).await.is_ok() {} });
        assert!(link.broken().await.starts_with("it wrote a line of more than"));
        endless.await.unwrap();
        let (link, agent, _input) = linked();
        drop(agent);
        link.ended().await;
        link.disconnect("first");
        link.disconnect("second");
        assert_eq!(link.broken().await, "first");
    }
}
