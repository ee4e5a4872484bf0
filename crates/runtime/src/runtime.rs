//! The trait that every backend implements, and what a turn gets from its host.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tokio_util::sync::CancellationToken;

use crate::content::{ContentBlock, Message};
use crate::event::RuntimeEvent;
use crate::session::{AgentId, CloseReason, SessionKey, SessionMode, SessionStatus};
use crate::toolbox::Toolbox;

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
    /// Fires when the turn is to end.
    pub cancel: CancellationToken,
}

impl fmt::Debug for TurnInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Content and prompt never reach a log.
        f.debug_struct("TurnInput").field("blocks", &self.content.len()).finish_non_exhaustive()
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
