//! Stage `gateway`: opens the port, starts the background tasks, and makes the daemon known: in `run/daemon.json`, to the hooks
//! and in the log. Everything that a request needs is there before the port is open.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::net::TcpListener;
use tribune_config::hook_spec::HookPoint;
use tribune_config::{Anonymous, Config};
use tribune_gateway::status::Status;
use tribune_gateway::{Api, Authenticator, Gateway, GatewayLimits, Names, Parts, Principal, Timeouts};
use tribune_governance::gate::hooks::HookEvent;
use tribune_governance::turn::Recovered;
use tribune_sessions::canary::Canaries;
use tribune_sessions::session::SessionManager;

use super::StartContext;
use super::agents::AgentBackends;
use super::egress::EgressServices;
use super::registry::Registry;
use super::secrets::Secrets;
use super::sessions::OpenSessions;
use super::storage::OpenStorage;
use super::tools::ToolServices;
use crate::daemon_info::DaemonInfo;
use crate::shutdown::Shutdown;
use crate::start_error::StartError;

/// The results of the earlier stages that requests reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlierStages<'a> {
    pub(crate) storage: &'a OpenStorage,
    pub(crate) secrets: &'a Secrets,
    pub(crate) registry: &'a Registry,
    pub(crate) egress: &'a EgressServices,
    pub(crate) tools: &'a ToolServices,
    pub(crate) recovered: &'a Recovered,
    pub(crate) backends: &'a AgentBackends,
    pub(crate) sessions: &'a OpenSessions,
}

/// Opens the port and serves it. Returns its address.
pub(crate) async fn serve(
    context: StartContext<'_>,
    stages: EarlierStages<'_>,
    timeouts: Timeouts,
    shutdown: &Shutdown,
) -> Result<SocketAddr, StartError> {
    let StartContext { home, config, storage } = context;
    let listener = listen(config.gateway.address).await?;
    let address = listener
        .local_addr()
        .map_err(|error| StartError::Listen { address: config.gateway.address, error })?;
    let gateway = gateway(context, stages, address, timeouts, shutdown);
    shutdown.tasks.spawn(gateway.serve(listener, shutdown.accepting.clone()));
    spawn_background_tasks(&stages.sessions.manager, &stages.backends.canaries, shutdown);
    DaemonInfo::write(home, address, &*storage.clock)?;
    announce(&stages.sessions.manager, address, stages.recovered, stages.sessions.standing);
    Ok(address)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::PortTaken(address),
        _ => StartError::Listen { address, error },
    })
}

fn gateway(
    context: StartContext<'_>,
    stages: EarlierStages<'_>,
    address: SocketAddr,
    timeouts: Timeouts,
    shutdown: &Shutdown,
) -> Arc<Gateway> {
    let config = context.config;
    let log = stages.storage.log.clone();
    let approvers = Arc::clone(&stages.registry.approvers);
    let status = status(context, stages, address, shutdown);
    Gateway::new(Parts {
        api: api(context, stages, status),
        authenticator: Authenticator::new(&stages.secrets.token, &stages.secrets.guest_token, log, approvers),
        names: Names::new(address, &config.gateway.hosts, &config.gateway.origins),
        limits: limits(config, timeouts),
        anonymous: anonymous(config.gateway.anonymous),
        stopping: shutdown.stopping.clone(),
    })
}

/// The status of this daemon, which the `gateway` tool reports from now on.
fn status(
    context: StartContext<'_>,
    stages: EarlierStages<'_>,
    address: SocketAddr,
    shutdown: &Shutdown,
) -> Arc<Status> {
    let status = Arc::new(Status {
        address,
        home: context.home.root().to_owned(),
        started_at: context.storage.clock.now(),
        backends: stages.backends.names.clone(),
        log: stages.storage.log.clone(),
        recovered: stages.recovered.clone(),
        draining: shutdown.draining.clone(),
        connections: AtomicUsize::new(0),
    });
    // INVARIANT: it is set only here, so this is the new status.
    Arc::clone(stages.tools.status.get_or_init(|| status))
}

fn api(context: StartContext<'_>, stages: EarlierStages<'_>, status: Arc<Status>) -> Api {
    Api {
        sessions: stages.sessions.manager.clone(),
        agents: Arc::clone(&stages.registry.agents),
        approvers: Arc::clone(&stages.registry.approvers),
        deciders: Arc::clone(&stages.registry.deciders),
        readers: context.storage.readers.clone(),
        store: Arc::clone(&stages.storage.store),
        providers: Arc::clone(&stages.secrets.providers),
        status,
        proxy: Arc::clone(&stages.egress.proxy),
        runs: Arc::clone(&stages.sessions.runs),
        canaries: Arc::clone(&stages.backends.canaries),
        mcp: Arc::clone(&stages.tools.mcp),
        cli_agents: Arc::clone(&stages.backends.cli_agents),
        others: stages.backends.cli_backends.clone(),
    }
}

const fn limits(config: &Config, timeouts: Timeouts) -> GatewayLimits {
    GatewayLimits {
        max_connections: config.gateway.max_connections,
        max_message_bytes: config.gateway.max_message_bytes,
        idle: config.gateway.idle,
        timeouts,
    }
}

fn anonymous(config: Anonymous) -> Option<Principal> {
    match config {
        Anonymous::Deny => None,
        Anonymous::DefaultMandate => tribune_gateway::anonymous(),
    }
}

fn spawn_background_tasks(sessions: &SessionManager, canaries: &Arc<Canaries>, shutdown: &Shutdown) {
    let tasks = &shutdown.tasks;
    tasks.spawn(Arc::clone(sessions.governance()).expire_approvals(shutdown.stopping.clone()));
    let sweeper = sessions.clone();
    tasks.spawn(async move { sweeper.sweep().await });
    let (waker, stop_waking) = (sessions.clone(), shutdown.draining.clone());
    tasks.spawn(async move { waker.wake(stop_waking).await });
    tasks.spawn(Arc::clone(canaries).keep_trying());
}

/// Tells the hooks and the log that the daemon is ready.
fn announce(sessions: &SessionManager, address: SocketAddr, recovered: &Recovered, standing: usize) {
    let gate = &sessions.governance().policy.gate;
    let (version, constitution_hash) = (env!("CARGO_PKG_VERSION"), gate.law.hash().to_string());
    let started = HookEvent::GatewayStart { address: address.to_string(), version, constitution_hash };
    gate.hooks.tell(HookPoint::GatewayStart, &started);
    tracing::info!(%address, standing, turns = recovered.turns, calls = recovered.calls, forgets = recovered.forgets, "ready");
}
