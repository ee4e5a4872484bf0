//! Tribune's built-in backends as canary targets: the native loop, with a scripted model that calls a tool which the session was
//! not offered, and the rehearsal, with a script that does the same.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::task::TaskTracker;
use tribune_providers::{
    ApiDialect, BaseUrl, ModelLimits, ModelRef, ProviderClient, ProviderEndpoint, RequestTimeouts,
    ThinkingForm,
};
use tribune_runtime::native;
use tribune_runtime::native::{ModelBinding, ModelResolver, NativeBackend, NoHostServices};
use tribune_runtime::rehearsal;
use tribune_runtime::rehearsal::{RehearsalBackend, Scenes};
use tribune_runtime::{AgentId, RuntimeError, SessionKey};

use super::model_socket::Loopback;
use super::probe_run::{Obstacle, ProbeSetup, ProbeTarget};
use super::scripted_model::{Milestone, Probe, ScriptedModel};

/// The native loop as a target.
#[derive(Debug, Default)]
pub struct NativeTarget {
    tasks: TaskTracker,
}

#[async_trait]
impl ProbeTarget for NativeTarget {
    fn subject(&self, _: Option<&str>) -> Option<String> {
        Some(native::BACKEND.to_owned())
    }

    fn executes_tools(&self) -> bool {
        false
    }

    fn obstacle(&self, _: &str) -> Option<Obstacle> {
        None
    }

    fn play(&self, nonce: &str) -> ScriptedModel {
        ScriptedModel::for_loop(nonce)
    }

    async fn set(&self, _: &str, _: &SessionKey, play: &Arc<ScriptedModel>) -> Result<ProbeSetup, String> {
        let unusable = |what: &str| format!("its scripted model cannot be set up ({what})");
        let loopback = Loopback::open(Arc::clone(play), &self.tasks)
            .await
            .map_err(|error| unusable(&error.to_string()))?;
        let base_url = BaseUrl::parse(&format!("http://{}/v1", loopback.address))
            .map_err(|error| unusable(&error.to_string()))?;
        let endpoint = ProviderEndpoint {
            provider: "canary".to_owned(),
            dialect: ApiDialect::OpenAiCompatible,
            base_url,
            key: None,
            key_env: None,
            timeouts: RequestTimeouts::default(),
        };
        let client = ProviderClient::new(endpoint).map_err(|error| unusable(&error.to_string()))?;
        let model = "canary:canary".parse().map_err(|_| unusable("no name for it"))?;
        let resolver = ScriptedModelResolver { client, model };
        // Budgets do not apply: the model is scripted.
        let runtime = NativeBackend::new(Arc::new(resolver), Arc::new(NoHostServices));
        Ok(ProbeSetup { runtime: Arc::new(runtime), props: Box::new(loopback) })
    }
}

/// Larger limits than any scripted answer needs.
const LIMITS: ModelLimits = ModelLimits {
    context_window: 200_000,
    max_output_tokens: 8_192,
    supports_tools: true,
    supports_streaming: true,
    supports_images: false,
    thinking: ThinkingForm::NoParameter,
};

/// Resolves every agent to the scripted model.
struct ScriptedModelResolver {
    client: ProviderClient,
    model: ModelRef,
}

impl ModelResolver for ScriptedModelResolver {
    fn resolve(&self, _: &AgentId, _: Option<&str>) -> Result<ModelBinding, RuntimeError> {
        Ok(ModelBinding {
            client: self.client.clone(),
            model: self.model.clone(),
            limits: LIMITS,
            is_local: true,
            max_output_tokens: 1_024,
            thinking: None,
            keep_turns: 4,
        })
    }
}

/// The rehearsal as a target.
#[derive(Debug)]
pub struct RehearsalTarget;

#[async_trait]
impl ProbeTarget for RehearsalTarget {
    fn subject(&self, _: Option<&str>) -> Option<String> {
        Some(rehearsal::BACKEND.to_owned())
    }

    fn executes_tools(&self) -> bool {
        false
    }

    fn obstacle(&self, _: &str) -> Option<Obstacle> {
        None
    }

    fn play(&self, nonce: &str) -> ScriptedModel {
        ScriptedModel::for_loop(nonce)
    }

    async fn set(&self, _: &str, _: &SessionKey, play: &Arc<ScriptedModel>) -> Result<ProbeSetup, String> {
        // The script takes the place of the model, so the milestone is reached at once.
        play.reach(Milestone::ModelReached);
        let runtime = Arc::new(RehearsalBackend::new(Scenes::builtin()));
        Ok(ProbeSetup { runtime, props: Box::new(()) })
    }

    fn words(&self, probe: &Probe) -> String {
        probe.script()
    }
}
