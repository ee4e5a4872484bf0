//! Resolves the model of an agent to a provider client with limits.

use std::sync::Arc;

use tribune_providers::{ModelRef, Thinking, ThinkingForm};
use tribune_runtime::native::{ModelBinding, ModelResolver};
use tribune_runtime::{AgentId, ErrorKind, RuntimeError};

use super::providers::Providers;

/// Most tokens of a response, unless the model has a lower limit.
const MAX_OUTPUT_TOKENS: u32 = 16_384;

/// Thinking budget in tokens, for models that take one.
const THINKING_TOKENS: u32 = 8_192;

/// The models of this instance's configuration.
#[derive(Debug, Clone)]
pub struct ConfiguredModels {
    providers: Arc<Providers>,
}

impl ConfiguredModels {
    pub const fn new(providers: Arc<Providers>) -> Self {
        Self { providers }
    }
}

impl ModelResolver for ConfiguredModels {
    fn resolve(&self, agent: &AgentId, model: Option<&str>) -> Result<ModelBinding, RuntimeError> {
        let model: ModelRef = match model {
            Some(model) => {
                model.parse().map_err(|error| RuntimeError::new(ErrorKind::UnknownModel, format!("{error}")))?
            }
            None => self.providers.default_model().ok_or_else(|| {
                let what = format!(
                    "the agent `{agent}` has no model: name one in its line of data/agent-roster.jsonl, or set models.default in \
                     config.json5; `tribune models` lists them"
                );
                RuntimeError::new(ErrorKind::NoModel, what)
            })?,
        };
        let (provider, limits) = self.providers.resolve(&model)?;
        let client = provider
            .client()
            .map_err(|error| RuntimeError::new(ErrorKind::from_code(error.code()), error.to_string()))?
            .clone();
        let max_output_tokens = MAX_OUTPUT_TOKENS.min(limits.max_output_tokens);
        let thinking = match limits.thinking {
            ThinkingForm::NoParameter => None,
            ThinkingForm::Adaptive => Some(Thinking::Adaptive),
            // Thinking counts as output, and tokens must remain for the response.
            ThinkingForm::Budget => (max_output_tokens >= 2 * 1024)
                .then(|| Thinking::Budget(THINKING_TOKENS.min(max_output_tokens / 2))),
        };
        Ok(ModelBinding {
            client,
            model,
            limits,
            is_local: provider.config.is_local,
            max_output_tokens,
            thinking,
            keep_turns: self.providers.keep_turns(),
        })
    }
}
