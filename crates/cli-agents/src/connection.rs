//! The two pipes to an agent: sends requests and matches their responses; hands the agent's requests and notifications
//! to the turn that listens. While none does, every request of the agent is refused.
//!
//! A violation of the protocol breaks the connection for good: the first reason is kept, everyone who waits gets it,
//! and the supervisor of the process ends the agent.

mod end;
mod fault;
mod pipes;
mod reception;
mod requests;
mod turn_receiver;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tribune_json_rpc::LineReader;
use tribune_runtime::EventKind;

use self::end::ConnectionEnd;
pub(crate) use self::fault::ConnectionFault;
use self::reception::Reception;
use self::requests::PendingRequests;
pub(crate) use self::turn_receiver::{Incoming, ListenPhase, TurnReceiver};
use crate::codec::{AgentMessage, MessageCodec};

/// How long an agent may take for each response of the handshake. The slowest of the known ones needed nine seconds.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(90);

/// Messages that wait to be written, and to be received by the turn.
const QUEUE: usize = 32;

/// The reason for a response without a request.
const UNKNOWN_RESPONSE: &str = "it responded to a request that was not made";

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
        let reading = pipes::read(connection.clone(), LineReader::new(stdout, codec.max_line_bytes()));
        let writing = pipes::write(connection.clone(), stdin, lines);
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

#[cfg(test)]
mod tests;
