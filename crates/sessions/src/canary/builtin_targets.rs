//! Tribune's built-in backends as canary targets: the native loop, with a scripted model that calls a tool which the session was
//! not offered, and the rehearsal, with a script that does the same.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::task::TaskTracker;
use tribune_providers::{BaseUrl, Client, Dialect, Endpoint, ModelLimits, ModelRef, Patience, ThinkingForm};
use tribune_runtime::native;
use tribune_runtime::native::{NativeBackend, NoHouse, Seat, Seats};
use tribune_runtime::rehearsal;
use tribune_runtime::rehearsal::{RehearsalBackend, Scenes};
use tribune_runtime::{AgentId, RuntimeError, SessionKey};

use super::model_socket::Loopback;
use super::probe_run::{Obstacle, Scene, Stage};
use super::scripted_model::{Milestone, Play, Probe};

/// The native loop as a target.
#[derive(Debug, Default)]
pub struct NativeStage {
    tasks: TaskTracker,
}

#[async_trait]
impl Stage for NativeStage {
    fn subject(&self, _: Option<&str>) -> Option<String> {
        Some(native::BACKEND.to_owned())
    }

    fn has_hands(&self) -> bool {
        false
    }

    fn obstacle(&self, _: &str) -> Option<Obstacle> {
        None
    }

    fn play(&self, nonce: &str) -> Play {
        Play::for_loop(nonce)
    }

    async fn set(&self, _: &str, _: &SessionKey, play: &Arc<Play>) -> Result<Scene, String> {
        let unusable = |what: &str| format!("its scripted model cannot be set up ({what})");
        let loopback = Loopback::open(Arc::clone(play), &self.tasks)
            .await
            .map_err(|error| unusable(&error.to_string()))?;
        let base_url = BaseUrl::parse(&format!("http://{}/v1", loopback.address))
            .map_err(|error| unusable(&error.to_string()))?;
        let endpoint = Endpoint {
            provider: "canary".to_owned(),
            dialect: Dialect::OpenAiCompatible,
            base_url,
            key: None,
            key_env: None,
            patience: Patience::default(),
        };
        let client = Client::new(endpoint).map_err(|error| unusable(&error.to_string()))?;
        let model = "canary:canary".parse().map_err(|_| unusable("no name for it"))?;
        let resolver = ScriptedModelResolver { client, model };
        // Budgets do not apply: the model is scripted.
        let runtime = NativeBackend::new(Arc::new(resolver), Arc::new(NoHouse));
        Ok(Scene { runtime: Arc::new(runtime), props: Box::new(loopback) })
    }
}

/// Larger limits than any scripted answer needs.
const LIMITS: ModelLimits = ModelLimits {
    context_window: 200_000,
    max_output_tokens: 8_192,
    supports_tools: true,
    supports_streaming: true,
    supports_images: false,
    thinking: ThinkingForm::Unasked,
};

/// Resolves every agent to the scripted model.
struct ScriptedModelResolver {
    client: Client,
    model: ModelRef,
}

impl Seats for ScriptedModelResolver {
    fn seat(&self, _: &AgentId, _: Option<&str>) -> Result<Seat, RuntimeError> {
        Ok(Seat {
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
pub struct RehearsalStage;

#[async_trait]
impl Stage for RehearsalStage {
    fn subject(&self, _: Option<&str>) -> Option<String> {
        Some(rehearsal::BACKEND.to_owned())
    }

    fn has_hands(&self) -> bool {
        false
    }

    fn obstacle(&self, _: &str) -> Option<Obstacle> {
        None
    }

    fn play(&self, nonce: &str) -> Play {
        Play::for_loop(nonce)
    }

    async fn set(&self, _: &str, _: &SessionKey, play: &Arc<Play>) -> Result<Scene, String> {
        // The script takes the place of the model, so the milestone is reached at once.
        play.reach(Milestone::ModelReached);
        let runtime = Arc::new(RehearsalBackend::new(Scenes::builtin()));
        Ok(Scene { runtime, props: Box::new(()) })
    }

    fn words(&self, probe: &Probe) -> String {
        probe.script()
    }
}
