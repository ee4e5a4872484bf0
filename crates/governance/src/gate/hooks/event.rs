//! The events that hooks receive: one JSON object each, whose `event` member is the name of the hook point.

use serde::Serialize;
use serde_json::Value;
use tribune_constitution::{Labels, SessionKind, Trust};

use super::super::PolicyContext;

/// The agent and session that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HookSubject {
    agent_id: String,
    session_key: String,
    kind: SessionKind,
    /// The session's labels.
    labels: Labels,
}

impl HookSubject {
    pub(crate) fn of(context: &PolicyContext) -> Self {
        let key = &context.key;
        Self {
            agent_id: key.agent().to_string(),
            session_key: key.to_string(),
            kind: if key.is_subagent() { SessionKind::Subagent } else { SessionKind::Main },
            labels: context.labels,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum HookEvent<'a> {
    BeforeToolCall {
        #[serde(flatten)]
        who: &'a HookSubject,
        tool_name: &'a str,
        tool_call_id: &'a str,
        params: &'a Value,
    },
    AfterToolCall {
        #[serde(flatten)]
        who: &'a HookSubject,
        tool_name: &'a str,
        tool_call_id: &'a str,
        result: &'a str,
        is_error: bool,
    },
    /// The result is durable in the ledger.
    ToolResultPersist {
        #[serde(flatten)]
        who: &'a HookSubject,
        tool_name: &'a str,
        tool_call_id: &'a str,
        is_error: bool,
        /// The result's entry.
        cid: String,
    },
    MessageReceived {
        #[serde(flatten)]
        who: &'a HookSubject,
        text: &'a str,
        trust: Trust,
    },
    GatewayStart {
        address: String,
        version: &'a str,
        constitution_hash: String,
    },
    BeforeAgentStart {
        #[serde(flatten)]
        who: &'a HookSubject,
        mandate: &'a str,
        constitution_hash: &'a str,
    },
}

impl HookEvent<'_> {
    pub(super) fn json(&self) -> Vec<u8> {
        // INVARIANT: text, numbers and JSON values always serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
