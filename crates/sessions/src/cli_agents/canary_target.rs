//! CLI agents as canary targets: the real program in its sandbox, with the scripted model behind its model socket.

use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use tribune_cli_agents::CliBackend;
use tribune_governance::models::agent_model::model_of;
use tribune_runtime::SessionKey;

use super::{CanaryAgent, CliAgents};
use crate::canary::{Obstacle, ProbeSetup, ProbeTarget, ScriptedModel};

/// The model name that an agent gets where the roster names none.
const MODEL: &str = "canary";

/// The CLI agents of one backend.
pub struct CliTarget {
    pub cli_agents: Arc<CliAgents>,
    pub backend: CliBackend,
}

impl std::fmt::Debug for CliTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CliTarget")
    }
}

#[async_trait]
impl ProbeTarget for CliTarget {
    fn subject(&self, profile: Option<&str>) -> Option<String> {
        profile.map(str::to_owned)
    }

    fn executes_tools(&self) -> bool {
        true
    }

    fn obstacle(&self, name: &str) -> Option<Obstacle> {
        match self.cli_agents.installed(name) {
            Ok(profile) if profile.model().is_none() => Some(Obstacle::NothingToTry(
                "its profile names no model of Tribune, so it cannot be made to try anything".to_owned(),
            )),
            Ok(_) => None,
            Err(error) => Some(Obstacle::NotRunnable(error)),
        }
    }

    fn play(&self, nonce: &str) -> ScriptedModel {
        ScriptedModel::for_agent(nonce)
    }

    async fn set(
        &self,
        name: &str,
        session: &SessionKey,
        play: &Arc<ScriptedModel>,
    ) -> Result<ProbeSetup, String> {
        let played =
            CanaryAgent { profile: name.to_owned(), model: self.model(name), play: Arc::clone(play) };
        let mut sessions = self.cli_agents.played.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(session.clone(), played);
        drop(sessions);
        let registration =
            CanaryRegistration { cli_agents: Arc::clone(&self.cli_agents), session: session.clone() };
        Ok(ProbeSetup { runtime: Arc::new(self.backend.clone()), props: Box::new(registration) })
    }
}

impl CliTarget {
    /// The model of the first agent of a profile, because some agents behave differently with other models.
    fn model(&self, name: &str) -> String {
        let CliAgents { agents, providers, .. } = &*self.cli_agents;
        let own = agents.all().into_iter().filter(|agent| agent.profile.as_deref() == Some(name));
        let mut models = own.filter_map(|agent| model_of(agents, providers, &agent.id));
        models.next().map_or_else(|| MODEL.to_owned(), |model| model.model().to_owned())
    }
}

/// Registers a session as a canary's until it is dropped.
struct CanaryRegistration {
    cli_agents: Arc<CliAgents>,
    session: SessionKey,
}

impl Drop for CanaryRegistration {
    fn drop(&mut self) {
        self.cli_agents.played.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.session);
    }
}
