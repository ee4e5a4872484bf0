//! Stage `agents`: the backends that run turns, each behind its canary and the gate. It starts no agent and no canary.

use std::collections::HashMap;
use std::sync::Arc;

use tribune_cli_agents::{CliBackend, IDLE_TIMEOUT, ProcessLimit, Spawner};
use tribune_config::CanaryConfig;
use tribune_egress::SessionSocketService;
use tribune_governance::models::ConfiguredModels;
use tribune_governance::turn::{ConstitutionalRuntime, Governance};
use tribune_registry::Agents;
use tribune_registry::profiles::Profiles;
use tribune_runtime::AgentRuntime;
use tribune_runtime::native;
use tribune_runtime::native::NativeBackend;
use tribune_runtime::rehearsal::{BACKEND, RehearsalBackend, Scenes};
use tribune_sessions::canary;
use tribune_sessions::canary::{Canaries, Guarded, NativeTarget, ProbeTarget, RehearsalTarget};
use tribune_sessions::cli_agents::{CliAgents, CliAgentsParts, CliTarget};
use tribune_tools::mcp::McpServers;

use super::StartContext;
use super::model_check::check_models;
use super::registry::Registry;
use super::secrets::Secrets;
use crate::start_error::StartError;

/// The backends of CLI agents, and the canaries of all backends.
#[derive(Debug)]
pub(crate) struct AgentBackends {
    pub(crate) cli_agents: Arc<CliAgents>,
    pub(crate) cli_backends: [CliBackend; 2],
    pub(crate) canaries: Arc<Canaries>,
    /// The names of all backends, sorted.
    pub(crate) names: Vec<String>,
}

/// The governed backends under their names in the roster.
pub(crate) type Runtimes = HashMap<String, Arc<dyn AgentRuntime>>;

/// Builds the backends and checks the models of the agents. `additional` backends are governed like the built-in ones.
pub(crate) async fn build(
    context: StartContext<'_>,
    secrets: &Secrets,
    registry: &Registry,
    governance: &Arc<Governance>,
    mcp: &Arc<McpServers>,
    socket_service: &SessionSocketService,
    additional: Vec<(String, Arc<dyn AgentRuntime>)>,
) -> Result<(AgentBackends, Runtimes), StartError> {
    let StartContext { home, config, .. } = context;
    let scenes = Scenes::builtin_and(&home.root().join("scenes"))?;
    let rehearsal: Arc<dyn AgentRuntime> = Arc::new(RehearsalBackend::new(scenes));
    let models = Arc::new(ConfiguredModels::new(Arc::clone(&secrets.providers)));
    let prepared = Arc::clone(governance.prepared_services());
    let native: Arc<dyn AgentRuntime> = Arc::new(NativeBackend::new(models, prepared));
    let cli_agents = Arc::new(CliAgents::new(CliAgentsParts {
        home: home.clone(),
        sandbox: config.sandbox,
        hide: config.workspaces.hide.clone(),
        profiles: Profiles::load(home)?,
        agents: Arc::clone(&registry.agents),
        providers: Arc::clone(&secrets.providers),
        governance: Arc::clone(governance),
        mcp: Arc::clone(mcp),
        socket_service: socket_service.clone(),
    }));
    let cli_backends = cli_backends(&cli_agents, config.cli_agents.max_running);
    check_models(&secrets.providers, &registry.agents, governance).await?;
    canary::sweep(home);
    let canaries = canaries(governance, &registry.agents, &cli_agents, &cli_backends, &config.canary);
    let [acp, claude_code] = &cli_backends;
    let built_in = [
        (BACKEND, rehearsal),
        (native::BACKEND, native),
        (acp.name(), Arc::new(acp.clone())),
        (claude_code.name(), Arc::new(claude_code.clone())),
    ];
    let runtimes = governed(governance, &canaries, built_in, additional);
    let mut names: Vec<String> = runtimes.keys().cloned().collect();
    names.sort();
    Ok((AgentBackends { cli_agents, cli_backends, canaries, names }, runtimes))
}

/// The backends of CLI agents: one for each protocol. They share one limit of running processes.
fn cli_backends(cli_agents: &Arc<CliAgents>, max_running: usize) -> [CliBackend; 2] {
    let spawner = || Arc::clone(cli_agents) as Arc<dyn Spawner>;
    let process_limit = ProcessLimit::new(max_running);
    [
        CliBackend::acp(spawner(), IDLE_TIMEOUT, &process_limit),
        CliBackend::claude_code(spawner(), IDLE_TIMEOUT, &process_limit),
    ]
}

/// The canaries of the built-in backends.
fn canaries(
    governance: &Arc<Governance>,
    agents: &Arc<Agents>,
    cli_agents: &Arc<CliAgents>,
    cli_backends: &[CliBackend; 2],
    config: &CanaryConfig,
) -> Arc<Canaries> {
    let cli_target = |backend: &CliBackend| {
        let target = CliTarget { cli_agents: Arc::clone(cli_agents), backend: backend.clone() };
        (backend.name(), Arc::new(target) as Arc<dyn ProbeTarget>)
    };
    let [acp, claude_code] = cli_backends;
    let targets = [
        (BACKEND, Arc::new(RehearsalTarget) as Arc<dyn ProbeTarget>),
        (native::BACKEND, Arc::new(NativeTarget::default())),
        cli_target(acp),
        cli_target(claude_code),
    ];
    Canaries::new(governance, agents, targets, config)
}

/// Puts every backend behind the gate, and the built-in ones behind their canaries.
fn governed(
    governance: &Arc<Governance>,
    canaries: &Arc<Canaries>,
    built_in: [(&str, Arc<dyn AgentRuntime>); 4],
    additional: Vec<(String, Arc<dyn AgentRuntime>)>,
) -> Runtimes {
    let built_in = built_in.map(|(name, inner)| {
        let guarded = Guarded { inner, canaries: Arc::clone(canaries) };
        (name.to_owned(), Arc::new(guarded) as Arc<dyn AgentRuntime>)
    });
    let all = built_in.into_iter().chain(additional).map(|(name, backend)| {
        let governed = ConstitutionalRuntime::new(backend, Arc::clone(governance));
        (name, Arc::new(governed) as Arc<dyn AgentRuntime>)
    });
    all.collect()
}
