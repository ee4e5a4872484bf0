//! The events of a turn, as clients see them. The JSON field names are the wire format; a client ignores a `type` that
//! it does not know.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_ledger::LedgerEntry;

/// One event of a session. `seq` rises by one from event to event, over all turns of the session, without a gap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuntimeEvent {
    pub seq: u64,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The kind of an event, with its fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventKind {
    TextDelta {
        text: String,
    },
    ToolCall {
        id: String,
        name: String,
        input: Value,
    },
    /// More of a call's input, as the model writes it.
    ToolCallUpdate {
        id: String,
        input_delta: String,
    },
    ToolResult {
        id: String,
        content: String,
        is_error: bool,
    },
    UsageUpdate {
        input_tokens: u32,
        output_tokens: u32,
    },
    /// The last event of every turn.
    Done {
        stop_reason: StopReason,
    },
    Error {
        code: String,
        message: String,
    },

    ReasoningDelta {
        text: String,
    },
    /// The first event of every turn: the input is durable. `turn` is the CID of its ledger entry.
    TurnStarted {
        turn: String,
    },
    PolicyGate {
        entry: Box<LedgerEntry>,
    },
    /// A call waits for a person. `id` is the approval's.
    ApprovalRequested {
        id: String,
        entry: Box<LedgerEntry>,
    },
    /// `state` is `allowed`, `denied`, `expired` or `withdrawn`.
    ApprovalDecided {
        id: String,
        state: String,
    },
    MailboxInjected {
        entry: Box<LedgerEntry>,
    },
    LedgerAppend {
        entry: Box<LedgerEntry>,
    },
    /// Information for the reader of the stream. It does not end the turn.
    Notice {
        code: String,
        message: String,
    },
    /// A message of a CLI agent that has no event of its own, or how the agent shows a call, as it came.
    AgentUpdate {
        kind: String,
        line: String,
    },
    /// An agent executed a call without permission. The turn ends.
    Ungoverned {
        id: String,
        tool: String,
        what: String,
    },
}

/// Kinds of `AgentUpdate` that carry the metadata of an agent's text and thought chunks, without their text.
pub const MESSAGE_CHUNK_META: &str = "agent_message_chunk/around";
pub const THOUGHT_CHUNK_META: &str = "agent_thought_chunk/around";

/// The kind of an `AgentUpdate` that names the call (`callId`) which runs in a terminal of the agent's (`terminalId`).
pub const TERMINAL_CREATED: &str = "terminal/create";

/// The code of a notice about autorun files: files in a workspace that programs of this machine execute or load by
/// name.
pub const AUTORUN_FILES: &str = "obeyed_names";

/// The reason for which a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    MaxTokens,
    Refusal,
    Cancelled,
    /// The daemon stopped while the turn was running.
    Interrupted,
    /// An `error` event says why.
    Error,
}

impl StopReason {
    pub const ALL: [Self; 6] =
        [Self::EndTurn, Self::MaxTokens, Self::Refusal, Self::Cancelled, Self::Interrupted, Self::Error];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EndTurn => "end_turn",
            Self::MaxTokens => "max_tokens",
            Self::Refusal => "refusal",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Error => "error",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// Tokens of a turn so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: u32,
    pub output_tokens: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_names_are_the_wire() {
        let line = |kind| serde_json::to_string(&RuntimeEvent { seq: 7, kind }).unwrap();
        assert_eq!(
            line(EventKind::TextDelta { text: "hi".into() }),
            r#"{"seq":7,"type":"text_delta","text":"hi"}"#
        );
        assert_eq!(
            line(EventKind::ToolResult { id: "c1".into(), content: "no".into(), is_error: true }),
            r#"{"seq":7,"type":"tool_result","id":"c1","content":"no","is_error":true}"#
        );
        assert_eq!(
            line(EventKind::Done { stop_reason: StopReason::EndTurn }),
            r#"{"seq":7,"type":"done","stop_reason":"end_turn"}"#
        );
        assert_eq!(
            line(EventKind::UsageUpdate { input_tokens: 1, output_tokens: 2 }),
            r#"{"seq":7,"type":"usage_update","input_tokens":1,"output_tokens":2}"#
        );
        let read: RuntimeEvent = serde_json::from_str(
            r#"{"type":"tool_call","seq":3,"id":"a","name":"read","input":{"path":"x"}}"#,
        )
        .unwrap();
        assert_eq!(read.seq, 3);
    }
}
