//! What the host gives the loop in a turn: the system prompt, the stored conversation, the budget and the request log.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::error::RuntimeError;
use crate::runtime::Handle;
use crate::tool::ToolCall;
use tribune_providers::{ChatMessage, ModelRef, TokenUsage};

/// One stored message, with the turn that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// CID of the turn's ledger entry.
    pub turn: String,
    pub message: ChatMessage,
}

/// The digest that stands for the beginning of a conversation that has become too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// How many messages it stands for.
    pub messages: usize,
    /// The turns of those messages, oldest first.
    pub turns: Vec<String>,
    pub digest: ChatMessage,
}

/// One request to a model, as far as a log may know it. It holds no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestStats {
    pub model: ModelRef,
    /// The round of the turn, from 1.
    pub round: u32,
    /// Tokens of the prompt at most, before it was sent.
    pub estimated: u64,
    /// Tokens that were kept free for the answer.
    pub reserved: u64,
    pub usage: TokenUsage,
    /// How much of the request and its answer went through.
    pub outcome: RequestOutcome,
    /// Milliseconds until the first event, and until the last.
    pub first_ms: u64,
    pub all_ms: u64,
    /// How it ended: the model's word, or the code of the error.
    pub ending: String,
}

/// How much of a request went through, for its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It was not sent, or the provider refused it.
    NotSent,
    /// It was sent, and the answer did not arrive whole: the reported tokens are not all of them.
    Partial,
    /// The whole answer arrived.
    Complete,
}

/// The host, as the loop sees it in one turn.
#[async_trait]
pub trait HostServices: Send + Sync {
    /// The parts of the system prompt, in order. They are the same from turn to turn, so that a provider's cache holds.
    fn system_prompt(&self) -> Vec<String>;

    /// Text of others that the agent should know of, placed before the user's message.
    fn context_note(&self) -> Option<String>;

    /// The text without its secrets. Everything that is sent to a model goes through this.
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str>;

    /// The same for every text of a value.
    fn redact_json(&self, value: &Value) -> Value;

    /// The conversation so far.
    async fn load_conversation(&self) -> Result<Vec<StoredMessage>, RuntimeError>;

    /// Stores messages of this turn; returns when they are durable.
    async fn store_messages(&self, said: &[ChatMessage]) -> Result<(), RuntimeError>;

    /// Replaces the beginning of the conversation by a digest.
    async fn store_compaction(&self, summary: &Compaction) -> Result<(), RuntimeError>;

    /// Reserves tokens before a request. An error ends the turn: the budget is used up. A returned call raises the
    /// limit: it has to be made, and to succeed, before the next attempt.
    async fn reserve_tokens(
        &self,
        model: &ModelRef,
        prompt: u64,
        answer: u64,
    ) -> Result<Option<ToolCall>, RuntimeError>;

    /// Records a request, whatever its outcome.
    async fn record_request(&self, asked: RequestStats);
}

/// Hands the services of a turn to the loop that runs it.
pub trait HostServicesSource: Send + Sync {
    /// The services of the turn that begins in this session. Each turn takes them once; `None` if no turn of the
    /// session is prepared.
    fn take(&self, session: &Handle) -> Option<Arc<dyn HostServices>>;
}

/// A host that gives nothing and stores nothing, for tests and for scripted models.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHostServices;

impl HostServicesSource for NoHostServices {
    fn take(&self, _: &Handle) -> Option<Arc<dyn HostServices>> {
        Some(Arc::new(Self))
    }
}

#[async_trait]
impl HostServices for NoHostServices {
    fn system_prompt(&self) -> Vec<String> {
        Vec::new()
    }

    fn context_note(&self) -> Option<String> {
        None
    }

    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }

    fn redact_json(&self, value: &Value) -> Value {
        value.clone()
    }

    async fn load_conversation(&self) -> Result<Vec<StoredMessage>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn store_messages(&self, _: &[ChatMessage]) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn store_compaction(&self, _: &Compaction) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn reserve_tokens(&self, _: &ModelRef, _: u64, _: u64) -> Result<Option<ToolCall>, RuntimeError> {
        Ok(None)
    }

    async fn record_request(&self, _: RequestStats) {}
}
