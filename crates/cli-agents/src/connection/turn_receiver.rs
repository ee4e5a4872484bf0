//! Receives the messages of the agent for one turn, or for the handshake.

use serde_json::Value;
use tokio::sync::mpsc;

use super::{AgentConnection, Shared};
use crate::codec::CallPhase;

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

/// The phase in which messages are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenPhase {
    Handshake,
    Turn,
}

/// Receives the agent's messages. Messages that it did not take count as sent while nobody listened.
pub(crate) struct TurnReceiver {
    pub(super) connection: AgentConnection,
    pub(super) phase: ListenPhase,
    /// The number of this receiver among those of the connection.
    pub(super) number: u64,
    pub(super) messages: mpsc::Receiver<Incoming>,
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
