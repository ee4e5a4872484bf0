//! Wire types of the gateway: parameters and results of every method, for JSON-RPC and REST alike. Unknown members are
//! refused, so that a misspelled option is an error and not silently ignored.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_redact::Redactor;
use tribune_runtime::ContentBlock;
use tribune_storage::store::{Heartbeat, MessageRow, SessionRow, StoredEntry, TurnRow};
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
    /// `idle`, `running`, `cancelled` or `closed`.
    pub(crate) state: String,
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
            backend: row.backend,
            model: row.model,
            mode: row.mode.as_str().to_owned(),
            state: row.state.as_str().to_owned(),
            mandate: row.mandate,
            workspace: row.workspace,
            further_folders: row.further,
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

/// `ledger.tail`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LedgerTail {
    /// Only entries of this entity.
    pub(crate) entity_id: Option<String>,
    /// Only entries of this kind.
    pub(crate) quality: Option<String>,
    /// At most this many; 100 if not given, at most 1,000.
    pub(crate) limit: Option<usize>,
}

/// `ledger.entry` and `ledger.prove`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EntryName {
    /// Its index in the log, its CID, or the CID's first digits.
    pub(crate) entry: String,
}

/// An entry and its index in the log.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct EntryInfo {
    pub(crate) index: u64,
    #[schema(value_type = schema::Entry)]
    pub(crate) entry: Value,
}

impl EntryInfo {
    pub(crate) fn new(stored: &StoredEntry) -> Self {
        let mut line = Vec::new();
        stored.entry.write_line(&mut line);
        Self { index: stored.index, entry: serde_json::from_slice(&line).unwrap_or(Value::Null) }
    }
}

/// Entries, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Entries {
    pub(crate) entries: Vec<EntryInfo>,
}

/// The newest signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct CheckpointInfo {
    pub(crate) origin: String,
    pub(crate) size: u64,
    pub(crate) root: String,
    /// The signed note.
    pub(crate) note: String,
}

/// `ledger.note`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoteWrite {
    /// 1 to 100 notes of 1 to 8,192 bytes.
    pub(crate) texts: Vec<String>,
    /// The entity whose history they belong to; not a session.
    pub(crate) entity: String,
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// CIDs. If empty, `after_head` decides.
    #[serde(default)]
    pub(crate) parents: Vec<String>,
    /// Without parents: use the entity's newest entry as the parent.
    #[serde(default)]
    pub(crate) after_head: bool,
}

/// Where the notes were written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct NotesWritten {
    pub(crate) written: Vec<Written>,
}

/// Where an entry was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Written {
    pub(crate) index: u64,
    pub(crate) cid: String,
    pub(crate) seq: u64,
}

/// An agent of the roster, or an unregistered one that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct AgentInfo {
    pub(crate) agent_id: String,
    pub(crate) name: Option<String>,
    /// Absent for an unregistered agent.
    pub(crate) backend: Option<String>,
    /// The profile that a CLI agent runs with.
    pub(crate) profile: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) mandate: String,
    /// `ask`, `approve-all`, `approve-reads` or `deny-all`; absent if the roster does not set it.
    pub(crate) mode: Option<String>,
    /// The tools that the mandate allows.
    pub(crate) tools: Vec<String>,
    pub(crate) standing: bool,
    pub(crate) pubkey: Option<String>,
    pub(crate) rostered: bool,
    pub(crate) last_seen: Option<String>,
    pub(crate) sessions: u64,
    pub(crate) turns: u64,
}

impl AgentInfo {
    pub(crate) fn seen(mut self, heartbeat: &Heartbeat) -> Self {
        self.last_seen = Some(heartbeat.last_seen.clone());
        self.sessions = heartbeat.sessions;
        self.turns = heartbeat.turns;
        self
    }
}

/// All agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct AgentList {
    pub(crate) agents: Vec<AgentInfo>,
}

/// `agent.show`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentRef {
    pub(crate) agent_id: String,
}

/// `agent.test`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentTest {
    pub(crate) agent_id: String,
    /// The operator has reviewed an action that an agent of this backend or profile executed without permission. If the canary
    /// passes now, its agents run again, even if no probe covers that action. If no canary can be run and `canary.untried`
    /// names the backend or profile, this flag alone is enough.
    #[serde(default)]
    pub(crate) clear_mark: bool,
}

/// `agent.add`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentAdd {
    /// Lowercase letters, digits, `-` and `_`.
    pub(crate) agent_id: String,
    /// A display name.
    pub(crate) name: Option<String>,
    /// Without it: the profile's backend if a profile is given, `native` if a model is given, else `rehearsal`.
    pub(crate) backend: Option<String>,
    /// The profile that a CLI agent runs with, for the backends `acp` and `claude_code`.
    #[serde(default)]
    pub(crate) profile: Option<String>,
    /// `provider:model`, for the backends `native`, `acp` and `claude_code`.
    pub(crate) model: Option<String>,
    /// Without it: `default`.
    pub(crate) mandate: Option<String>,
    /// How calls within its mandate are approved: `ask`, `approve-all`, `approve-reads` or `deny-all`.
    #[serde(default)]
    pub(crate) mode: Option<String>,
    /// Whether its session is opened before the daemon accepts connections, from the next start on.
    #[serde(default)]
    pub(crate) standing: bool,
    /// `ed25519:` and 64 hex digits.
    pub(crate) pubkey: Option<String>,
}

/// `daemon.status`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct DaemonStatus {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) address: String,
    pub(crate) home: String,
    pub(crate) started_at: String,
    pub(crate) ready: bool,
    /// What is not ready, by name.
    pub(crate) waiting: Vec<String>,
    pub(crate) constitution_hash: String,
    pub(crate) mandates: Vec<String>,
    pub(crate) backends: Vec<String>,
    /// The log's name.
    pub(crate) log: String,
    /// Entries in the log.
    pub(crate) entries: u64,
    pub(crate) sessions_open: usize,
    pub(crate) sessions_loaded: usize,
    pub(crate) connections: usize,
    /// Turns that the last start found unfinished; `recovered_calls` counts unfinished calls.
    pub(crate) recovered_turns: u64,
    pub(crate) recovered_calls: u64,
    /// Sessions whose interrupted `session.forget` the last start completed.
    pub(crate) recovered_forgets: u64,
    /// The state of the canaries: whether the gate holds the backends of the roster.
    pub(crate) canaries: Vec<CanaryInfo>,
}

/// The state of the canary of a backend or of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct CanaryInfo {
    pub(crate) backend: String,
    /// The profile, or the backend again if there is none.
    pub(crate) subject: String,
    /// The agents of the roster that it covers.
    pub(crate) agents: Vec<String>,
    /// `live`; `ungoverned` or `not_tried`, whose agents do not run; `untried`, whose agents run because `canary.untried` names
    /// it; `waiting` or `running`, while the test is due or under way; or `off`.
    pub(crate) state: String,
    /// The action that was not stopped, or why it was not tried.
    pub(crate) detail: Option<String>,
    /// When it was last tried.
    pub(crate) at: Option<String>,
    pub(crate) took_ms: Option<u64>,
}

/// `agent.test`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct AgentTested {
    pub(crate) agent_id: String,
    /// `live`, `not_stopped` or `not_tried`.
    pub(crate) outcome: String,
    /// The action that was not stopped, or why it was not tried.
    pub(crate) detail: Option<String>,
    /// An action that an agent of this backend or profile executed without permission, until it is cleared.
    pub(crate) mark: Option<String>,
    /// Why this call cleared such a mark: `tried`, `looked_at`, or `looked_at_untried` if no canary confirms it.
    pub(crate) cleared: Option<String>,
    /// Whether its agents run although the canary could not be tried: `canary.untried` names it, or `canary.every` is off.
    pub(crate) excepted: bool,
    pub(crate) steps: Vec<TestStep>,
    pub(crate) took_ms: u64,
    /// The session that holds its calls and their verdicts.
    pub(crate) session_key: Option<String>,
}

/// A step of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct TestStep {
    pub(crate) step: String,
    pub(crate) ok: bool,
    pub(crate) took_ms: u64,
    pub(crate) detail: Option<String>,
}

/// `auth.token`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthToken {
    pub(crate) token: String,
}

impl std::fmt::Debug for AuthToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthToken(…)")
    }
}

/// `auth.challenge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Challenge {
    pub(crate) nonce: String,
    /// The log's name: a signature made for one daemon is invalid at another.
    pub(crate) audience: String,
}

/// `auth.agent`: the signature is Ed25519 over `tribune/agent-auth/v1\nAUDIENCE\nNONCE\nPUBLIC_KEY\n`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthAgent {
    /// `ed25519:` and 64 hex digits.
    pub(crate) public_key: String,
    /// 128 hex digits.
    pub(crate) signature: String,
}

/// The principal of the connection from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct WhoAmI {
    /// `operator`, `agent`, `stranger` or `anonymous`.
    pub(crate) principal: String,
    pub(crate) agent_id: Option<String>,
    pub(crate) mandate: Option<String>,
}

/// The result of a method that returns nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Done {
    pub(crate) ok: bool,
}

/// An error, in REST.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    pub(crate) error: ErrorInfo,
}

/// A code for programs, a sentence for people.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct ErrorInfo {
    pub(crate) code: String,
    pub(crate) message: String,
}
