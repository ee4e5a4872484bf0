//! The trait that every backend implements, and what a turn gets from its host.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::content::{ContentBlock, Message};
use crate::event::RuntimeEvent;
use crate::native::House;
use crate::session::{AgentId, CloseReason, SessionKey, SessionMode, SessionStatus};
use crate::terminal::Terminal;

/// The events of a turn. An `Err` ends it.
pub type EventStream = BoxStream<'static, Result<RuntimeEvent, RuntimeError>>;

/// How a turn touches the world, or asks another machine or process to, in other ways than its toolbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Not at all.
    Inside,
    /// Only after it has asked the house, which answers when everything before is on record.
    Recorded,
    /// As it likes.
    Free,
}

/// Runs turns. Whatever implements this can be governed, and a session cannot tell the governed from the bare one.
#[async_trait]
pub trait AgentRuntime: Send + Sync {
    /// Opens the session, or finds it open.
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError>;

    /// Runs one turn. The stream ends after its `done` event; dropping it ends the turn.
    ///
    /// A backend numbers its events from 1 in each turn; whoever records them gives them their number in the session.
    fn run_turn(&self, handle: &Handle, input: TurnInput) -> EventStream;

    /// How a turn touches the world beside its toolbox. Before it does, it is on record that it began.
    fn reach(&self) -> Reach {
        Reach::Free
    }

    /// Whether its turns begin with the house's own instructions, which it must not disclose.
    fn is_instructed(&self) -> bool {
        false
    }

    /// What is known of whether the gate holds the session's agent, in words for people; `None` where nobody looks.
    fn gate_of(&self, _: &Handle) -> Option<String> {
        None
    }

    /// Asks the running turn to end. It ends with `done` and stop reason `cancelled`.
    async fn cancel(&self, handle: &Handle) -> Result<(), RuntimeError>;

    async fn close(&self, handle: &Handle, reason: CloseReason) -> Result<(), RuntimeError>;

    async fn status(&self, handle: &Handle) -> Result<SessionStatus, RuntimeError>;
}

#[async_trait]
impl<R: AgentRuntime + ?Sized> AgentRuntime for Arc<R> {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        (**self).ensure_session(input).await
    }

    fn run_turn(&self, handle: &Handle, input: TurnInput) -> EventStream {
        (**self).run_turn(handle, input)
    }

    fn reach(&self) -> Reach {
        (**self).reach()
    }

    fn is_instructed(&self) -> bool {
        (**self).is_instructed()
    }

    fn gate_of(&self, handle: &Handle) -> Option<String> {
        (**self).gate_of(handle)
    }

    async fn cancel(&self, handle: &Handle) -> Result<(), RuntimeError> {
        (**self).cancel(handle).await
    }

    async fn close(&self, handle: &Handle, reason: CloseReason) -> Result<(), RuntimeError> {
        (**self).close(handle, reason).await
    }

    async fn status(&self, handle: &Handle) -> Result<SessionStatus, RuntimeError> {
        (**self).status(handle).await
    }
}

/// An open session, in the hands of whoever runs turns in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    pub key: Arc<SessionKey>,
    /// BLAKE3 of agent id, key and creation time, in hex.
    pub session_id: Arc<str>,
}

/// Which session to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInput {
    pub key: SessionKey,
    pub mode: SessionMode,
    pub backend: String,
    pub model: Option<String>,
    /// The key the agent proved, if it did.
    pub pubkey: Option<String>,
    /// Name of the mandate it acts under.
    pub mandate: String,
    /// Who opened it, for the record.
    pub opened_by: String,
    /// For a sub-agent: where it comes from.
    pub lineage: Option<Lineage>,
    /// The folder of the operator's that it works in, instead of its agent's own workspace.
    pub workspace: Option<String>,
    /// Further folders of the operator's that it has beside that.
    pub further: Vec<String>,
}

/// What a sub-agent has from whoever started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    pub parent: SessionKey,
    /// The only tools it may use, if it was told so.
    pub tools: Option<Vec<String>>,
}

impl SessionInput {
    pub const fn agent(&self) -> &AgentId {
        self.key.agent()
    }
}

/// Who speaks in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The owner of the house.
    Owner,
    /// An agent of the house.
    Agent,
    /// Someone who was let in and is not known further.
    Guest,
    /// Nobody: the words were stored before, and their time has come.
    Schedule,
}

/// What a turn begins with.
#[derive(Clone)]
pub struct TurnInput {
    /// What the user says.
    pub content: Vec<ContentBlock>,
    pub speaker: Speaker,
    /// The name of what the words were stored under, if they were.
    pub stored_as: Option<String>,
    /// The system prompt. Never shown to anyone.
    pub system: String,
    /// Messages that stand before the user's.
    pub preceding: Vec<Message>,
    /// The only way to act on the world.
    pub tools: Arc<dyn Toolbox>,
    /// What the host gives to Tribune's own loop.
    pub house: Arc<dyn House>,
    /// Fires when the turn is to end.
    pub cancel: CancellationToken,
}

impl fmt::Debug for TurnInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Content and prompt never reach a log.
        f.debug_struct("TurnInput").field("blocks", &self.content.len()).finish_non_exhaustive()
    }
}

/// The tools of a turn. A call passes the gate, is written down, run if it may, and its result written down; the
/// events of all that appear in the turn's stream by themselves.
#[async_trait]
pub trait Toolbox: Send + Sync {
    /// What the agent may be told about.
    fn tools(&self) -> &[ToolSpec];

    /// Asks for one call. A denial comes back as an error result that the model can explain.
    async fn call(&self, call: ToolCall) -> ToolOutcome;

    /// Asks leave for a call that the agent behind the backend carries out itself. It is judged, written down and perhaps
    /// parked like any other; only whoever got leave may go on.
    async fn ask_leave(&self, call: OwnCall) -> Leave;

    /// Has the house carry out a call that leave was given for, exactly as it was asked for: for agents that ask first and
    /// then want it done for them.
    async fn carry_out(&self, call_id: &str) -> ToolOutcome;

    /// Has the house run a command that is followed while it runs, and returns when what came of it is on record. It is judged and
    /// written down like any other call; what is seen of it before its end counts as learned when it begins.
    async fn follow(&self, _errand: Errand, _terminal: Arc<Terminal>) -> ToolOutcome {
        ToolOutcome::error("no commands are run here for others to follow: this one was not started")
    }

    /// Tells what came of a call that leave was given for. What nobody got leave for is not listened to.
    async fn report(&self, call_id: &str, outcome: ToolOutcome);
}

/// What the house is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Errand {
    /// A call that nobody has decided about.
    Call(ToolCall),
    /// The call of this id, exactly as leave was given for it.
    Allowed(String),
}

impl Errand {
    /// The id that it has in the record.
    pub fn id(&self) -> &str {
        match self {
            Self::Call(call) => &call.id,
            Self::Allowed(id) => id,
        }
    }
}

/// A call that an agent carries out with its own hands.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnCall {
    /// In the house's words, which the law knows.
    pub call: ToolCall,
    /// In the agent's own, byte by byte as they came.
    pub said: String,
    pub when: When,
}

/// How a call that an agent carries out itself comes to be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The agent waits for the answer.
    Before,
    /// The agent is at it already, so that nobody can be asked first: what does not go without asking is refused.
    Underway,
}

/// Whether an agent may go on with a call of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leave {
    Given,
    /// Why not, in words that a model can pass on.
    Refused(String),
}

/// A tool as an agent is told of it.
#[derive(Debug, Clone, PartialEq, Hash, Serialize, Deserialize)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON schema of the input.
    pub input_schema: Value,
}

/// A call an agent wants to make.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Unique within the turn.
    pub id: String,
    pub name: String,
    pub input: Value,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    pub content: String,
    pub is_error: bool,
}

impl ToolOutcome {
    pub fn good(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: false }
    }

    pub fn error(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: true }
    }
}

/// Why a turn or a session could not go on. The message may be shown to the peer; it holds no content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuntimeError {
    /// One word for programs, such as `interrupted`.
    pub code: String,
    pub message: String,
}

impl RuntimeError {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}
