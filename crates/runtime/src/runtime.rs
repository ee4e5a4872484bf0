//! The trait that every backend implements, and the input that a turn gets from its host.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tokio_util::sync::CancellationToken;

use crate::content::{ContentBlock, Message};
use crate::error::RuntimeError;
use crate::event::RuntimeEvent;
use crate::session::{AgentId, CloseReason, SessionKey, SessionStatus};
use crate::session_terms::SessionTerms;
use crate::toolbox::Toolbox;

/// The events of a turn. An `Err` ends it.
pub type EventStream = BoxStream<'static, Result<RuntimeEvent, RuntimeError>>;

/// The side effects that a turn has, or asks another machine or process for, besides its toolbox calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideEffects {
    /// None.
    None,
    /// Only after the backend has called the host, which answers when everything before is durable.
    AfterRecord,
    /// At any time.
    Unbounded,
}

/// Runs turns. Every implementation can be governed; a session cannot tell a governed backend from a bare one.
#[async_trait]
pub trait AgentRuntime: Send + Sync {
    /// Opens the session; an open session stays as it is.
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError>;

    /// Runs one turn. The stream ends after its `done` event; dropping it ends the turn.
    ///
    /// A backend numbers its events from 1 in each turn; the governance layer renumbers them within the session.
    fn run_turn(&self, handle: &Handle, input: TurnInput) -> EventStream;

    /// The side effects of a turn besides its toolbox calls. The beginning of the turn is durable before the first of
    /// them.
    fn side_effects(&self) -> SideEffects {
        SideEffects::Unbounded
    }

    /// Whether its turns begin with Tribune's system prompt, which the output must not disclose.
    fn has_system_prompt(&self) -> bool {
        false
    }

    /// What is known of whether the gate holds the session's agent, in words for people; `None` for a backend that
    /// nothing probes.
    fn gate_status(&self, _: &Handle) -> Option<String> {
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

    fn side_effects(&self) -> SideEffects {
        (**self).side_effects()
    }

    fn has_system_prompt(&self) -> bool {
        (**self).has_system_prompt()
    }

    fn gate_status(&self, handle: &Handle) -> Option<String> {
        (**self).gate_status(handle)
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

/// An open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    pub key: Arc<SessionKey>,
    /// BLAKE3 of agent id, key and creation time, in hex.
    pub session_id: Arc<str>,
}

/// The session to open, with its terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInput {
    pub key: SessionKey,
    pub terms: SessionTerms,
    /// The principal that opened it, for the ledger.
    pub opened_by: String,
    /// For a sub-agent: its parent.
    pub lineage: Option<Lineage>,
}

/// What a sub-agent inherits from the session that spawned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    pub parent: SessionKey,
    /// The only tools that it may use, if they were restricted.
    pub tools: Option<Vec<String>>,
}

impl SessionInput {
    pub const fn agent(&self) -> &AgentId {
        self.key.agent()
    }
}

/// The author of a turn's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The owner of this instance.
    Owner,
    /// A registered agent of this instance.
    Agent,
    /// An authenticated caller that is neither.
    Guest,
    /// A schedule: the text was stored earlier and is due.
    Schedule,
}

/// The input of a turn.
#[derive(Clone)]
pub struct TurnInput {
    /// The user's message.
    pub content: Vec<ContentBlock>,
    pub speaker: Speaker,
    /// The id of the schedule that stored the text, if one did.
    pub schedule_id: Option<String>,
    /// The system prompt. It is never shown.
    pub system: String,
    /// Mailbox messages that come before the user's message.
    pub injected_messages: Vec<Message>,
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
