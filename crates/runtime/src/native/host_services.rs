//! What the host gives the loop in a turn: the prompt, the memory, the purse and the log.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::runtime::{Handle, RuntimeError};
use crate::tool::ToolCall;
use tribune_providers::{ModelRef, Said, TokenUsage};

/// One message that is remembered, with the turn it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// CID of the turn's entry.
    pub turn: String,
    pub said: Said,
}

/// What stands in place of the beginning of a conversation that has become too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// How many messages it stands for.
    pub messages: usize,
    /// The turns that they belong to, oldest first.
    pub turns: Vec<String>,
    pub said: Said,
}

/// One request to a model: what the log may know of it. No words of anyone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub model: ModelRef,
    /// Which round of the turn, from 1.
    pub round: u32,
    /// Tokens of the prompt at most, before it was sent.
    pub estimated: u64,
    /// Tokens that were kept free for the answer.
    pub reserved: u64,
    pub usage: TokenUsage,
    /// How far it came.
    pub came: Came,
    /// Until the first event, and until the last.
    pub first_ms: u64,
    pub all_ms: u64,
    /// How it ended: the model's word, or the code of the error.
    pub outcome: String,
}

/// How far a request came, for what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// It was not sent, or the provider refused it.
    Nowhere,
    /// It was sent, and not heard to the end: what the provider told of tokens is not all of them.
    Partway,
    /// The answer came to its end.
    Through,
}

/// The loop's host.
#[async_trait]
pub trait House: Send + Sync {
    /// The parts of the system prompt, in order. They are the same from turn to turn, so that a provider's cache holds.
    fn stack(&self) -> Vec<String>;

    /// What others wrote that the agent should know of, to be put before the user's words.
    fn note(&self) -> Option<String>;

    /// A text without the secrets in it. Everything that is sent to a model goes through this.
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str>;

    /// The same for every text of a value.
    fn redact_json(&self, value: &Value) -> Value;

    /// The conversation so far.
    async fn recall(&self) -> Result<Vec<Remembered>, RuntimeError>;

    /// Remembers what was said in this turn; returns when it is durable.
    async fn keep(&self, said: &[Said]) -> Result<(), RuntimeError>;

    /// Puts a summary in place of the beginning.
    async fn compact(&self, summary: &Summary) -> Result<(), RuntimeError>;

    /// Sets tokens aside before a request. An error ends the turn: there is no money left for it. A call has to be made
    /// first, and to succeed.
    async fn reserve(
        &self,
        model: &ModelRef,
        prompt: u64,
        answer: u64,
    ) -> Result<Option<ToolCall>, RuntimeError>;

    /// Tells what came of a request, whatever came of it.
    async fn asked(&self, asked: Asked);
}

/// Hands the services of a turn to the loop that runs it.
pub trait HostServicesSource: Send + Sync {
    /// The services of the turn that begins in this session. Each turn takes them once; `None` if no turn of the session is
    /// prepared.
    fn take(&self, session: &Handle) -> Option<Arc<dyn House>>;
}

/// A host that gives nothing and remembers nothing, for tests and for models that are scripted.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHouse;

impl HostServicesSource for NoHouse {
    fn take(&self, _: &Handle) -> Option<Arc<dyn House>> {
        Some(Arc::new(Self))
    }
}

#[async_trait]
impl House for NoHouse {
    fn stack(&self) -> Vec<String> {
        Vec::new()
    }

    fn note(&self) -> Option<String> {
        None
    }

    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }

    fn redact_json(&self, value: &Value) -> Value {
        value.clone()
    }

    async fn recall(&self) -> Result<Vec<Remembered>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn keep(&self, _: &[Said]) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn compact(&self, _: &Summary) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn reserve(&self, _: &ModelRef, _: u64, _: u64) -> Result<Option<ToolCall>, RuntimeError> {
        Ok(None)
    }

    async fn asked(&self, _: Asked) {}
}
