//! Starts and stops the daemon. The start runs through these stages, each a function in [`start`](crate::start); every error of
//! the start occurs before the port is opened:
//!
//! 1. `storage`: opens the ledger, which locks the state folder, and the vault.
//! 2. `policy`: loads the law, the pending approvals, the hooks, the operator's token and the providers; builds the gate.
//! 3. `registry`: loads the roster and the approvers, and records what was changed in their files; opens the mailbox and the
//!    board.
//! 4. `gate`: completes the gate with the agents; builds the budgets and the decisions outside of turns.
//! 5. `egress`: builds the model proxy and the session sockets of sandboxes.
//! 6. `tools`: builds the tools, the launcher of commands and the MCP servers.
//! 7. `governance`: ends the turns that an earlier daemon left, and resumes calls that wait for a person.
//! 8. `agents`: builds the backends with their canaries, and checks the models.
//! 9. `sessions`: opens the sessions of standing agents, and recovers the operator's runs.
//! 10. `gateway`: opens the port and starts the background tasks.
//!
//! The stop closes the [`services`](crate::services) when all turns have ended, then the connections, and the store last.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tribune_config::Config;
use tribune_egress::{Network, SessionSocketService, SocketLimits};
use tribune_gateway::Timeouts;
use tribune_governance::models::inventory::take_inventory;
use tribune_governance::models::{Env, ModelInventory, Providers};
use tribune_governance::turn::Recovered;
use tribune_providers::RequestTimeouts;
use tribune_registry::Agents;
use tribune_runtime::AgentRuntime;
use tribune_sessions::session::{Drained, SessionManager};
use tribune_storage::clock::Clock;
use tribune_storage::home::Home;
use tribune_storage::store::Store;

pub use crate::daemon_info::DaemonInfo;
use crate::services::Services;
use crate::shutdown::Shutdown;
pub use crate::start::registry::check_standing;
use crate::start::{
    StartContext, agents, egress, gate, gateway, governance, policy, registry, sessions, storage, tools,
};
pub use crate::start_error::StartError;
pub use crate::state_folder::write_if_missing;

/// Replacements for parts of the daemon that only a caller in the same process can give, such as tests.
#[derive(Default)]
pub struct DaemonOverrides {
    /// Backends besides the built-in ones, under their names in the roster. They are governed like the built-in ones.
    pub backends: Vec<(String, Arc<dyn AgentRuntime>)>,
    pub timeouts: Timeouts,
    /// The environment that API keys come from, instead of that of the process.
    pub env: Option<Env>,
    /// Timeouts of model requests.
    pub provider_timeouts: RequestTimeouts,
    /// The network that sandboxes reach, instead of the real one.
    pub network: Option<Arc<dyn Network>>,
    pub socket_limits: SocketLimits,
}

impl std::fmt::Debug for DaemonOverrides {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.backends.iter().map(|(name, _)| name).collect();
        f.debug_struct("DaemonOverrides").field("backends", &names).field("timeouts", &self.timeouts).finish()
    }
}

/// A daemon that accepts connections.
#[derive(Debug)]
pub struct Daemon {
    home: Home,
    report: StartReport,
    services: Services,
    inventory: InventorySources,
    store: Arc<Store>,
    shutdown: Shutdown,
}

/// What the start made known.
#[derive(Debug)]
struct StartReport {
    address: SocketAddr,
    token_path: PathBuf,
    recovered: Recovered,
    standing: usize,
}

/// What the inventory of models is taken from.
#[derive(Debug)]
struct InventorySources {
    providers: Arc<Providers>,
    agents: Arc<Agents>,
}

impl Daemon {
    /// Starts the daemon of the state folder `home`. It is ready when this returns.
    pub async fn start(home: &Home, config: &Config, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        Self::start_with(home, config, clock, DaemonOverrides::default()).await
    }

    /// Starts the daemon of the state folder `home` with overrides.
    pub async fn start_with(
        home: &Home,
        config: &Config,
        clock: Arc<dyn Clock>,
        overrides: DaemonOverrides,
    ) -> Result<Self, StartError> {
        let DaemonOverrides { backends, timeouts, env, provider_timeouts, network, socket_limits } =
            overrides;
        let shutdown = Shutdown::new(config.gateway.drain);
        let storage = storage::open(home, clock).await?;
        let context = StartContext { home, config, storage: &storage.handles };
        let policy = policy::load(context, env, provider_timeouts)?;
        let secrets = policy.secrets;
        let registry = registry::load(context, &secrets.redactor)?;
        registry::record_file_changes(&registry).await?;
        let gate = gate::complete(context, policy.gate, &registry.agents);
        let egress =
            egress::open(context, &secrets, &registry.agents, &gate, &shutdown, network, socket_limits)?;
        let sockets = &egress.socket_service;
        let tools = tools::build(context, &secrets, &registry, &gate, sockets);
        let governed =
            governance::recover(context, &secrets, &registry, &gate, &tools, policy.background).await?;
        let governance = &governed.governance;
        let (backends, runtimes) =
            agents::build(context, &secrets, &registry, governance, &tools.mcp, sockets, backends).await?;
        let sessions =
            sessions::open(context, governance, runtimes, &registry.agents, &tools, sockets).await?;
        let stages = gateway::EarlierStages {
            storage: &storage,
            secrets: &secrets,
            registry: &registry,
            egress: &egress,
            tools: &tools,
            recovered: &governed.recovered,
            backends: &backends,
            sessions: &sessions,
        };
        let address = gateway::serve(context, stages, timeouts, &shutdown).await?;
        Ok(Self {
            home: home.clone(),
            report: StartReport {
                address,
                token_path: secrets.token_path,
                recovered: governed.recovered,
                standing: sessions.standing,
            },
            services: Services {
                sessions: sessions.manager,
                canaries: backends.canaries,
                cli_backends: backends.cli_backends,
                mcp: tools.mcp,
                socket_service: egress.socket_service,
            },
            inventory: InventorySources { providers: secrets.providers, agents: registry.agents },
            store: storage.store,
            shutdown,
        })
    }

    pub const fn address(&self) -> SocketAddr {
        self.report.address
    }

    /// The file with the operator's token.
    pub fn token_path(&self) -> &Path {
        &self.report.token_path
    }

    pub const fn sessions(&self) -> &SessionManager {
        &self.services.sessions
    }

    /// The socket services of sandboxes.
    pub const fn socket_service(&self) -> &SessionSocketService {
        &self.services.socket_service
    }

    /// The inventory of providers, models and agents. Waits up to one second for the startup check.
    pub async fn survey(&self) -> ModelInventory {
        let InventorySources { providers, agents } = &self.inventory;
        providers.answers().settled().await;
        take_inventory(providers, &agents.all())
    }

    /// The unfinished work of an earlier daemon that was recovered.
    pub const fn recovered(&self) -> &Recovered {
        &self.report.recovered
    }

    /// Number of open sessions of standing agents.
    pub const fn standing(&self) -> usize {
        self.report.standing
    }

    /// Stops in two phases: accepts no more work and lets turns end; then ends the rest. If `hurry` completes, the second phase
    /// starts immediately.
    pub async fn stop(self, hurry: impl Future<Output = ()>) -> Drained {
        tracing::info!("stopping: no new work is accepted");
        // The port stays open meanwhile: new requests get an error that says so, and a client that lost its connection can find
        // its turn again.
        self.shutdown.draining.cancel();
        let deadline = self.shutdown.drain;
        let sessions = &self.services.sessions;
        let drained = {
            let mut hurry = std::pin::pin!(hurry);
            let mut draining = std::pin::pin!(sessions.drain(deadline));
            tokio::select! {
                drained = draining.as_mut() => drained,
                () = hurry.as_mut() => sessions.drain(Duration::ZERO).await,
            }
        };
        tracing::info!(
            cancelled = drained.cancelled,
            abandoned = drained.abandoned,
            "stopping: all turns have ended"
        );
        self.services.close().await;
        self.shutdown.close_connections().await;
        DaemonInfo::remove(&self.home);
        let Self { services, store, .. } = self;
        drop(services);
        // Last, because dropping the store syncs it and releases the lock.
        let _ = tokio::task::spawn_blocking(move || drop(store)).await;
        drained
    }
}
