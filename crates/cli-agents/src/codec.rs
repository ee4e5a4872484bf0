//! How the messages of a protocol are written as lines.

use serde_json::Value;

use crate::profile::Protocol;

/// Reads and writes the messages of a protocol, one per line.
pub(crate) trait MessageCodec: Send + Sync {
    fn protocol(&self) -> Protocol;

    /// Bytes of one line of the agent's.
    fn max_line_bytes(&self) -> usize;

    /// The message on a line; `None` if there is none.
    fn parse(&self, line: &str) -> Option<AgentMessage>;

    /// A request to the agent, as a line.
    fn request(&self, id: u64, method: &str, params: &Value) -> String;

    /// The line that refuses a request of the agent's while no turn runs.
    fn reject_request(&self, id: &Value, method: &str) -> String;

    /// Whether a notification reports work, which must not go on between two turns.
    fn is_work(&self, notification: &Value) -> bool;

    /// The call that a notification is about, by the agent's own id, and its phase. `None` where the protocol does not
    /// tell calls apart.
    fn call<'a>(&self, _notification: &'a Value) -> Option<(&'a str, CallPhase)> {
        None
    }
}

/// The phase of a call that a notification is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallPhase {
    /// Nothing was done yet.
    Pending,
    /// Permission was requested, or the call runs or is over.
    Active,
}

/// A message from the agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AgentMessage {
    /// A request. The id goes back as it came.
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Notification(Value),
    /// The response to a request of ours.
    Response {
        id: u64,
        result: Result<Value, ErrorResponse>,
    },
    /// A response to a request that we cannot have made.
    UnknownResponse,
    /// A notification outside the protocol that a client may understand, by its method.
    OutOfProtocol(String),
    /// A message without any use here.
    Ignored,
}

/// An error response from the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorResponse {
    pub(crate) code: i64,
    pub(crate) message: String,
}

/// How many characters of an agent's error message are shown.
const MAX_MESSAGE_CHARS: usize = 300;

impl ErrorResponse {
    pub(crate) fn new(code: i64, message: &str) -> Self {
        Self { code, message: shown(message) }
    }
}

/// Text from the agent without control characters, short enough for an error sentence.
pub(crate) fn shown(words: &str) -> String {
    words.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE_CHARS).collect()
}
