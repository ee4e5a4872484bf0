//! Wire types of the gateway: parameters and results of every method, for JSON-RPC and REST alike. Unknown members are
//! refused, so that a misspelled option is an error and not silently ignored.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_redact::Redactor;
use tribune_runtime::ContentBlock;
use tribune_storage::store::{Heartbeat, MessageRow, SessionRow, StoredEntry, TurnRow};
use utoipa::ToSchema;

use super::schema;

/// `session.init`: opens a session, or finds it open.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionInit {
    /// `agent:AGENT:CHANNEL:ACCOUNT:dm:PEER`. Without it, the caller's own session with `agent_id`.
    pub session_key: Option<String>,
    /// Without it and without a key: `main`.
    pub agent_id: Option<String>,
    /// `persistent`, `domain` or `oneshot`. Without it a session keeps its mode, and a new one is `domain`.
    pub mode: Option<String>,
    /// `provider:model`, for the operator: use this model instead of the agent's own. A session that is open with another
    /// model is reopened; its conversation stays.
    pub model: Option<String>,
    /// For the operator: the absolute path of a folder on this machine that the session works in instead of its agent's
    /// workspace. A session that is open elsewhere is reopened; its conversation stays.
    pub workspace: Option<String>,
}

/// Names one session.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionRef {
    /// `agent:AGENT:CHANNEL:ACCOUNT:dm:PEER`.
    pub session_key: String,
}

/// `session.list`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SessionList {
    /// Only sessions of this agent.
    pub agent_id: Option<String>,
    /// Only sessions in this state: `idle`, `running`, `cancelled` or `closed`.
    pub state: Option<String>,
    /// Only keys after this one: the `next` of the previous page.
    pub after: Option<String>,
    /// At most this many; 100 if not given, at most 1,000.
    pub limit: Option<usize>,
}

/// `session.events`: reads a session's events after a given one.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionEvents {
    pub session_key: String,
    /// The last `seq` that was received. Without it: from the oldest event that is kept.
    pub after: Option<u64>,
    /// Also send new events as they come, as `session.event` notifications. With `false`: one page.
    #[serde(default = "yes")]
    pub follow: bool,
    /// Events on one page; 1,000 if not given, which is the most.
    pub limit: Option<usize>,
}

const fn yes() -> bool {
    true
}

/// `session.unfollow`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Unfollow {
    pub subscription: u64,
}

/// `turn.run`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnRun {
    pub session_key: String,
    pub input: TurnContent,
    /// Answer at the turn's end, after its events as notifications. With `false`: answer when the input is durable.
    #[serde(default = "yes")]
    pub wait: bool,
}

/// The input of a turn.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnContent {
    /// Content blocks: text, image, audio, resource.
    #[schema(value_type = Vec<schema::Content>)]
    pub content: Vec<ContentBlock>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SessionInfo {
    pub session_key: String,
    /// Its id in the ledger and the vault; stays the same when the session is closed and reopened.
    pub session_id: String,
    pub agent_id: String,
    /// The backend that runs its turns.
    pub backend: String,
    pub model: Option<String>,
    pub mode: String,
    /// `idle`, `running`, `cancelled` or `closed`.
    pub state: String,
    /// The mandate that says what it may do.
    pub mandate: String,
    /// The operator's folder that it works in, if that is not its agent's own workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Additional folders of the operator that it may use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further_folders: Vec<String>,
    /// The least trusted source of anything in its context: `owner`, `verified`, `community` or `untrusted`.
    pub trust: String,
    /// Whether it has read private data.
    pub private: bool,
    pub created_at: String,
    pub last_activity: String,
    /// Why it was closed: `requested`, `evicted` or `finished`.
    pub closed_for: Option<String>,
    pub turns: u64,
    /// CID of the newest turn.
    pub last_turn: Option<String>,
    /// Number of the newest event. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<u64>,
    /// The newest standard error output of a CLI agent. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_stderr: Option<String>,
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

/// A page of sessions.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SessionPage {
    pub sessions: Vec<SessionInfo>,
    /// Give this as `after` for the next page; absent on the last.
    pub next: Option<String>,
}

/// `session.cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Cancelled {
    /// Whether a turn was running. It ends with `done` and stop reason `cancelled`.
    pub cancelled: bool,
}

/// `session.forget`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Forgotten {
    /// CID of the entry that records it.
    pub cid: String,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EventPage {
    #[schema(value_type = Vec<schema::Event>)]
    pub events: Vec<Value>,
    /// Number of the session's newest event.
    pub last_seq: u64,
}

/// `session.events` with `follow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Following {
    pub subscription: u64,
    pub last_seq: u64,
}

/// A turn that has ended, or with `wait: false` one that runs.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TurnResult {
    pub session_key: String,
    /// CID of the turn.
    pub turn: String,
    /// Number of its first event.
    pub first_seq: u64,
    /// Number of its last event. This and the members below are present once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<u64>,
    /// `end_turn`, `max_tokens`, `refusal`, `cancelled`, `interrupted` or `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Usage>)]
    pub usage: Option<tribune_runtime::Usage>,
}

/// A turn as the ledger records it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TurnInfo {
    /// CID of the turn.
    pub turn: String,
    /// Its place in the session's history in the ledger.
    pub seq: u64,
    /// CID of the turn before.
    pub prev_cid: Option<String>,
    /// The commitments to input and output, in the ledger.
    pub input_hash: String,
    pub output_hash: Option<String>,
    /// Null while the turn runs.
    pub stop_reason: Option<String>,
    #[schema(value_type = Option<schema::Usage>)]
    pub usage: Option<Value>,
    pub started_at: String,
    pub completed_at: Option<String>,
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
pub struct MessageInfo {
    pub cid: String,
    pub turn: Option<String>,
    pub seq: u64,
    /// `user`, `assistant`, `tool_call`, `tool` or `mailbox`.
    pub role: String,
    /// The name of the tool or of the mailbox message.
    pub name: Option<String>,
    pub at: String,
    /// The commitment in the ledger.
    pub hash: String,
    /// The content, with secrets redacted; null if it was shredded.
    #[schema(value_type = Option<Object>)]
    pub content: Option<Value>,
}

impl MessageInfo {
    /// A message with its content, with secrets redacted.
    pub(super) fn new(row: MessageRow, content: Option<Vec<u8>>, redactor: &Redactor) -> Self {
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
pub struct Newest {
    /// At most this many; 100 if not given, at most 1,000.
    pub limit: Option<usize>,
}

/// `session.turns` and `session.history`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionNewest {
    pub session_key: String,
    pub limit: Option<usize>,
}

/// Turns, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Turns {
    pub turns: Vec<TurnInfo>,
}

/// Messages, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct History {
    pub messages: Vec<MessageInfo>,
}

/// `ledger.tail`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LedgerTail {
    /// Only entries of this entity.
    pub entity_id: Option<String>,
    /// Only entries of this kind.
    pub quality: Option<String>,
    /// At most this many; 100 if not given, at most 1,000.
    pub limit: Option<usize>,
}

/// `ledger.entry` and `ledger.prove`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryName {
    /// Its index in the log, its CID, or the CID's first digits.
    pub entry: String,
}

/// An entry and its index in the log.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EntryInfo {
    pub index: u64,
    #[schema(value_type = schema::Entry)]
    pub entry: Value,
}

impl EntryInfo {
    pub(super) fn new(stored: &StoredEntry) -> Self {
        let mut line = Vec::new();
        stored.entry.write_line(&mut line);
        Self { index: stored.index, entry: serde_json::from_slice(&line).unwrap_or(Value::Null) }
    }
}

/// Entries, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Entries {
    pub entries: Vec<EntryInfo>,
}

/// The newest signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CheckpointInfo {
    pub origin: String,
    pub size: u64,
    pub root: String,
    /// The signed note.
    pub note: String,
}

/// `ledger.note`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoteWrite {
    /// 1 to 100 notes of 1 to 8,192 bytes.
    pub texts: Vec<String>,
    /// The entity whose history they belong to; not a session.
    pub entity: String,
    #[serde(default)]
    pub tags: Vec<String>,
    /// CIDs. If empty, `after_head` decides.
    #[serde(default)]
    pub parents: Vec<String>,
    /// Without parents: use the entity's newest entry as the parent.
    #[serde(default)]
    pub after_head: bool,
}

/// Where the notes were written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NotesWritten {
    pub written: Vec<Written>,
}

/// Where an entry was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Written {
    pub index: u64,
    pub cid: String,
    pub seq: u64,
}

/// An agent of the roster, or an unregistered one that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AgentInfo {
    pub agent_id: String,
    pub name: Option<String>,
    /// Absent for an unregistered agent.
    pub backend: Option<String>,
    /// The profile that a CLI agent runs with.
    pub profile: Option<String>,
    pub model: Option<String>,
    pub mandate: String,
    /// `ask`, `approve-all`, `approve-reads` or `deny-all`; absent if the roster does not set it.
    pub mode: Option<String>,
    /// The tools that the mandate allows.
    pub tools: Vec<String>,
    pub standing: bool,
    pub pubkey: Option<String>,
    pub rostered: bool,
    pub last_seen: Option<String>,
    pub sessions: u64,
    pub turns: u64,
}

impl AgentInfo {
    pub(super) fn seen(mut self, heartbeat: &Heartbeat) -> Self {
        self.last_seen = Some(heartbeat.last_seen.clone());
        self.sessions = heartbeat.sessions;
        self.turns = heartbeat.turns;
        self
    }
}

/// All agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AgentList {
    pub agents: Vec<AgentInfo>,
}

/// `agent.show`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentRef {
    pub agent_id: String,
}

/// `agent.test`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentTest {
    pub agent_id: String,
    /// The operator has reviewed an action that an agent of this backend or profile executed without permission. If the canary
    /// passes now, its agents run again, even if no probe covers that action. If no canary can be run and `canary.untried`
    /// names the backend or profile, this flag alone is enough.
    #[serde(default)]
    pub clear_mark: bool,
}

/// `agent.add`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentAdd {
    /// Lowercase letters, digits, `-` and `_`.
    pub agent_id: String,
    /// A display name.
    pub name: Option<String>,
    /// Without it: the profile's backend if a profile is given, `native` if a model is given, else `rehearsal`.
    pub backend: Option<String>,
    /// The profile that a CLI agent runs with, for the backends `acp` and `claude_code`.
    #[serde(default)]
    pub profile: Option<String>,
    /// `provider:model`, for the backends `native`, `acp` and `claude_code`.
    pub model: Option<String>,
    /// Without it: `default`.
    pub mandate: Option<String>,
    /// How calls within its mandate are approved: `ask`, `approve-all`, `approve-reads` or `deny-all`.
    #[serde(default)]
    pub mode: Option<String>,
    /// Whether its session is opened before the daemon accepts connections, from the next start on.
    #[serde(default)]
    pub standing: bool,
    /// `ed25519:` and 64 hex digits.
    pub pubkey: Option<String>,
}

/// `daemon.status`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct DaemonStatus {
    pub version: String,
    pub pid: u32,
    pub address: String,
    pub home: String,
    pub started_at: String,
    pub ready: bool,
    /// What is not ready, by name.
    pub waiting: Vec<String>,
    pub constitution_hash: String,
    pub mandates: Vec<String>,
    pub backends: Vec<String>,
    /// The log's name.
    pub log: String,
    /// Entries in the log.
    pub entries: u64,
    pub sessions_open: usize,
    pub sessions_loaded: usize,
    pub connections: usize,
    /// Turns that the last start found unfinished; `recovered_calls` counts unfinished calls.
    pub recovered_turns: u64,
    pub recovered_calls: u64,
    /// Sessions whose interrupted `session.forget` the last start completed.
    pub recovered_forgets: u64,
    /// The state of the canaries: whether the gate holds the backends of the roster.
    pub canaries: Vec<CanaryInfo>,
}

/// The state of the canary of a backend or of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CanaryInfo {
    pub backend: String,
    /// The profile, or the backend again if there is none.
    pub subject: String,
    /// The agents of the roster that it covers.
    pub agents: Vec<String>,
    /// `live`; `ungoverned` or `not_tried`, whose agents do not run; `untried`, whose agents run because `canary.untried` names
    /// it; `waiting` or `running`, while the test is due or under way; or `off`.
    pub state: String,
    /// The action that was not stopped, or why it was not tried.
    pub detail: Option<String>,
    /// When it was last tried.
    pub at: Option<String>,
    pub took_ms: Option<u64>,
}

/// `agent.test`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AgentTested {
    pub agent_id: String,
    /// `live`, `not_stopped` or `not_tried`.
    pub outcome: String,
    /// The action that was not stopped, or why it was not tried.
    pub detail: Option<String>,
    /// An action that an agent of this backend or profile executed without permission, until it is cleared.
    pub mark: Option<String>,
    /// Why this call cleared such a mark: `tried`, `looked_at`, or `looked_at_untried` if no canary confirms it.
    pub cleared: Option<String>,
    /// Whether its agents run although the canary could not be tried: `canary.untried` names it, or `canary.every` is off.
    pub excepted: bool,
    pub steps: Vec<TestStep>,
    pub took_ms: u64,
    /// The session that holds its calls and their verdicts.
    pub session_key: Option<String>,
}

/// A step of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct TestStep {
    pub step: String,
    pub ok: bool,
    pub took_ms: u64,
    pub detail: Option<String>,
}

/// `auth.token`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthToken {
    pub token: String,
}

impl std::fmt::Debug for AuthToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthToken(…)")
    }
}

/// `auth.challenge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Challenge {
    pub nonce: String,
    /// The log's name: a signature made for one daemon is invalid at another.
    pub audience: String,
}

/// `auth.agent`: the signature is Ed25519 over `tribune/agent-auth/v1\nAUDIENCE\nNONCE\nPUBLIC_KEY\n`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthAgent {
    /// `ed25519:` and 64 hex digits.
    pub public_key: String,
    /// 128 hex digits.
    pub signature: String,
}

/// The principal of the connection from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WhoAmI {
    /// `operator`, `agent`, `stranger` or `anonymous`.
    pub principal: String,
    pub agent_id: Option<String>,
    pub mandate: Option<String>,
}

/// The result of a method that returns nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Done {
    pub ok: bool,
}

/// An error, in REST.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorInfo,
}

/// A code for programs, a sentence for people.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ErrorInfo {
    pub code: String,
    pub message: String,
}
