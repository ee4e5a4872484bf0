//! What crosses the gateway: parameters and results of every method, for RPC and REST alike. Unknown members are
//! refused, so that nobody believes to have asked for something that was ignored.

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
    /// `provider:model`, for operators: talk to this model instead of the agent's own. A session that is open with another is
    /// opened anew; what was said in it stays.
    pub model: Option<String>,
    /// For operators: a folder of this machine, by its whole path, that the session works in instead of its agent's workspace. A
    /// session that is open elsewhere is opened anew; what was said in it stays.
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
    /// Only keys behind this one: the `next` of the page before.
    pub after: Option<String>,
    /// At most this many; 100 if not given, at most 1,000.
    pub limit: Option<usize>,
}

/// `session.events`: goes on with a session's events behind a place.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionEvents {
    pub session_key: String,
    /// The last `seq` that was received. Without it: from the oldest event that is kept.
    pub after: Option<u64>,
    /// Go on with events as they come, as `session.event` notifications. Without it: one page.
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
    /// Answer at the turn's end, with its events as notifications before. With `false`: answer when the input is durable.
    #[serde(default = "yes")]
    pub wait: bool,
}

/// What a turn begins with.
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
    /// Under which the ledger and the vault know it; stays when the session is closed and opened again.
    pub session_id: String,
    pub agent_id: String,
    /// What runs its turns.
    pub backend: String,
    pub model: Option<String>,
    pub mode: String,
    /// `idle`, `running`, `cancelled` or `closed`.
    pub state: String,
    /// What it may do.
    pub mandate: String,
    /// The folder of the operator's that it works in, if it is not in its agent's own workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Further folders of the operator's that it has beside that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub further_folders: Vec<String>,
    /// How far everything that it has read may be believed: `owner`, `verified`, `community` or `untrusted`.
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
    /// The newest of what an agent of another make said on its standard error. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_stderr: Option<String>,
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
    /// CID of the entry that says so.
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

/// A turn that was run, or with `wait: false` one that runs.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TurnResult {
    pub session_key: String,
    /// CID of the turn.
    pub turn: String,
    /// Number of its first event.
    pub first_seq: u64,
    /// The rest once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<u64>,
    /// `end_turn`, `max_tokens`, `refusal`, `cancelled`, `interrupted` or `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Usage>)]
    pub usage: Option<tribune_runtime::Usage>,
}

/// A turn as the log has it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TurnInfo {
    /// CID of the turn.
    pub turn: String,
    /// Its place in the session's history in the ledger.
    pub seq: u64,
    /// CID of the turn before.
    pub prev_cid: Option<String>,
    /// The commitments to what was said, in the ledger.
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

/// A message: what the log has of it, and the words from the vault.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MessageInfo {
    pub cid: String,
    pub turn: Option<String>,
    pub seq: u64,
    /// `user`, `assistant`, `tool_call`, `tool` or `mailbox`.
    pub role: String,
    /// The tool or the letter.
    pub name: Option<String>,
    pub at: String,
    /// The commitment in the ledger.
    pub hash: String,
    /// The words, without the secrets in them; null if they were shredded.
    #[schema(value_type = Option<Object>)]
    pub content: Option<Value>,
}

impl MessageInfo {
    /// A message with its words, without the secrets in them.
    pub(super) fn new(row: MessageRow, words: Option<Vec<u8>>, redactor: &Redactor) -> Self {
        let content = words.and_then(|words| serde_json::from_slice(&words).ok());
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

/// How many of the newest.
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
    /// Its place in the log, its CID, or the CID's first digits.
    pub entry: String,
}

/// An entry and its place.
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
    /// Whose history they belong to; not a session's.
    pub entity: String,
    #[serde(default)]
    pub tags: Vec<String>,
    /// CIDs. Empty: what `after_head` says.
    #[serde(default)]
    pub parents: Vec<String>,
    /// Without parents: follow from the entity's newest entry.
    #[serde(default)]
    pub after_head: bool,
}

/// Where notes ended up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NotesWritten {
    pub written: Vec<Written>,
}

/// Where an entry ended up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Written {
    pub index: u64,
    pub cid: String,
    pub seq: u64,
}

/// An agent of the roster, or one that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AgentInfo {
    pub agent_id: String,
    pub name: Option<String>,
    /// Absent for a stranger.
    pub backend: Option<String>,
    /// How an agent of another make is run.
    pub profile: Option<String>,
    pub model: Option<String>,
    pub mandate: String,
    /// `ask`, `approve-all`, `approve-reads` or `deny-all`; absent where the roster says nothing.
    pub mode: Option<String>,
    /// What the mandate allows.
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
    /// What one of its agents did unasked was looked at: if the gate holds it now, it is run again, also where no canary tries
    /// that. Where no canary can be tried at all and `canary.untried` names it, this word is enough.
    #[serde(default)]
    pub clear_mark: bool,
}

/// `agent.add`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentAdd {
    /// Lowercase letters, digits, `-` and `_`.
    pub agent_id: String,
    /// What people call it.
    pub name: Option<String>,
    /// Without it: that of the profile if one is named, `native` if a model is, else `rehearsal`.
    pub backend: Option<String>,
    /// How an agent of another make is run, for the backends `acp` and `claude_code`.
    #[serde(default)]
    pub profile: Option<String>,
    /// `provider:model`, for the backends `native`, `acp` and `claude_code`.
    pub model: Option<String>,
    /// Without it: `default`.
    pub mandate: Option<String>,
    /// How far it is let go within its mandate: `ask`, `approve-all`, `approve-reads` or `deny-all`.
    #[serde(default)]
    pub mode: Option<String>,
    /// Whether its session is open before the first connection is taken, from the next start on.
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
    /// What the last start found unfinished.
    pub recovered_turns: u64,
    pub recovered_calls: u64,
    /// Sessions that were to be forgotten, and are now.
    pub recovered_forgets: u64,
    /// Whether the gate holds the backends of the roster.
    pub canaries: Vec<CanaryInfo>,
}

/// How the canary of a backend, or of a profile, stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CanaryInfo {
    pub backend: String,
    /// The profile, or the backend once more.
    pub subject: String,
    /// The agents of the roster that it stands for.
    pub agents: Vec<String>,
    /// `live`; `ungoverned` or `not_tried`, which are not run; `untried`, which is, because `canary.untried` names it; `waiting`,
    /// `running`; or `off`.
    pub state: String,
    /// What was not stopped, or why it was not tried.
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
    /// What was not stopped, or why it was not tried.
    pub detail: Option<String>,
    /// What one of its agents did unasked and still stands against it.
    pub mark: Option<String>,
    /// Why such a mark went with this call: `tried`, `looked_at`, or `looked_at_untried` for a word that no canary is behind.
    pub cleared: Option<String>,
    /// Whether its agents are run though nobody could try them: `canary.untried` names them, or `canary.every` is off.
    pub excepted: bool,
    pub steps: Vec<TestStep>,
    pub took_ms: u64,
    /// Where its calls and their verdicts are.
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
    /// The log's name: a signature made for one daemon is of no use at another.
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

/// Who the connection is from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WhoAmI {
    /// `operator`, `agent`, `stranger` or `anonymous`.
    pub principal: String,
    pub agent_id: Option<String>,
    pub mandate: Option<String>,
}

/// Nothing more to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Done {
    pub ok: bool,
}

/// An error, in REST.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorInfo,
}

/// One word for programs, one sentence for people.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ErrorInfo {
    pub code: String,
    pub message: String,
}
