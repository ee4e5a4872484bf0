//! The model that an agent may use.

use tribune_providers::ModelRef;
use tribune_records::agents::RUN_AGENT;
use tribune_registry::{Agents, asks_a_model};
use tribune_runtime::AgentId;

use super::Providers;

/// The model of an agent: its own, or the default model.
pub fn model_of(agents: &Agents, providers: &Providers, agent: &AgentId) -> Option<ModelRef> {
    let Some(agent) = agents.agent(agent) else {
        // Programs of `tribune run` use the default model.
        return providers.default_model().filter(|_| agent.as_str() == RUN_AGENT);
    };
    match agent.model {
        Some(model) => model.parse().ok(),
        None if asks_a_model(&agent.backend) => providers.default_model(),
        None => None,
    }
}
