//! Stage `sessions`: the open sessions and the operator's runs. Opens the sessions of standing agents.

use std::sync::Arc;

use tribune_egress::SessionSocketService;
use tribune_governance::turn::{ConstitutionalRuntime, Governance};
use tribune_records::agents::RUN_BACKEND;
use tribune_registry::Agents;
use tribune_runtime::AgentRuntime;
use tribune_sessions::run::{RunBackend, Runs};
use tribune_sessions::session::{SessionLimits, SessionManager};

use super::StartContext;
use super::agents::Runtimes;
use super::tools::ToolServices;
use crate::start_error::StartError;

/// The sessions and the runs.
#[derive(Debug)]
pub(crate) struct OpenSessions {
    pub(crate) manager: SessionManager,
    pub(crate) runs: Arc<Runs>,
    /// Number of open sessions of standing agents.
    pub(crate) standing: usize,
}

/// Opens the session manager, recovers the runs of an earlier daemon and opens the sessions of standing agents.
pub(crate) async fn open(
    context: StartContext<'_>,
    governance: &Arc<Governance>,
    mut runtimes: Runtimes,
    agents: &Arc<Agents>,
    tools: &ToolServices,
    socket_service: &SessionSocketService,
) -> Result<OpenSessions, StartError> {
    let StartContext { home, config, .. } = context;
    let limits = SessionLimits {
        ttl: config.sessions.ttl,
        queue: config.sessions.queue,
        max_open: config.sessions.max_open,
    };
    let idle =
        ConstitutionalRuntime::new(Arc::new(RunBackend) as Arc<dyn AgentRuntime>, Arc::clone(governance));
    runtimes.insert(RUN_BACKEND.to_owned(), Arc::new(idle));
    let manager = SessionManager::new(
        Arc::clone(governance),
        runtimes,
        Arc::clone(agents),
        Arc::clone(tools.tools.schedules()),
        &tools.sub_agents,
        limits,
    )?;
    let workspaces = &config.workspaces;
    let runs = Arc::new(Runs::new(home, config.sandbox, workspaces, manager.clone(), socket_service.clone()));
    runs.recover().await?;
    let standing = manager.preload().await?;
    Ok(OpenSessions { manager, runs, standing })
}
