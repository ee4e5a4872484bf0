//! The model that an agent talks to.

use std::fmt;

use crate::error::RuntimeError;
use crate::session::AgentId;
use tribune_providers::{ModelLimits, ModelRef, ProviderClient, Thinking};

/// A model, ready for requests.
#[derive(Clone)]
pub struct ModelBinding {
    pub client: ProviderClient,
    pub model: ModelRef,
    pub limits: ModelLimits,
    /// Whether it runs on this machine.
    pub is_local: bool,
    /// Tokens that an answer may have.
    pub max_output_tokens: u32,
    pub thinking: Option<Thinking>,
    /// Turns of a conversation that compaction keeps whole.
    pub keep_turns: usize,
}

impl fmt::Debug for ModelBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelBinding({})", self.model)
    }
}

/// Finds the model of an agent. No other model stands in for one that is not configured.
pub trait ModelResolver: Send + Sync {
    /// `model` is `provider:model`; without one, the configured default.
    fn resolve(&self, agent: &AgentId, model: Option<&str>) -> Result<ModelBinding, RuntimeError>;
}
