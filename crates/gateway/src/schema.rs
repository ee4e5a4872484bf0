//! OpenAPI schemas of events, content and entries. Their real types live in crates without OpenAPI; these types exist only
//! for the document, and the tests below keep both in step.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// One event of a session: its number, its type, and the members of that type. Ignore types that you do not know.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Event {
    /// Rises by one from event to event, over all turns of the session, without a gap.
    pub(crate) seq: u64,
    #[serde(flatten)]
    pub(crate) kind: EventKind,
}

/// What happened.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[cfg_attr(not(test), expect(dead_code, reason = "describes the JSON; only the tests make values"))]
pub(crate) enum EventKind {
    /// The first event of every turn: its input is durable.
    TurnStarted {
        /// CID of the turn.
        turn: String,
    },
    /// More text of the agent's answer.
    TextDelta { text: String },
    /// More of the agent's reasoning, if its backend shows it.
    ReasoningDelta { text: String },
    /// The agent requests a tool call.
    ToolCall {
        /// Unique in the turn.
        id: String,
        name: String,
        input: Value,
    },
    /// More of a call's input, as the model writes it.
    ToolCallUpdate { id: String, input_delta: String },
    /// The result of a call. A denial is a result with `is_error` and the reason.
    ToolResult { id: String, content: String, is_error: bool },
    /// Tokens of the turn so far.
    UsageUpdate { input_tokens: u32, output_tokens: u32 },
    /// A verdict of the gate is in the ledger.
    PolicyGate { entry: Entry },
    /// A call waits for a person.
    ApprovalRequested {
        /// The id of the approval.
        id: String,
        entry: Entry,
    },
    /// A call no longer waits for a person.
    ApprovalDecided {
        id: String,
        /// `allowed`, `denied`, `expired` or `withdrawn`.
        state: String,
    },
    /// A message from another agent was put before the input.
    MailboxInjected { entry: Entry },
    /// Another entry is in the ledger.
    LedgerAppend { entry: Entry },
    /// Information for the reader, for example that an agent lost its context. The turn goes on.
    Notice { code: String, message: String },
    /// A message of a CLI agent that has no event type of its own.
    AgentUpdate {
        /// The agent's name for it.
        kind: String,
        /// The line, unchanged.
        line: String,
    },
    /// An agent executed an action without permission. The turn ends.
    Ungoverned { id: String, tool: String, what: String },
    /// Why the turn ends with the stop reason `error` or `interrupted`.
    Error { code: String, message: String },
    /// The last event of every turn.
    Done {
        /// `end_turn`, `max_tokens`, `refusal`, `cancelled`, `interrupted` or `error`.
        stop_reason: String,
    },
}

/// One piece of a message.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[cfg_attr(not(test), expect(dead_code, reason = "describes the JSON; only the tests make values"))]
pub(crate) enum Content {
    Text {
        text: String,
    },
    Image {
        /// Base64.
        data: String,
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    Audio {
        /// Base64.
        data: String,
        #[serde(rename = "mimeType")]
        mime_type: String,
    },
    Resource {
        resource: Resource,
    },
}

/// A resource that is embedded in a message.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Resource {
    pub(crate) uri: String,
    #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
    pub(crate) mime_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blob: Option<String>,
}

/// An entry of the ledger; docs/guide/ledger.md has the format. It holds facts and hashes, never message content.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Entry {
    pub(crate) cid: String,
    pub(crate) entity_id: String,
    pub(crate) seq: u64,
    pub(crate) target: String,
    /// The kind of entry.
    pub(crate) quality: String,
    pub(crate) timestamp: String,
    pub(crate) source: String,
    pub(crate) actor: String,
    pub(crate) parents: Vec<String>,
    pub(crate) tags: Vec<String>,
    #[schema(value_type = Object)]
    pub(crate) payload: Value,
    pub(crate) attested_by: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub(crate) proof: Option<Value>,
    #[schema(value_type = Option<Object>)]
    pub(crate) envelope: Option<Value>,
}

/// Tokens of a turn.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Usage {
    pub(crate) input_tokens: u32,
    pub(crate) output_tokens: u32,
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tribune_ledger::LedgerEntry;
    use tribune_runtime as real;

    use super::*;

    fn entry(entry: LedgerEntry) -> Entry {
        let LedgerEntry {
            cid,
            entity_id,
            seq,
            target,
            quality,
            timestamp,
            source,
            actor,
            parents,
            tags,
            payload,
            attested_by,
            proof: _,
            envelope: _,
        } = entry;
        Entry {
            cid: cid.to_string(),
            entity_id,
            seq,
            target,
            quality: quality.to_string(),
            timestamp: timestamp.to_string(),
            source,
            actor,
            parents: parents.iter().map(ToString::to_string).collect(),
            tags,
            payload: Value::Object(payload),
            attested_by: attested_by.map(|key| key.to_string()),
            proof: None,
            envelope: None,
        }
    }

    /// Lists every variant, so that a new one does not compile without a schema above.
    fn shape(kind: real::EventKind) -> EventKind {
        match kind {
            real::EventKind::TurnStarted { turn } => EventKind::TurnStarted { turn },
            real::EventKind::TextDelta { text } => EventKind::TextDelta { text },
            real::EventKind::ReasoningDelta { text } => EventKind::ReasoningDelta { text },
            real::EventKind::ToolCall { id, name, input } => EventKind::ToolCall { id, name, input },
            real::EventKind::ToolCallUpdate { id, input_delta } => {
                EventKind::ToolCallUpdate { id, input_delta }
            }
            real::EventKind::ToolResult { id, content, is_error } => {
                EventKind::ToolResult { id, content, is_error }
            }
            real::EventKind::UsageUpdate { input_tokens, output_tokens } => {
                EventKind::UsageUpdate { input_tokens, output_tokens }
            }
            real::EventKind::PolicyGate { entry: found } => EventKind::PolicyGate { entry: entry(*found) },
            real::EventKind::ApprovalRequested { id, entry: found } => {
                EventKind::ApprovalRequested { id, entry: entry(*found) }
            }
            real::EventKind::ApprovalDecided { id, state } => EventKind::ApprovalDecided { id, state },
            real::EventKind::MailboxInjected { entry: found } => {
                EventKind::MailboxInjected { entry: entry(*found) }
            }
            real::EventKind::LedgerAppend { entry: found } => {
                EventKind::LedgerAppend { entry: entry(*found) }
            }
            real::EventKind::Notice { code, message } => EventKind::Notice { code, message },
            real::EventKind::AgentUpdate { kind, line } => EventKind::AgentUpdate { kind, line },
            real::EventKind::Ungoverned { id, tool, what } => EventKind::Ungoverned { id, tool, what },
            real::EventKind::Error { code, message } => EventKind::Error { code, message },
            real::EventKind::Done { stop_reason } => {
                EventKind::Done { stop_reason: stop_reason.as_str().to_owned() }
            }
        }
    }

    #[test]
    fn events_have_the_documented_shape() {
        let some_entry = json!({
            "cid": format!("b3:{}", "0".repeat(64)), "entity_id": "e", "seq": 0, "target": "t",
            "quality": "note", "timestamp": "2026-11-15T12:00:00.000000Z", "source": "s", "actor": "a",
            "parents": [format!("b3:{}", "1".repeat(64))], "tags": ["x"], "payload": {"n": 1},
            "attested_by": null, "proof": null, "envelope": null,
        });
        for event in [
            json!({"seq": 1, "type": "turn_started", "turn": "b3:0"}),
            json!({"seq": 2, "type": "text_delta", "text": "hi"}),
            json!({"seq": 3, "type": "reasoning_delta", "text": "hm"}),
            json!({"seq": 4, "type": "tool_call", "id": "c", "name": "read", "input": {"path": "x"}}),
            json!({"seq": 5, "type": "tool_call_update", "id": "c", "input_delta": "{"}),
            json!({"seq": 6, "type": "tool_result", "id": "c", "content": "x", "is_error": false}),
            json!({"seq": 7, "type": "usage_update", "input_tokens": 1, "output_tokens": 2}),
            json!({"seq": 8, "type": "policy_gate", "entry": some_entry}),
            json!({"seq": 9, "type": "mailbox_injected", "entry": some_entry}),
            json!({"seq": 10, "type": "ledger_append", "entry": some_entry}),
            json!({"seq": 11, "type": "error", "code": "c", "message": "m"}),
            json!({"seq": 12, "type": "done", "stop_reason": "end_turn"}),
            json!({"seq": 13, "type": "approval_requested", "id": "0a1b2c3d", "entry": some_entry}),
            json!({"seq": 14, "type": "approval_decided", "id": "0a1b2c3d", "state": "allowed"}),
            json!({"seq": 15, "type": "notice", "code": "c", "message": "m"}),
            json!({"seq": 16, "type": "agent_update", "kind": "plan", "line": "{}"}),
            json!({"seq": 17, "type": "ungoverned", "id": "c", "tool": "write", "what": "w"}),
        ] {
            let read: real::RuntimeEvent = serde_json::from_value(event.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), event);
            let shaped = Event { seq: read.seq, kind: shape(read.kind) };
            assert_eq!(serde_json::to_value(shaped).unwrap(), event);
        }
    }

    #[test]
    fn content_has_the_documented_shape() {
        let media = |mime_type: &str| ("aGk=".to_owned(), mime_type.to_owned());
        let (data, mime_type) = media("image/png");
        let image = Content::Image { data, mime_type };
        let (data, mime_type) = media("audio/wav");
        let audio = Content::Audio { data, mime_type };
        let resource =
            Resource { uri: "file:///a".into(), mime_type: None, text: Some("x".into()), blob: None };
        for shaped in [Content::Text { text: "hi".into() }, image, audio, Content::Resource { resource }] {
            let json = serde_json::to_value(shaped).unwrap();
            let read: real::ContentBlock = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), json);
            match read {
                real::ContentBlock::Text { .. }
                | real::ContentBlock::Image { .. }
                | real::ContentBlock::Audio { .. }
                | real::ContentBlock::Resource { .. } => {}
            }
        }
    }
}
