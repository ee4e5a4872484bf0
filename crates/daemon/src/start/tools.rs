//! Stage `tools`: the tools that the daemon executes, the launcher of their commands, and the MCP servers of sessions. It runs
//! no command.

use std::sync::{Arc, OnceLock};

use tribune_config::{Config, Sandbox};
use tribune_contract::SandboxMode;
use tribune_egress::SessionSocketService;
use tribune_gateway::status::Status;
use tribune_sessions::session::SubAgents;
use tribune_storage::home::Home;
use tribune_tools::mcp::McpServers;
use tribune_tools::{Egress, HostTools, Launcher, SandboxedLauncher, Spawner, UnsandboxedLauncher};

use super::StartContext;
use super::gate::GateServices;
use super::registry::Registry;
use super::secrets::Secrets;

/// The tools, and what later stages connect to them.
#[derive(Debug)]
pub(crate) struct ToolServices {
    pub(crate) tools: Arc<HostTools>,
    pub(crate) mcp: Arc<McpServers>,
    /// Connected to the sessions by stage `sessions`.
    pub(crate) sub_agents: Arc<SubAgents>,
    /// Set by stage `gateway`, when the port is open.
    pub(crate) status: Arc<OnceLock<Arc<Status>>>,
}

/// Builds the tools, and removes the sandboxes of an earlier daemon.
pub(crate) fn build(
    context: StartContext<'_>,
    secrets: &Secrets,
    registry: &Registry,
    gate: &GateServices,
    socket_service: &SessionSocketService,
) -> ToolServices {
    let StartContext { home, config, storage } = context;
    let mcp = Arc::new(McpServers::new(
        home,
        config,
        Arc::clone(&secrets.redactor),
        socket_service.clone(),
        Arc::clone(&gate.out_of_turn),
    ));
    let sub_agents = Arc::new(SubAgents::default());
    let egress = config.egress.clone();
    let status = Arc::new(OnceLock::<Arc<Status>>::new());
    let (known, reported) = (Arc::clone(&registry.agents), Arc::clone(&status));
    let tools = HostTools::new(
        home.root().to_owned(),
        Arc::clone(&registry.mailbox),
        Arc::clone(&storage.clock),
        Arc::new(move |agent| known.knows(agent)),
    );
    let tools = tools
        .with_launcher(launcher(home, config))
        .with_redactor(Arc::clone(&secrets.redactor))
        .hiding(&config.workspaces.hide)
        .with_web(Egress::new(egress.mode, egress.allow, egress.deny), config.web_search.endpoint.clone())
        .with_status(Arc::new(move || reported.get().map(|status| status.for_agents())))
        .with_budgets(Arc::clone(&gate.budgets))
        .with_mcp(Arc::clone(&mcp))
        .with_socket_service(socket_service.clone())
        .with_spawner(Arc::clone(&sub_agents) as Arc<dyn Spawner>);
    ToolServices { tools: Arc::new(tools), mcp, sub_agents, status }
}

fn launcher(home: &Home, config: &Config) -> Arc<dyn Launcher> {
    let sandboxed = |mode| Arc::new(SandboxedLauncher::new(home.root(), mode, &config.workspaces));
    match config.sandbox {
        Sandbox::Full => sandboxed(SandboxMode::Full),
        Sandbox::Landlock => sandboxed(SandboxMode::Landlock),
        Sandbox::Off => {
            tracing::warn!(
                "THE SANDBOX IS OFF: commands of agents run with all rights of this user. Set `sandbox` to \"full\" in \
                 config.json5 unless this machine is a sandbox itself"
            );
            Arc::new(UnsandboxedLauncher)
        }
    }
}
