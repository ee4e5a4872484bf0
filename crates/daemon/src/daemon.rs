//! Starts and stops the daemon. The start runs in order, from the lock on the state folder to the open port; every error of the
//! start occurs before the port is opened.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tribune_cli_agents::CliBackend;
use tribune_config::hook_spec::HookPoint;
use tribune_config::{Anonymous, Config, RedactConfig, Sandbox, StartupValidation};
use tribune_contract::SandboxMode;
use tribune_egress::{EgressRules, Network, RealNetwork, SessionSocketError, SessionSocketService};
use tribune_gateway::status::Status;
use tribune_gateway::{
    Api, Authenticator, Gateway, GatewayLimits, Names, Parts, Principal, Proxy, ProxyParts, SessionModel,
    Timeouts,
};
use tribune_governance::approval::Inbox;
use tribune_governance::gate::hooks::{HookEvent, HookSandbox, Hooks};
use tribune_governance::gate::{ApproverAvailability, Gate};
use tribune_governance::models::inventory::take_inventory;
use tribune_governance::models::startup_check::validate;
use tribune_governance::models::{
    AgentPrompts, ConfiguredModels, Env, ModelInventory, Providers, RequestLog, process_env,
};
use tribune_governance::policy_files;
use tribune_governance::policy_files::LawError;
use tribune_governance::spend::Budgets;
use tribune_governance::storage_handles::StorageHandles;
use tribune_governance::transcript::TranscriptLimits;
use tribune_governance::transcripts::{Projection, Transcripts};
use tribune_governance::turn::{
    AgentFiles, ConstitutionalRuntime, Governance, GovernanceParts, ModelRequests, OutOfTurn, Policy,
    Recovered, ToolExecutor,
};
use tribune_providers::ModelRef;
use tribune_records::agents::{ANONYMOUS, RUN_BACKEND};
use tribune_redact::Redactor;
use tribune_registry::profiles::{Profiles, ProfilesError};
use tribune_registry::{
    Agents, Approvers, ApproversError, Board, DEFAULT_ROSTER, Mailbox, RosterError, asks_a_model,
};
use tribune_runtime::AgentRuntime;
use tribune_runtime::native;
use tribune_runtime::native::NativeBackend;
use tribune_runtime::rehearsal::{BACKEND, RehearsalBackend, SceneError, Scenes};
use tribune_sessions::canary;
use tribune_sessions::canary::{Canaries, Guarded, NativeStage, ProbeTarget, RehearsalStage};
use tribune_sessions::cli_agents;
use tribune_sessions::cli_agents::{CliAgents, CliAgentsParts, CliStage};
use tribune_sessions::run::{RunBackend, Runs};
use tribune_sessions::session::{Drained, SessionError, SessionLimits, SessionManager, SubAgents};
use tribune_storage::clock::Clock;
use tribune_storage::files;
use tribune_storage::files::Secrecy;
use tribune_storage::home::Home;
use tribune_storage::store::{Store, StoreError};
use tribune_storage::vault::Vault;
use tribune_tools::mcp::McpServers;
use tribune_tools::{Egress, HostTools, Launcher, SandboxedLauncher, Spawner, UnsandboxedLauncher};

/// The default port of `gateway.address`.
const DEFAULT_PORT: u16 = 18789;

/// Time that connections have to close when the daemon stops.
const CONNECTION_DRAIN: Duration = Duration::from_secs(3);

/// Why the daemon did not start. No request was served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Law(#[from] LawError),
    #[error(transparent)]
    Roster(#[from] RosterError),
    #[error(transparent)]
    Approvers(#[from] ApproversError),
    #[error(transparent)]
    Profiles(#[from] ProfilesError),
    #[error(transparent)]
    Scenes(#[from] SceneError),
    #[error("sessions could not be prepared: {0}")]
    Sessions(#[from] SessionError),
    #[error(
        "{0} is taken by another program{which}: stop that program, or choose another port with --port or gateway.address",
        which = if .0.port() == DEFAULT_PORT { " (OpenClaw's gateway has the same default)" } else { "" }
    )]
    PortTaken(SocketAddr),
    #[error(
        "the roster has {standing} standing agents, but sessions.maxOpen is {max_open}: raise it in config.json5, or make fewer agents standing"
    )]
    TooManyStanding { standing: usize, max_open: usize },
    #[error(
        "the daemon cannot listen on {address} ({error}): choose another address with --port or gateway.address"
    )]
    Listen { address: SocketAddr, error: io::Error },
    #[error(
        "{model} cannot be used: {fault}. The provider's startupValidation is \"strict\"; with \"warn\" the daemon would start anyway"
    )]
    Model { model: String, fault: String },
    #[error(transparent)]
    Sockets(#[from] SessionSocketError),
    #[error("`{path}` cannot be written ({error})", path = .path.display())]
    File { path: PathBuf, error: io::Error },
}

/// `run/daemon.json`, which lets clients find the running daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    pub pid: u32,
    pub address: SocketAddr,
    pub started_at: String,
    pub version: String,
}

impl DaemonInfo {
    pub fn path(home: &Home) -> PathBuf {
        home.root().join("run").join("daemon.json")
    }

    /// The last written file of this state folder. The daemon may have ended since.
    pub fn read(home: &Home) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::path(home)).ok()?).ok()
    }
}

/// Replacements for parts of the daemon that only a caller in the same process can give, such as tests.
#[derive(Default)]
pub struct DaemonOverrides {
    /// Backends besides the built-in ones, under their names in the roster. They are governed like the built-in ones.
    pub backends: Vec<(String, Arc<dyn AgentRuntime>)>,
    pub timeouts: Timeouts,
    /// The environment that API keys come from, instead of that of the process.
    pub env: Option<Env>,
    /// Timeouts of model requests.
    pub provider_timeouts: tribune_providers::RequestTimeouts,
    /// The network that sandboxes reach, instead of the real one.
    pub network: Option<Arc<dyn Network>>,
    pub socket_limits: tribune_egress::SocketLimits,
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
    address: SocketAddr,
    token_path: PathBuf,
    recovered: Recovered,
    standing: usize,
    drain: Duration,
    sessions: SessionManager,
    cli_backends: [CliBackend; 2],
    canaries: Arc<Canaries>,
    mcp: Arc<McpServers>,
    socket_service: SessionSocketService,
    providers: Arc<Providers>,
    agents: Arc<Agents>,
    store: Arc<Store>,
    /// Stops accepting.
    accepting: CancellationToken,
    /// Ends connections.
    stopping: CancellationToken,
    draining: CancellationToken,
    tasks: TaskTracker,
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
        extras: DaemonOverrides,
    ) -> Result<Self, StartError> {
        // Opens the ledger and locks the state folder: a second daemon fails here.
        let store = open_store(home, &clock).await?;
        let ledger = store.writer()?;
        let readers = store.readers()?;
        let log = readers.now(|reader| Ok(reader.key_in_force()?.name().to_owned()))?;

        let storage = StorageHandles {
            ledger: ledger.clone(),
            readers: readers.clone(),
            vault: Arc::new(Vault::open(home, &store)?),
            clock: Arc::clone(&clock),
        };

        let work = TaskTracker::new();
        let law = Arc::new(policy_files::load(home.root(), &tribune_tools::NAMES)?);
        policy_files::keep(home.root(), &law)?;
        let inbox = Inbox::load(storage.clone(), work.clone())?;
        let hook_sandbox = HookSandbox::new(home.root(), config.sandbox);
        let hooks = Hooks::new(config.hooks.clone(), hook_sandbox, work.clone());
        make_folders(home)?;
        let token_path = home.root().join("run").join("token");
        let token = operator_token(&token_path)?;
        let env = extras.env.unwrap_or_else(process_env);
        let providers = Arc::new(Providers::new(&config.models, &env, extras.provider_timeouts));
        let known = Providers::secrets(&config.models, &env).into_iter().chain([token.clone()]).collect();
        let redactor = Arc::new(redactor(&config.redact).with_exact_values(known));
        let gate = Gate::new(law, inbox, ApproverAvailability::Someone, storage.clone())?
            .with_tools(HostTools::specs())
            .with_hooks(hooks)
            .with_redactor(Arc::clone(&redactor));

        let data = home.root().join("data");
        let roster = data.join("agent-roster.jsonl");
        write_if_missing(&roster, DEFAULT_ROSTER.as_bytes())?;
        let agents = Arc::new(Agents::load(roster)?);
        let gate = Arc::new(gate.with_agents(Arc::clone(&agents)));
        check_standing(agents.standing().len(), config)?;
        let approvers = Arc::new(Approvers::load(data.join("approvers.json"))?);
        let mailbox =
            Arc::new(Mailbox::new(data.join("agent-mailbox.jsonl")).with_redactor((*redactor).clone()));
        let board = Arc::new(Board::new(home.root().join("board.md")));
        let requests = RequestLog::new(home.root().join("logs"), &config.log);
        let budgets =
            Arc::new(Budgets::new(config.spend.clone(), ledger.clone(), readers.clone(), Arc::clone(&clock)));
        let out_of_turn = Arc::new(OutOfTurn::new(Arc::clone(&gate), storage.clone()));

        // The sockets of sessions and the services behind them.
        let (accepting, stopping, draining) =
            (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let proxy = Arc::new(Proxy::new(ProxyParts {
            providers: Arc::clone(&providers),
            agents: Arc::clone(&agents),
            gate: Arc::clone(&gate),
            budgets: Arc::clone(&budgets),
            redactor: Arc::clone(&redactor),
            requests: requests.clone(),
            ledger,
            clock: Arc::clone(&clock),
            max_body: config.gateway.max_message_bytes,
            body_timeout: config.gateway.idle,
            draining: draining.clone(),
            stopping: stopping.clone(),
        }));
        let rules = EgressRules {
            agents: config.egress.agents.clone(),
            deny: config.egress.deny.clone(),
            unlisted: config.egress.unlisted,
        };
        let network = extras.network.unwrap_or_else(|| Arc::new(RealNetwork));
        let model = Arc::new(SessionModel(Arc::clone(&proxy)));
        let socket_service = SessionSocketService::new(
            home,
            Arc::clone(&out_of_turn),
            model,
            rules,
            network,
            extras.socket_limits,
        )?;

        let mcp = Arc::new(McpServers::new(
            home,
            config,
            Arc::clone(&redactor),
            socket_service.clone(),
            Arc::clone(&out_of_turn),
        ));
        let known = Arc::clone(&agents);
        let sub_agents = Arc::new(SubAgents::default());
        let egress = config.egress.clone();
        // Set when the port is open, long after the tools are created.
        let status_slot = Arc::new(OnceLock::<Arc<Status>>::new());
        let reported = Arc::clone(&status_slot);
        let tools = HostTools::new(
            home.root().to_owned(),
            Arc::clone(&mailbox),
            Arc::clone(&clock),
            Arc::new(move |agent| known.knows(agent)),
        );
        let tools = tools
            .with_launcher(launcher(home, config))
            .hiding(&config.workspaces.hide)
            .with_web(Egress::new(egress.mode, egress.allow, egress.deny), config.web_search.endpoint.clone())
            .with_status(Arc::new(move || reported.get().map(|status| status.for_agents())))
            .with_budgets(Arc::clone(&budgets))
            .with_mcp(Arc::clone(&mcp))
            .with_socket_service(socket_service.clone())
            .with_spawner(Arc::clone(&sub_agents) as Arc<dyn Spawner>);
        let tools = Arc::new(tools);

        let limits = TranscriptLimits {
            max_bytes: config.transcript.max_bytes,
            max_turns: config.transcript.max_turns,
        };
        let projection = if config.transcript.enabled { Projection::On } else { Projection::Off };
        let transcripts = Transcripts::new(home.root().to_owned(), limits, (*redactor).clone(), projection);

        let session_home = home.clone();
        let governance = Arc::new(Governance::new(GovernanceParts {
            home: home.clone(),
            storage,
            policy: Policy { gate, out_of_turn, redactor, turn_limit: config.sessions.turn },
            agent_files: AgentFiles {
                mailbox,
                board,
                prompts: AgentPrompts::new(home.root().to_owned()),
                transcripts,
            },
            model_requests: ModelRequests { budgets, log: requests, health: providers.answers().clone() },
            tools: Arc::clone(&tools) as Arc<dyn ToolExecutor>,
            on_forget: Box::new(move |session| cli_agents::forget_session(&session_home, session)),
            background: work,
        }));
        let recovered = governance.recover().await?;
        governance.withdraw_unreadable().await.map_err(SessionError::from)?;
        governance.policy.out_of_turn.withdraw_interrupted_requests().await?;
        if !governance.policy.gate.is_frozen() {
            governance.resume_parked().await.map_err(SessionError::from)?;
        }

        let scenes = Scenes::builtin_and(&home.root().join("scenes"))?;
        let rehearsal: Arc<dyn AgentRuntime> = Arc::new(RehearsalBackend::new(scenes));
        let models = Arc::new(ConfiguredModels::new(Arc::clone(&providers)));
        let prepared = Arc::clone(governance.prepared_services());
        let native: Arc<dyn AgentRuntime> = Arc::new(NativeBackend::new(models, prepared));
        let profiles = Profiles::load(home)?;
        let cli_agents = Arc::new(CliAgents::new(CliAgentsParts {
            home: home.clone(),
            sandbox: config.sandbox,
            hide: config.workspaces.hide.clone(),
            profiles,
            agents: Arc::clone(&agents),
            providers: Arc::clone(&providers),
            governance: Arc::clone(&governance),
            mcp: Arc::clone(&mcp),
            socket_service: socket_service.clone(),
        }));
        let spawner = || Arc::clone(&cli_agents) as Arc<dyn tribune_cli_agents::Spawner>;
        let process_limit = tribune_cli_agents::ProcessLimit::new(config.cli_agents.max_running);
        let cli_backends = [
            CliBackend::acp(spawner(), tribune_cli_agents::IDLE_TIMEOUT, &process_limit),
            CliBackend::claude_code(spawner(), tribune_cli_agents::IDLE_TIMEOUT, &process_limit),
        ];
        check_models(&providers, &agents, &governance).await?;
        canary::sweep(home);
        let stage = |backend: &CliBackend| {
            let stage = CliStage { cli_agents: Arc::clone(&cli_agents), backend: backend.clone() };
            (backend.name(), Arc::new(stage) as Arc<dyn ProbeTarget>)
        };
        let [acp, claude_code] = &cli_backends;
        let stages = [
            (BACKEND, Arc::new(RehearsalStage) as Arc<dyn ProbeTarget>),
            (native::BACKEND, Arc::new(NativeStage::default())),
            stage(acp),
            stage(claude_code),
        ];
        let canaries = Canaries::new(&governance, &agents, stages, &config.canary);
        let built_in = [
            (BACKEND, rehearsal),
            (native::BACKEND, native),
            (acp.name(), Arc::new(acp.clone())),
            (claude_code.name(), Arc::new(claude_code.clone())),
        ];
        let built_in = built_in.map(|(name, inner)| {
            let guarded = Guarded { inner, canaries: Arc::clone(&canaries) };
            (name.to_owned(), Arc::new(guarded) as Arc<dyn AgentRuntime>)
        });
        let mut runtimes: HashMap<String, Arc<dyn AgentRuntime>> = built_in
            .into_iter()
            .chain(extras.backends)
            .map(|(name, backend)| {
                let governed = ConstitutionalRuntime::new(backend, Arc::clone(&governance));
                (name, Arc::new(governed) as Arc<dyn AgentRuntime>)
            })
            .collect();
        let mut backends: Vec<String> = runtimes.keys().cloned().collect();
        backends.sort();

        let limits = SessionLimits {
            ttl: config.sessions.ttl,
            queue: config.sessions.queue,
            max_open: config.sessions.max_open,
        };
        let idle = ConstitutionalRuntime::new(
            Arc::new(RunBackend) as Arc<dyn AgentRuntime>,
            Arc::clone(&governance),
        );
        runtimes.insert(RUN_BACKEND.to_owned(), Arc::new(idle));
        let sessions = SessionManager::new(
            governance,
            runtimes,
            Arc::clone(&agents),
            Arc::clone(tools.schedules()),
            &sub_agents,
            limits,
        )?;
        let workspaces = &config.workspaces;
        let runs = Runs::new(home, config.sandbox, workspaces, sessions.clone(), socket_service.clone());
        let runs = Arc::new(runs);
        runs.recover().await?;
        let standing = sessions.preload().await?;

        let listener = listen(config.gateway.address).await?;
        let address = listener
            .local_addr()
            .map_err(|error| StartError::Listen { address: config.gateway.address, error })?;
        let status = Arc::new(Status {
            address,
            home: home.root().to_owned(),
            started_at: clock.now(),
            backends,
            log: log.clone(),
            recovered: recovered.clone(),
            draining: draining.clone(),
            connections: AtomicUsize::new(0),
        });
        // INVARIANT: it is set only here, so this is the new status.
        let status = Arc::clone(status_slot.get_or_init(|| status));
        let api = Api {
            sessions: sessions.clone(),
            agents: Arc::clone(&agents),
            approvers: Arc::clone(&approvers),
            readers,
            store: Arc::clone(&store),
            providers: Arc::clone(&providers),
            status,
            proxy,
            runs: Arc::clone(&runs),
            canaries: Arc::clone(&canaries),
            mcp: Arc::clone(&mcp),
            cli_agents: Arc::clone(&cli_agents),
            others: cli_backends.clone(),
        };
        let gateway = Gateway::new(Parts {
            api,
            doorman: Authenticator::new(&token, log, approvers),
            names: Names::new(address, &config.gateway.hosts, &config.gateway.origins),
            limits: GatewayLimits {
                max_connections: config.gateway.max_connections,
                max_message_bytes: config.gateway.max_message_bytes,
                idle: config.gateway.idle,
                patience: extras.timeouts,
            },
            anonymous: anonymous(config.gateway.anonymous),
            stopping: stopping.clone(),
        });
        let tasks = TaskTracker::new();
        tasks.spawn(gateway.serve(listener, accepting.clone()));
        tasks.spawn(Arc::clone(sessions.governance()).expire_approvals(stopping.clone()));
        let sweeper = sessions.clone();
        tasks.spawn(async move { sweeper.sweep().await });
        let (waker, stop_waking) = (sessions.clone(), draining.clone());
        tasks.spawn(async move { waker.wake(stop_waking).await });
        tasks.spawn(Arc::clone(&canaries).keep_trying());

        write_daemon_info(home, address, &*clock)?;
        let gate = &sessions.governance().policy.gate;
        let (version, constitution_hash) = (env!("CARGO_PKG_VERSION"), gate.law.hash().to_string());
        let started = HookEvent::GatewayStart { address: address.to_string(), version, constitution_hash };
        gate.hooks.tell(HookPoint::GatewayStart, &started);
        tracing::info!(%address, standing, turns = recovered.turns, calls = recovered.calls, forgets = recovered.forgets, "ready");
        Ok(Self {
            home: home.clone(),
            address,
            token_path,
            recovered,
            standing,
            drain: config.gateway.drain,
            sessions,
            cli_backends,
            canaries,
            mcp,
            socket_service,
            providers,
            agents,
            store,
            accepting,
            stopping,
            draining,
            tasks,
        })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The file with the operator's token.
    pub fn token_path(&self) -> &Path {
        &self.token_path
    }

    pub const fn sessions(&self) -> &SessionManager {
        &self.sessions
    }

    /// The socket services of sandboxes.
    pub const fn socket_service(&self) -> &SessionSocketService {
        &self.socket_service
    }

    /// The inventory of providers, models and agents. Waits up to one second for the startup check.
    pub async fn survey(&self) -> ModelInventory {
        self.providers.answers().settled().await;
        take_inventory(&self.providers, &self.agents.all())
    }

    /// The unfinished work of an earlier daemon that was recovered.
    pub const fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// Number of open sessions of standing agents.
    pub const fn standing(&self) -> usize {
        self.standing
    }

    /// Stops in two phases: accepts no more work and lets turns end; then ends the rest. If `hurry` completes, the second phase
    /// starts immediately.
    pub async fn stop(self, hurry: impl Future<Output = ()>) -> Drained {
        tracing::info!("stopping: no new work is accepted");
        // The port stays open meanwhile: new requests get an error that says so, and a client that lost its connection can find
        // its turn again.
        self.draining.cancel();
        let deadline = self.drain;
        let drained = {
            let mut hurry = std::pin::pin!(hurry);
            let mut draining = std::pin::pin!(self.sessions.drain(deadline));
            tokio::select! {
                drained = draining.as_mut() => drained,
                () = hurry.as_mut() => self.sessions.drain(Duration::ZERO).await,
            }
        };
        tracing::info!(
            cancelled = drained.cancelled,
            abandoned = drained.abandoned,
            "stopping: all turns have ended"
        );
        self.canaries.leave().await;
        // Before the sockets are closed, because an agent that is asked to end may still have data to save.
        for backend in &self.cli_backends {
            backend.shutdown().await;
        }
        self.mcp.leave().await;
        self.socket_service.close().await;
        self.accepting.cancel();
        self.stopping.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(CONNECTION_DRAIN, self.tasks.wait()).await;
        // Only a daemon that crashed leaves the file behind.
        let _ = std::fs::remove_file(DaemonInfo::path(&self.home));
        let Self { sessions, cli_backends, canaries, socket_service, store, .. } = self;
        drop((sessions, cli_backends, canaries, socket_service));
        // Last, because dropping the store syncs it and releases the lock.
        let _ = tokio::task::spawn_blocking(move || drop(store)).await;
        drained
    }
}

/// Runs the startup check of the models that the agents use. Strict providers are awaited; the others are checked in the
/// background, and their faults are logged.
async fn check_models(
    providers: &Arc<Providers>,
    agents: &Agents,
    governance: &Governance,
) -> Result<(), StartError> {
    let default = providers.default_model();
    let named = agents.all().into_iter().filter(|agent| asks_a_model(&agent.backend));
    let named = named.filter_map(|agent| match agent.model {
        Some(model) => model.parse::<ModelRef>().ok(),
        None => default.clone(),
    });
    let used: BTreeSet<ModelRef> = named.chain(default.clone()).collect();
    let is_strict = |model: &ModelRef| {
        let provider = providers.get(model.provider());
        provider.is_some_and(|own| own.config.startup_validation == StartupValidation::Strict)
    };
    let (strict, others): (Vec<ModelRef>, Vec<ModelRef>) = used.into_iter().partition(is_strict);
    for checked in validate(Arc::clone(providers), strict).await {
        if let Some(fault) = checked.fault {
            return Err(StartError::Model { model: checked.model.to_string(), fault });
        }
    }
    let providers = Arc::clone(providers);
    let leaving = governance.shutdown().clone();
    governance.background().spawn(async move {
        let checked = tokio::select! {
            () = leaving.cancelled() => return,
            checked = validate(Arc::clone(&providers), others) => checked,
        };
        providers.answers().settle();
        for checked in checked {
            if let Some(fault) = checked.fault {
                tracing::warn!("{} cannot be used yet: {fault}", checked.model);
            }
        }
    });
    Ok(())
}

/// Checks that `sessions.maxOpen` has room for all standing agents.
pub fn check_standing(standing: usize, config: &Config) -> Result<(), StartError> {
    let max_open = config.sessions.max_open;
    if standing <= max_open { Ok(()) } else { Err(StartError::TooManyStanding { standing, max_open }) }
}

async fn open_store(home: &Home, clock: &Arc<dyn Clock>) -> Result<Arc<Store>, StartError> {
    let (home, clock) = (home.clone(), Arc::clone(clock));
    let opened = tokio::task::spawn_blocking(move || Store::open(&home, &*clock)).await;
    Ok(Arc::new(opened.map_err(|_| StoreError::Closed)??))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::PortTaken(address),
        _ => StartError::Listen { address, error },
    })
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

/// The redactor for everything that is written or sent: secrets, and what the configuration adds.
fn redactor(config: &RedactConfig) -> Redactor {
    let mut redactor = Redactor::new();
    if config.emails {
        redactor = redactor.with_emails();
    }
    if config.phones {
        redactor = redactor.with_phones();
    }
    redactor
}

fn anonymous(config: Anonymous) -> Option<Principal> {
    match config {
        Anonymous::Deny => None,
        // INVARIANT: the name is a valid id.
        Anonymous::DefaultMandate => ANONYMOUS.parse().ok().map(|id| Principal::Anonymous { id }),
    }
}

fn make_folders(home: &Home) -> Result<(), StartError> {
    use std::os::unix::fs::DirBuilderExt as _;
    for folder in ["data", "agents", "logs"] {
        let path = home.root().join(folder);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|error| StartError::File { path, error })?;
    }
    Ok(())
}

/// Writes a file unless it exists. Returns whether it was written.
pub fn write_if_missing(path: &Path, content: &[u8]) -> Result<bool, StartError> {
    if path.symlink_metadata().is_ok() {
        return Ok(false);
    }
    files::replace(path, content, Secrecy::Owner)
        .map_err(|error| StartError::File { path: path.to_owned(), error })?;
    Ok(true)
}

/// Reads the operator's token from its file. Creates one if the file is missing or holds no valid token.
fn operator_token(path: &Path) -> Result<String, StartError> {
    let failed = |error| StartError::File { path: path.to_owned(), error };
    if let Ok(text) = std::fs::read_to_string(path) {
        let token = text.trim();
        let is_token = token.strip_prefix("trb_").is_some_and(|hex| {
            hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        });
        if is_token {
            // The mode may have been widened since.
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
            return Ok(token.to_owned());
        }
    }
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| failed(io::Error::other(error.to_string())))?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = format!("trb_{hex}");
    files::replace(path, format!("{token}\n").as_bytes(), Secrecy::Owner).map_err(failed)?;
    Ok(token)
}

fn write_daemon_info(home: &Home, address: SocketAddr, clock: &dyn Clock) -> Result<(), StartError> {
    let path = DaemonInfo::path(home);
    let whereabouts = DaemonInfo {
        pid: std::process::id(),
        address,
        started_at: clock.now().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let json = serde_json::to_vec(&whereabouts).unwrap_or_default();
    files::replace(&path, &json, Secrecy::Owner).map_err(|error| StartError::File { path, error })
}
