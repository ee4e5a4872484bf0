//! The model inventory: providers, their models, and which agent uses which. It is built without any request, so it costs
//! nothing and works without a daemon; faults known from earlier requests are included. Of a key it says only whether it is
//! set.

use serde::Serialize;
use tribune_providers::{ModelLimits, ModelRef, ProviderError, ThinkingForm};
use tribune_registry::RosterAgent;
use tribune_runtime::native;

use tribune_config::models::dialect_name;

use super::providers::{Provider, Providers};

/// `provider.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelInventory {
    /// The model of agents that name none: `provider:model`.
    pub default_model: Option<String>,
    /// By name.
    pub providers: Vec<ProviderInfo>,
    /// In the order of the roster.
    pub agents: Vec<AgentModel>,
}

/// One provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProviderInfo {
    pub provider: String,
    /// `anthropic`, `openai` or `openai_compatible`.
    pub dialect: String,
    pub base_url: String,
    /// The environment variable that holds its key; null if it needs none.
    pub key_env: Option<String>,
    /// Whether that variable is set.
    pub key_set: bool,
    /// Whether it runs on this machine.
    pub local: bool,
    pub enabled: bool,
    /// Whether config.json5 has an entry for it.
    pub configured: bool,
    /// `strict`, `warn` or `off`.
    pub startup_validation: String,
    /// By name.
    pub models: Vec<ModelInfo>,
}

/// One model, with its limits and features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelInfo {
    /// `provider:model`.
    pub model: String,
    pub context_window: u32,
    pub max_output_tokens: u32,
    pub tools: bool,
    pub streaming: bool,
    pub images: bool,
    /// `off`, `budget` or `adaptive`.
    pub thinking: String,
    /// Whether it is the model of agents that name none.
    pub default: bool,
    /// The agents that use it.
    pub agents: Vec<String>,
}

/// The model of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentModel {
    pub agent_id: String,
    /// The backend; `rehearsal` uses no model.
    pub backend: String,
    /// `provider:model`.
    pub model: Option<String>,
    /// Why the model cannot be used, as far as this is known without a new request.
    pub fault: Option<String>,
}

/// Builds the inventory.
pub fn take_inventory(providers: &Providers, roster: &[RosterAgent]) -> ModelInventory {
    let agents: Vec<AgentModel> = roster.iter().map(|agent| agent_model(agent, providers)).collect();
    let default_model = providers.default_model().map(|model| model.to_string());
    let provider = |provider: &Provider| {
        let config = &provider.config;
        let model = |(name, limits): (&String, &ModelLimits)| {
            let model = format!("{}:{name}", provider.id);
            let users = agents.iter().filter(|agent| agent.model.as_ref() == Some(&model));
            ModelInfo {
                context_window: limits.context_window,
                max_output_tokens: limits.max_output_tokens,
                tools: limits.supports_tools,
                streaming: limits.supports_streaming,
                images: limits.supports_images,
                thinking: thinking(limits.thinking).to_owned(),
                default: default_model.as_ref() == Some(&model),
                agents: users.map(|agent| agent.agent_id.clone()).collect(),
                model,
            }
        };
        ProviderInfo {
            provider: provider.id.clone(),
            dialect: dialect_name(config.dialect).to_owned(),
            base_url: config.base_url.to_string(),
            key_env: config.key_env.clone(),
            key_set: provider.has_key,
            local: config.is_local,
            enabled: config.enabled,
            configured: config.is_configured,
            startup_validation: config.startup_validation.as_str().to_owned(),
            models: config.models.iter().map(model).collect(),
        }
    };
    let infos = providers.all().map(provider).collect();
    ModelInventory { default_model, providers: infos, agents }
}

fn agent_model(agent: &RosterAgent, providers: &Providers) -> AgentModel {
    let (model, fault) = if agent.backend == native::BACKEND { used(agent, providers) } else { (None, None) };
    AgentModel { agent_id: agent.id.to_string(), backend: agent.backend.clone(), model, fault }
}

/// The model of an agent that needs one, and why it cannot be used.
fn used(agent: &RosterAgent, providers: &Providers) -> (Option<String>, Option<String>) {
    let model = match &agent.model {
        Some(text) => match text.parse::<ModelRef>() {
            Ok(model) => model,
            Err(error) => return (Some(text.clone()), Some(error.to_string())),
        },
        None => match providers.default_model() {
            Some(model) => model,
            None => {
                let what = format!(
                    "it has no model: name one in its line of data/agent-roster.jsonl, or set models.default in config.json5; \
                     `tribune models` lists them{}",
                    if providers.all().any(|provider| provider.has_key) {
                        ""
                    } else {
                        ". No key is set either"
                    }
                );
                return (None, Some(what));
            }
        },
    };
    let fault = match providers.resolve(&model) {
        Err(error) => Some(error.message),
        Ok((provider, _)) => provider.lacks().or_else(|| {
            let fault = providers.answers().last(&model)??;
            Some(format!("{fault} (when it was last asked; `tribune providers test {model}` asks again)"))
        }),
    };
    (Some(model.to_string()), fault)
}

impl Provider {
    /// What is missing before it can be asked, as a sentence.
    pub fn lacks(&self) -> Option<String> {
        if let Err(error) = self.client() {
            return Some(error.to_string());
        }
        let env = self.config.key_env.clone().filter(|_| !self.has_key)?;
        Some(ProviderError::MissingKey { provider: self.id.clone(), env }.to_string())
    }
}

const fn thinking(form: ThinkingForm) -> &'static str {
    match form {
        ThinkingForm::NoParameter => "off",
        ThinkingForm::Budget => "budget",
        ThinkingForm::Adaptive => "adaptive",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tribune_config::Config;
    use tribune_providers::RequestTimeouts;

    use super::*;
    use crate::models::Env;

    fn agent(id: &str, backend: &str, model: Option<&str>) -> RosterAgent {
        RosterAgent {
            id: id.parse().unwrap(),
            name: None,
            backend: backend.to_owned(),
            profile: None,
            model: model.map(str::to_owned),
            mandate: "default".to_owned(),
            mode: None,
            standing: false,
            pubkey: None,
            accepts_from: Vec::new(),
        }
    }

    fn of(env: Env, agents: &[RosterAgent]) -> ModelInventory {
        take_inventory(&Providers::new(&Config::default().models, &env, RequestTimeouts::default()), agents)
    }

    #[test]
    fn the_inventory_says_that_a_key_is_set_and_never_shows_it() {
        let env: Env = Arc::new(|name| (name == "MOONSHOT_API_KEY").then(|| "fixture-value-77".to_owned()));
        let found = of(env, &[agent("main", "rehearsal", None), agent("ada", "native", None)]);
        assert_eq!(found.default_model.as_deref(), Some("moonshot:kimi-k1-128k"));
        let moonshot = found.providers.iter().find(|provider| provider.provider == "moonshot").unwrap();
        assert!(moonshot.key_set && !moonshot.configured);
        let model = moonshot.models.iter().find(|model| model.default).unwrap();
        assert_eq!((model.model.as_str(), &model.agents), ("moonshot:kimi-k1-128k", &vec!["ada".to_owned()]));
        assert_eq!((&found.agents[0].model, &found.agents[0].fault), (&None, &None));
        assert_eq!(found.agents[1].fault, None);
        let json = serde_json::to_string(&found).unwrap();
        assert!(!json.contains("fixture-value"), "{json}");
    }

    #[test]
    fn the_fault_of_an_agent_says_what_to_do() {
        let agents = [
            agent("a", "native", None),
            agent("b", "native", Some("kimi")),
            agent("c", "native", Some("moonshot:kimi-k1-32k")),
            agent("d", "native", Some("moonshot:kimi-k3")),
        ];
        let found = of(Arc::new(|_| None), &agents);
        let faults: Vec<&str> =
            found.agents.iter().map(|agent| agent.fault.as_deref().unwrap_or_default()).collect();
        assert!(faults[0].contains("models.default") && faults[0].ends_with("No key is set either"));
        assert!(faults[1].contains("names no provider"), "{faults:?}");
        assert!(faults[2].starts_with("Missing MOONSHOT_API_KEY"), "{faults:?}");
        assert!(faults[3].contains("is not declared"), "{faults:?}");
    }
}
