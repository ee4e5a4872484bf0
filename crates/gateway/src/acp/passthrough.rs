//! What an agent that speaks ACP says, on its way to a client: as it came, with the words that may be shown.

use serde_json::{Map, Value, json};

use super::update_mapper::{AcpMessage, chunk};

/// A message of the agent's without its words.
#[derive(Debug, Clone)]
pub(super) struct Around {
    update: Value,
    beside: Map<String, Value>,
    /// It went out with words.
    is_told: bool,
}

impl Around {
    pub(super) fn new(update: Map<String, Value>, beside: Map<String, Value>) -> Self {
        Self { update: Value::Object(update), beside, is_told: false }
    }

    /// What went out with no words, as a message without any.
    pub(super) fn untold(self) -> Option<AcpMessage> {
        (!self.is_told).then_some(AcpMessage::Said { update: self.update, beside: self.beside })
    }
}

/// Methods beside the protocol that are ours to say.
pub(super) const OURS: &str = "_tribune/";

/// Words of the agent's, with what stood around them.
pub(super) fn words(around: &mut Option<Around>, kind: &str, text: &str) -> AcpMessage {
    let Some(around) = around else { return chunk(kind, text) };
    around.is_told = true;
    let mut update = around.update.clone();
    update["content"]["text"] = text.into();
    AcpMessage::Said { update, beside: around.beside.clone() }
}

/// What an agent said, as it came.
pub(super) fn came(said: Map<String, Value>, beside: Map<String, Value>) -> AcpMessage {
    match beside.is_empty() {
        true => AcpMessage::Update(Value::Object(said)),
        false => AcpMessage::Said { update: Value::Object(said), beside },
    }
}

/// What an agent said of its session when that began, but for its own name for it. Modes and options of this session are the house's
/// own, and not those of the agent behind it.
pub(super) fn opened(mut answer: Map<String, Value>) -> AcpMessage {
    answer.remove("sessionId");
    let mut meta = answer.get("_meta").cloned().unwrap_or_default();
    beside(&mut meta, json!({ "tribune": { "agent_session": answer } }));
    AcpMessage::Update(json!({ "sessionUpdate": "session_info_update", "_meta": meta }))
}

/// Puts members of ours beside those of another.
pub(super) fn beside(theirs: &mut Value, ours: Value) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => theirs.extend(ours),
        (theirs, ours) => *theirs = ours,
    }
}
