//! Sessions, their turns, messages and events.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_redact::Redactor;
use tribune_runtime::{ContentBlock, SessionState};
use tribune_storage::store::{MessageRow, SessionRow, TurnRow};
use utoipa::ToSchema;

use crate::schema;

/// `session.init`: opens a session, or finds it open.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionInit {
    /// `agent:AGENT:CHANNEL:ACCOUNT:dm:PEER`. Without it, the caller's own session with `agent_id`.
    pub(crate) session_key: Option<String>,
    /// Without it and without a key: `main`.
    pub(crate) agent_id: Option<String>,
    /// `persistent`, `domain` or `oneshot`. Without it a session keeps its mode, and a new one is `domain`.
    pub(crate) mode: Option<String>,
    /// `provider:model`, for the operator: use this model instead of the agent's own. A session that is open with another
    /// model is reopened; its conversation stays.
    pub(crate) model: Option<String>,
    /// For the operator: the absolute path of a folder on this machine that the session works in instead of its agent's
    /// workspace. A session that is open elsewhere is reopened; its conversation stays.
    pub(crate) workspace: Option<String>,
}

/// Names one session.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionRef {
    /// `agent:AGENT:CHANNEL:ACCOUNT:dm:PEER`.
    pub(crate) session_key: String,
}

/// `session.list`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionList {
    /// Only sessions of this agent.
    pub(crate) agent_id: Option<String>,
    /// Only sessions in this state: `idle`, `running`, `cancelled` or `closed`.
    pub(crate) state: Option<String>,
    /// Only keys after this one: the `next` of the previous page.
    pub(crate) after: Option<String>,
    /// At most this many; 100 if not given, at most 1,000.
    pub(crate) limit: Option<usize>,
}

/// `session.events`: reads a session's events after a given one.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionEvents {
    pub(crate) session_key: String,
    /// The last `seq` that was received. Without it: from the oldest event that is kept.
    pub(crate) after: Option<u64>,
    /// Also send new events as they come, as `session.event` notifications. With `false`: one page.
    #[serde(default = "yes")]
    pub(crate) follow: bool,
    /// Events on one page; 1,000 if not given, which is the most.
    pub(crate) limit: Option<usize>,
}

const fn yes() -> bool {
    true
}

/// `session.unfollow`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unfollow {
    pub(crate) subscription: u64,
}

/// `turn.run`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TurnRun {
    pub(crate) session_key: String,
    pub(crate) input: TurnContent,
    /// Answer at the turn's end, after its events as notifications. With `false`: answer when the input is durable.
    #[serde(default = "yes")]
    pub(crate) wait: bool,
}

/// The input of a turn.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TurnContent {
    /// Content blocks: text, image, audio, resource.
    #[schema(value_type = Vec<schema::Content>)]
    pub(crate) content: Vec<ContentBlock>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct SessionInfo {
    pub(crate) session_key: String,
    /// Its id in the ledger and the vault; stays the same when the session is closed and reopened.
    pub(crate) session_id: String,
    pub(crate) agent_id: String,
    /// The backend that runs its turns.
    pub(crate) backend: String,
    pub(crate) model: Option<String>,
    pub(crate) mode: String,
    /// `idle`, `running`, `cancelled`, `closed` or `failed`: the disk failed in a turn, whose end is not on record until the
    /// daemon is started again.
    pub(crate) state: String,
    /// Why the session is in the state `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// The mandate that says what it may do.
    pub(crate) mandate: String,
    /// The operator's folder that it works in, if that is not its agent's own workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<String>,
    /// Additional folders of the operator that it may use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) further_folders: Vec<String>,
    /// The least trusted source of anything in its context: `owner`, `verified`, `community` or `untrusted`.
    pub(crate) trust: String,
    /// Whether it has read private data.
    pub(crate) private: bool,
    pub(crate) created_at: String,
    pub(crate) last_activity: String,
    /// Why it was closed: `requested`, `evicted` or `finished`.
    pub(crate) closed_for: Option<String>,
    pub(crate) turns: u64,
    /// CID of the newest turn.
    pub(crate) last_turn: Option<String>,
    /// Number of the newest event. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_seq: Option<u64>,
    /// The newest standard error output of a CLI agent. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent_stderr: Option<String>,
}

impl From<SessionRow> for SessionInfo {
    fn from(row: SessionRow) -> Self {
        Self {
            session_key: row.key,
            session_id: row.id,
            agent_id: row.agent_id,
            backend: row.terms.backend,
            model: row.terms.model,
            mode: row.terms.mode.as_str().to_owned(),
            state: row.state.as_str().to_owned(),
            failure: None,
            mandate: row.terms.mandate,
            workspace: row.terms.workspace,
            further_folders: row.terms.additional_directories,
            trust: row.labels.trust.as_str().to_owned(),
            private: row.labels.private,
            created_at: row.created_at,
            last_activity: row.last_activity,
            closed_for: row.closed_for.map(|reason| reason.as_str().to_owned()),
            turns: row.turns,
            last_turn: row.last_turn,
            last_seq: None,
            agent_stderr: None,
        }
    }
}

impl SessionInfo {
    /// Notes a failure of the disk: the turn that the ledger has as running has ended, and its end is not recorded.
    pub(crate) fn with_failure(mut self, failure: Option<&str>) -> Self {
        if let Some(why) = failure.filter(|_| self.state == SessionState::Running.as_str()) {
            self.state = "failed".to_owned();
            self.failure = Some(why.to_owned());
        }
        self
    }
}

/// A page of sessions.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct SessionPage {
    pub(crate) sessions: Vec<SessionInfo>,
    /// Give this as `after` for the next page; absent on the last.
    pub(crate) next: Option<String>,
}

/// `session.cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Cancelled {
    /// Whether a turn was running. It ends with `done` and stop reason `cancelled`.
    pub(crate) cancelled: bool,
}

/// `session.forget`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Forgotten {
    /// CID of the entry that records it.
    pub(crate) cid: String,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct EventPage {
    #[schema(value_type = Vec<schema::Event>)]
    pub(crate) events: Vec<Value>,
    /// Number of the session's newest event.
    pub(crate) last_seq: u64,
}

/// `session.events` with `follow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Following {
    pub(crate) subscription: u64,
    pub(crate) last_seq: u64,
}

/// A turn that has ended, or with `wait: false` one that runs.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct TurnResult {
    pub(crate) session_key: String,
    /// CID of the turn.
    pub(crate) turn: String,
    /// Number of its first event.
    pub(crate) first_seq: u64,
    /// Number of its last event. This and the members below are present once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_seq: Option<u64>,
    /// `end_turn`, `max_tokens`, `refusal`, `cancelled`, `interrupted` or `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stop_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Usage>)]
    pub(crate) usage: Option<tribune_runtime::Usage>,
}

/// A turn as the ledger records it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct TurnInfo {
    /// CID of the turn.
    pub(crate) turn: String,
    /// Its place in the session's history in the ledger.
    pub(crate) seq: u64,
    /// CID of the turn before.
    pub(crate) prev_cid: Option<String>,
    /// The commitments to input and output, in the ledger.
    pub(crate) input_hash: String,
    pub(crate) output_hash: Option<String>,
    /// Null while the turn runs.
    pub(crate) stop_reason: Option<String>,
    #[schema(value_type = Option<schema::Usage>)]
    pub(crate) usage: Option<Value>,
    pub(crate) started_at: String,
    pub(crate) completed_at: Option<String>,
}

impl From<TurnRow> for TurnInfo {
    fn from(row: TurnRow) -> Self {
        Self {
            turn: row.id,
            seq: row.seq,
            prev_cid: row.prev_cid,
            input_hash: row.input_hash,
            output_hash: row.output_hash,
            stop_reason: row.stop_reason,
            usage: row.usage.and_then(|usage| serde_json::from_str(&usage).ok()),
            started_at: row.started_at,
            completed_at: row.completed_at,
        }
    }
}

/// A message: its ledger data, and its content from the vault.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct MessageInfo {
    pub(crate) cid: String,
    pub(crate) turn: Option<String>,
    pub(crate) seq: u64,
    /// `user`, `assistant`, `tool_call`, `tool` or `mailbox`.
    pub(crate) role: String,
    /// The name of the tool or of the mailbox message.
    pub(crate) name: Option<String>,
    pub(crate) at: String,
    /// The commitment in the ledger.
    pub(crate) hash: String,
    /// The content, with secrets redacted; null if it was shredded.
    #[schema(value_type = Option<Object>)]
    pub(crate) content: Option<Value>,
}

impl MessageInfo {
    /// A message with its content, with secrets redacted.
    pub(crate) fn new(row: MessageRow, content: Option<Vec<u8>>, redactor: &Redactor) -> Self {
        let content = content.and_then(|content| serde_json::from_slice(&content).ok());
        Self {
            cid: row.id,
            turn: row.turn,
            seq: row.seq,
            role: row.role,
            name: row.name,
            at: row.created_at,
            hash: row.content,
            content: content.map(|content: Value| redactor.redact_json(&content)),
        }
    }
}

/// How many of the newest items.
#[derive(Debug, Clone, Default, Deserialize, ToSchema, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Newest {
    /// At most this many; 100 if not given, at most 1,000.
    pub(crate) limit: Option<usize>,
}

/// `session.turns` and `session.history`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionNewest {
    pub(crate) session_key: String,
    pub(crate) limit: Option<usize>,
}

/// Turns, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Turns {
    pub(crate) turns: Vec<TurnInfo>,
}

/// Messages, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct History {
    pub(crate) messages: Vec<MessageInfo>,
}
