//! Providers and models, and the results of provider checks.

use serde::Serialize;
use tribune_governance::models::{AgentModel, Check, ModelInfo, ModelInventory, ProviderInfo, Trial, Trials};
use utoipa::ToSchema;

/// `provider.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ModelInventory)]
pub(crate) struct InventoryView {
    /// The model of agents that name none: `provider:model`.
    pub(crate) default_model: Option<String>,
    /// By name.
    pub(crate) providers: Vec<ProviderView>,
    /// In the order of the roster.
    pub(crate) agents: Vec<AgentModelView>,
}

/// One provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ProviderInfo)]
pub(crate) struct ProviderView {
    pub(crate) provider: String,
    /// `anthropic`, `openai` or `openai_compatible`.
    pub(crate) dialect: String,
    pub(crate) base_url: String,
    /// The environment variable that holds its key; null if it needs none.
    pub(crate) key_env: Option<String>,
    /// Whether that variable is set.
    pub(crate) key_set: bool,
    /// Whether it runs on this machine.
    pub(crate) local: bool,
    pub(crate) enabled: bool,
    /// Whether config.json5 has an entry for it.
    pub(crate) configured: bool,
    /// `strict`, `warn` or `off`.
    pub(crate) startup_validation: String,
    /// By name.
    pub(crate) models: Vec<ModelView>,
}

/// One model, with its limits and features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ModelInfo)]
pub(crate) struct ModelView {
    /// `provider:model`.
    pub(crate) model: String,
    pub(crate) context_window: u32,
    pub(crate) max_output_tokens: u32,
    pub(crate) tools: bool,
    pub(crate) streaming: bool,
    pub(crate) images: bool,
    /// `off`, `budget` or `adaptive`.
    pub(crate) thinking: String,
    /// Whether it is the model of agents that name none.
    pub(crate) default: bool,
    /// The agents that use it.
    pub(crate) agents: Vec<String>,
}

/// The model of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AgentModel)]
pub(crate) struct AgentModelView {
    pub(crate) agent_id: String,
    /// The backend; `rehearsal` uses no model.
    pub(crate) backend: String,
    /// `provider:model`.
    pub(crate) model: Option<String>,
    /// Why the model cannot be used, as far as this is known without a new request.
    pub(crate) fault: Option<String>,
}

/// `provider.test`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Trials)]
pub(crate) struct ProviderTestView {
    /// Whether all checks passed. False if there was nothing to check.
    pub(crate) ok: bool,
    pub(crate) providers: Vec<ProviderTrial>,
}

/// The result for one provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Trial)]
pub(crate) struct ProviderTrial {
    pub(crate) provider: String,
    /// The model that was asked, as `provider:model`, if one is known.
    pub(crate) model: Option<String>,
    pub(crate) ok: bool,
    /// In the order in which they ran; none runs after a failed one.
    pub(crate) checks: Vec<CheckView>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Check)]
pub(crate) struct CheckView {
    /// `key`, `reach` or `model`.
    pub(crate) check: String,
    pub(crate) ok: bool,
    /// The finding, or what is wrong and what to do.
    pub(crate) message: String,
    /// Machine-readable code, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// Duration in milliseconds; absent if no request was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) took_ms: Option<u64>,
}

impl From<ModelInventory> for InventoryView {
    fn from(inventory: ModelInventory) -> Self {
        let ModelInventory { default_model, providers, agents } = inventory;
        Self {
            default_model,
            providers: providers.into_iter().map(ProviderView::from).collect(),
            agents: agents.into_iter().map(AgentModelView::from).collect(),
        }
    }
}

impl From<ProviderInfo> for ProviderView {
    fn from(info: ProviderInfo) -> Self {
        let ProviderInfo {
            provider,
            dialect,
            base_url,
            key_env,
            key_set,
            local,
            enabled,
            configured,
            startup_validation,
            models,
        } = info;
        Self {
            provider,
            dialect,
            base_url,
            key_env,
            key_set,
            local,
            enabled,
            configured,
            startup_validation,
            models: models.into_iter().map(ModelView::from).collect(),
        }
    }
}

impl From<ModelInfo> for ModelView {
    fn from(info: ModelInfo) -> Self {
        let ModelInfo {
            model,
            context_window,
            max_output_tokens,
            tools,
            streaming,
            images,
            thinking,
            default,
            agents,
        } = info;
        Self { model, context_window, max_output_tokens, tools, streaming, images, thinking, default, agents }
    }
}

impl From<AgentModel> for AgentModelView {
    fn from(agent: AgentModel) -> Self {
        let AgentModel { agent_id, backend, model, fault } = agent;
        Self { agent_id, backend, model, fault }
    }
}

impl From<Trials> for ProviderTestView {
    fn from(trials: Trials) -> Self {
        let Trials { ok, providers } = trials;
        Self { ok, providers: providers.into_iter().map(ProviderTrial::from).collect() }
    }
}

impl From<Trial> for ProviderTrial {
    fn from(trial: Trial) -> Self {
        let Trial { provider, model, ok, checks } = trial;
        Self { provider, model, ok, checks: checks.into_iter().map(CheckView::from).collect() }
    }
}

impl From<Check> for CheckView {
    fn from(check: Check) -> Self {
        let Check { check, ok, message, code, took_ms } = check;
        Self { check, ok, message, code, took_ms }
    }
}
