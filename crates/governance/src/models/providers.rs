//! The configured providers with their keys and clients.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tribune_config::{ModelsConfig, ProviderConfig};
use tribune_constitution::suggest_name::nearest;
use tribune_providers::{
    ApiKey, ModelLimits, ModelRef, ProviderClient, ProviderEndpoint, ProviderError, RequestTimeouts,
};
use tribune_runtime::{ErrorKind, RuntimeError};

use super::model_health::ModelHealth;

/// Longest part of an unknown provider name shown in a message, in characters.
const MAX_SHOWN_CHARS: usize = 80;

/// Looks up an environment variable.
pub type Env = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The environment of this process.
pub fn process_env() -> Env {
    Arc::new(|name| std::env::var(name).ok())
}

/// All configured providers.
#[derive(Clone)]
pub struct Providers {
    all: BTreeMap<String, Provider>,
    default: Option<ModelRef>,
    keep_turns: usize,
    answers: ModelHealth,
}

/// One provider.
#[derive(Clone)]
pub struct Provider {
    pub id: String,
    pub config: ProviderConfig,
    /// Whether its key was found, if it needs one.
    pub has_key: bool,
    client: Result<ProviderClient, ProviderError>,
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.keys()).finish()
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Provider({})", self.id)
    }
}

impl Providers {
    pub fn new(config: &ModelsConfig, env: &Env, patience: RequestTimeouts) -> Self {
        let provider = |(id, config): (&String, &ProviderConfig)| {
            let key = config.key_env.as_deref().and_then(|name| env(name)).and_then(|key| ApiKey::new(&key));
            let has_key = key.is_some();
            let endpoint = ProviderEndpoint {
                provider: id.clone(),
                dialect: config.dialect,
                base_url: config.base_url.clone(),
                key,
                key_env: config.key_env.clone(),
                timeouts: config.timeouts.over(patience),
            };
            let client = ProviderClient::new(endpoint);
            (id.clone(), Provider { id: id.clone(), config: config.clone(), has_key, client })
        };
        let all = config.providers.iter().map(provider).collect();
        Self {
            all,
            default: config.default.clone(),
            keep_turns: config.keep_turns,
            answers: ModelHealth::default(),
        }
    }

    /// The keys that must never be shown: those of all providers in the environment.
    pub fn secrets(config: &ModelsConfig, env: &Env) -> Vec<String> {
        let names = config.providers.values().filter_map(|provider| provider.key_env.as_deref());
        names.filter_map(|name| env(name)).filter(|key| !key.trim().is_empty()).collect()
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &Provider> {
        self.all.values()
    }

    pub fn get(&self, id: &str) -> Option<&Provider> {
        self.all.get(id)
    }

    /// The model of agents that name none: the configured default, or the default model of the only provider that has a key
    /// and a default model.
    pub fn default_model(&self) -> Option<ModelRef> {
        if self.default.is_some() {
            return self.default.clone();
        }
        let usable = |provider: &&Provider| provider.config.enabled && provider.has_key;
        let mut with_default = self.all.values().filter(usable).filter_map(|provider| {
            ModelRef::new(&provider.id, provider.config.default_model.as_deref()?).ok()
        });
        let first = with_default.next()?;
        // With two candidates, the operator has to choose.
        with_default.next().is_none().then_some(first)
    }

    /// The last known health of each model.
    pub const fn answers(&self) -> &ModelHealth {
        &self.answers
    }

    pub const fn keep_turns(&self) -> usize {
        self.keep_turns
    }

    /// The provider of this name, if it exists and is enabled.
    pub fn enabled(&self, id: &str) -> Result<&Provider, RuntimeError> {
        let provider = self.all.get(id).ok_or_else(|| {
            let names: Vec<&str> = self.all.keys().map(String::as_str).collect();
            let meant =
                nearest(id, &names).map_or_else(String::new, |name| format!("did you mean `{name}`? "));
            let shown: String = id.chars().take(MAX_SHOWN_CHARS).filter(|char| !char.is_control()).collect();
            let what = format!(
                "there is no provider `{shown}`: {meant}the providers are {}; others are declared in config.json5 under models.providers",
                names.join(", ")
            );
            RuntimeError::new(ErrorKind::UnknownProvider, what)
        })?;
        if !provider.config.enabled {
            let what = format!(
                "the provider `{}` is switched off: set models.providers.{}.enabled to true in config.json5",
                provider.id, provider.id
            );
            return Err(RuntimeError::new(ErrorKind::ProviderDisabled, what));
        }
        Ok(provider)
    }

    /// Resolves a reference to its provider and the limits of the model.
    pub fn resolve(&self, model: &ModelRef) -> Result<(&Provider, ModelLimits), RuntimeError> {
        let provider = self.enabled(model.provider())?;
        let limits = provider.config.models.get(model.model()).ok_or_else(|| {
            let names: Vec<&str> = provider.config.models.keys().map(String::as_str).collect();
            let meant =
                nearest(model.model(), &names).map_or_else(String::new, |name| format!("did you mean `{name}`? "));
            let known = if names.is_empty() { "none is known".to_owned() } else { format!("known are {}", names.join(", ")) };
            let what = format!(
                "the model `{model}` is not declared: {meant}{known}; declare it in config.json5 under models.providers.{}.models \
                 with its contextWindow and maxOutputTokens",
                provider.id
            );
            RuntimeError::new(ErrorKind::UnknownModel, what)
        })?;
        Ok((provider, *limits))
    }
}

impl Provider {
    /// The client, or why none could be built.
    pub fn client(&self) -> Result<&ProviderClient, &ProviderError> {
        self.client.as_ref()
    }
}
