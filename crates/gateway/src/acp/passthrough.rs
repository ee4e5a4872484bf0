//! Forwards the messages of an ACP agent to the client unchanged, except that the text is replaced with the filtered text.

use serde_json::{Map, Value, json};

use super::update_mapper::{AcpMessage, chunk};

/// A message chunk of the agent without its text.
#[derive(Debug, Clone)]
pub(super) struct ChunkEnvelope {
    update: Value,
    beside: Map<String, Value>,
    /// It was sent with text at least once.
    is_sent: bool,
}

impl ChunkEnvelope {
    pub(super) fn new(update: Map<String, Value>, beside: Map<String, Value>) -> Self {
        Self { update: Value::Object(update), beside, is_sent: false }
    }

    /// The message itself, without text, if it was never sent with text.
    pub(super) fn unsent(self) -> Option<AcpMessage> {
        (!self.is_sent).then_some(AcpMessage::AgentUpdate { update: self.update, beside: self.beside })
    }
}

/// The prefix of Tribune's own extension methods.
pub(super) const OUR_PREFIX: &str = "_tribune/";

/// A text chunk, wrapped in the agent's message that carried it.
pub(super) fn text_chunk(around: &mut Option<ChunkEnvelope>, kind: &str, text: &str) -> AcpMessage {
    let Some(around) = around else { return chunk(kind, text) };
    around.is_sent = true;
    let mut update = around.update.clone();
    update["content"]["text"] = text.into();
    AcpMessage::AgentUpdate { update, beside: around.beside.clone() }
}

/// An agent's update, unchanged.
pub(super) fn agent_update(said: Map<String, Value>, beside: Map<String, Value>) -> AcpMessage {
    match beside.is_empty() {
        true => AcpMessage::Update(Value::Object(said)),
        false => AcpMessage::AgentUpdate { update: Value::Object(said), beside },
    }
}

/// The agent's response to opening its session, without its own session id. It goes into `_meta`, because the modes and options
/// of this session are Tribune's and not the agent's.
pub(super) fn agent_session_opened(mut answer: Map<String, Value>) -> AcpMessage {
    answer.remove("sessionId");
    let mut meta = answer.get("_meta").cloned().unwrap_or_default();
    merge_members(&mut meta, json!({ "tribune": { "agent_session": answer } }));
    AcpMessage::Update(json!({ "sessionUpdate": "session_info_update", "_meta": meta }))
}

/// Merges members of `ours` into `theirs`.
pub(super) fn merge_members(theirs: &mut Value, ours: Value) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => theirs.extend(ours),
        (theirs, ours) => *theirs = ours,
    }
}
