//! Starts CLI agents, each in a sandbox of its own. [`tribune_cli_agents`] drives the started process.
//!
//! An agent sees its workspace, its program, the home folder of its session ([`session_dir`]), and two or three ports on its
//! loopback interface: the model proxy, which inserts the provider key; the egress proxy, which goes through the gate; and the MCP
//! servers of its session, if it has any. It has no key, no environment variable of the daemon, and no other connection. If its
//! mandate has no tool that changes files, its workspace is read-only; where it has none that reads them either, it sees an empty
//! folder.

mod canary_target;
mod clear_dir;
mod git;
mod launch_profile;
mod process;
mod process_count;
mod session_dir;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tribune_cli_agents::Profile;
use tribune_cli_agents::{SessionMcpServers, SpawnedAgent, Spawner};
use tribune_config::Sandbox;
use tribune_constitution::ApprovalMode;
use tribune_egress::{SessionSocketError, SessionSocketService, SessionSockets, SocketService};
use tribune_governance::models::Providers;
use tribune_governance::models::agent_model::model_of;
use tribune_governance::turn::Governance;
use tribune_providers::ModelRef;
use tribune_records::exec::WORKSPACE;
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_registry::profiles::Profiles;
use tribune_registry::{Agents, RosterAgent, profiles};
use tribune_runtime::{AgentId, ErrorKind, Handle, RuntimeError, SessionKey};
use tribune_sandbox::workspace::{AutorunSnapshot, WorkspaceError};
use tribune_sandbox::{Child, InstanceId, ProgramStreams, SandboxLauncher};
use tribune_storage::home::Home;
use tribune_tools::mcp::WRITE_TOOLS;
use tribune_tools::mcp::{McpEndpoint, McpServers};

pub use self::canary_target::CliTarget;
use self::launch_profile::{LaunchSpec, WorkspaceAccess};
use self::process::SandboxedProcess;
use self::process_count::SandboxProcessCounter;
use self::session_dir::AgentSessionDir;
pub use self::session_dir::forget_session;
use crate::canary::{Milestone, ScriptedModel};

/// Tools that read files of a workspace, beside those that change them.
const READ_TOOLS: [&str; 2] = ["read", "search"];

/// What [`CliAgents`] is made of.
pub struct CliAgentsParts {
    pub home: Home,
    pub sandbox: Sandbox,
    /// Patterns of files that are hidden from every agent's workspace.
    pub hide: Vec<String>,
    pub profiles: Profiles,
    pub agents: Arc<Agents>,
    pub providers: Arc<Providers>,
    pub governance: Arc<Governance>,
    pub mcp: Arc<McpServers>,
    pub socket_service: SessionSocketService,
}

impl std::fmt::Debug for CliAgentsParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CliAgentsParts")
    }
}

/// Starts CLI agents in sandboxes.
pub struct CliAgents {
    home: Home,
    sandbox: Sandbox,
    /// Patterns of files that are hidden from every agent's workspace.
    hide: Vec<String>,
    launcher: SandboxLauncher,
    profiles: Profiles,
    agents: Arc<Agents>,
    providers: Arc<Providers>,
    governance: Arc<Governance>,
    mcp: Arc<McpServers>,
    socket_service: SessionSocketService,
    launches: AtomicU64,
    /// Snapshots of the autorun files in the workspaces of sessions, from the last check.
    baselines: Mutex<HashMap<SessionKey, AutorunBaseline>>,
    /// Agents of canary sessions.
    played: Mutex<HashMap<SessionKey, CanaryAgent>>,
}

/// The agent of a canary session, which is not in the roster.
#[derive(Debug, Clone)]
struct CanaryAgent {
    profile: String,
    model: String,
    play: Arc<ScriptedModel>,
}

/// The autorun files of a workspace at the last check.
#[derive(Debug, Clone)]
struct AutorunBaseline {
    folder: PathBuf,
    standing: AutorunSnapshot,
}

/// The resolved agent of a session.
struct ResolvedAgent<'a> {
    profile: &'a Profile,
    /// The provider's name of the model; `None` if the agent uses no configured model.
    model: Option<String>,
    play: Option<Arc<ScriptedModel>>,
}

/// The sockets of an agent that is about to start.
struct AgentSockets {
    sockets: SessionSockets,
    /// The user that the agent runs as and that owns the sockets, if that is not the daemon's own user.
    user: Option<u32>,
    /// The MCP servers of its session, if there are any.
    servers: Option<SessionMcpServers>,
}

/// An agent whose process has started.
struct Launched {
    child: Child,
    sockets: SessionSockets,
    conversation: Option<String>,
    instructions: Option<String>,
    baseline: Option<AutorunBaseline>,
}

impl CliAgents {
    pub fn new(parts: CliAgentsParts) -> Self {
        let launcher = SandboxLauncher::this_program(InstanceId::of_state_folder(parts.home.root()));
        Self {
            home: parts.home,
            sandbox: parts.sandbox,
            hide: parts.hide,
            launcher,
            profiles: parts.profiles,
            agents: parts.agents,
            providers: parts.providers,
            governance: parts.governance,
            mcp: parts.mcp,
            socket_service: parts.socket_service,
            launches: AtomicU64::new(0),
            baselines: Mutex::default(),
            played: Mutex::default(),
        }
    }

    /// The tail of the standard error of a session's agent.
    pub fn stderr(&self, session: &Handle) -> Option<String> {
        AgentSessionDir::of(&self.home, session).stderr()
    }

    /// Resolves the agent of a session, if it can run here.
    fn resolve_agent(&self, session: &SessionKey) -> Result<ResolvedAgent<'_>, RuntimeError> {
        let played = self.played.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned();
        if let Some(CanaryAgent { profile, model, play }) = played {
            let profile = self.installed(&profile)?;
            return Ok(ResolvedAgent { profile, model: Some(model), play: Some(play) });
        }
        let profile = self.profile(session.agent())?;
        let model = self.model(session.agent(), profile)?.map(|model| model.model().to_owned());
        Ok(ResolvedAgent { profile, model, play: None })
    }

    /// The profile of an agent of the roster.
    fn profile(&self, agent: &AgentId) -> Result<&Profile, RuntimeError> {
        let refused = |what: String| RuntimeError::new(ErrorKind::NoProfile, what);
        let (backend, id) = match self.agents.agent(agent) {
            Some(RosterAgent { backend, profile: Some(id), .. }) => (backend, id),
            Some(_) | None => {
                return Err(refused(format!(
                    "the agent `{agent}` has no profile: name one in its line of data/agent-roster.jsonl, as in \"profile\":\"claude\""
                )));
            }
        };
        let profile = self.installed(&id)?;
        let expected = profile.protocol().backend();
        if backend != expected {
            return Err(refused(format!(
                "the profile `{id}` speaks {} and is not for the backend `{backend}`: name the backend `{expected}` in the line of \
                 `{agent}` in data/agent-roster.jsonl",
                profile.protocol().title()
            )));
        }
        Ok(profile)
    }

    /// A profile whose program is installed, if the sandbox can run it.
    fn installed(&self, id: &str) -> Result<&Profile, RuntimeError> {
        match self.sandbox {
            Sandbox::Full => {}
            Sandbox::Landlock | Sandbox::Off => {
                let what =
                    "CLI agents run only in the full sandbox: set `sandbox` to \"full\" in config.json5";
                return Err(RuntimeError::new(ErrorKind::Sandbox, what));
            }
        }
        let profile = self.profiles.find(id).map_err(|what| RuntimeError::new(ErrorKind::NoProfile, what))?;
        if let Some(what) = profiles::missing(&self.home, profile) {
            return Err(RuntimeError::new(ErrorKind::NotInstalled, what));
        }
        Ok(profile)
    }

    /// The model of an agent of this profile; `None` if the profile uses no configured model.
    fn model(&self, agent: &AgentId, profile: &Profile) -> Result<Option<ModelRef>, RuntimeError> {
        if profile.model().is_none() {
            return Ok(None);
        }
        let model = model_of(&self.agents, &self.providers, agent).ok_or_else(|| {
            let what = format!(
                "the agent `{agent}` has no model: name one in its line of data/agent-roster.jsonl, or set models.default in \
                 config.json5; `tribune models` lists them"
            );
            RuntimeError::new(ErrorKind::NoModel, what)
        })?;
        self.providers.resolve(&model)?;
        Ok(Some(model))
    }

    /// The workspace of the session, and what the law can allow there.
    async fn workspace(&self, session: &Handle) -> Result<(WorkspaceRoots, WorkspaceAccess), RuntimeError> {
        let key = session.key.to_string();
        let row = self.governance.storage.readers.read(move |reader| reader.session(&key)).await;
        let row = row.map_err(|error| RuntimeError::new(ErrorKind::Storage, error.to_string()))?;
        let agent = session.key.agent().clone();
        let mode = self.agents.agent(&agent).and_then(|agent| agent.mode);
        let Some(row) = row else { return Ok((WorkspaceRoots::own(agent), WorkspaceAccess::None)) };
        let roots =
            WorkspaceRoots::new(agent, row.terms.workspace.as_deref().map(|folder| Path::new(folder).into()));
        let is_read_only = matches!(mode, Some(ApprovalMode::ApproveReads | ApprovalMode::DenyAll));
        let allows = |tool: &str| self.governance.policy.gate.allows_tool(&row, tool);
        let changes = WRITE_TOOLS.into_iter().any(allows);
        let access = match changes || READ_TOOLS.into_iter().any(allows) {
            true if changes && !is_read_only => WorkspaceAccess::Change,
            true => WorkspaceAccess::Read,
            false => WorkspaceAccess::None,
        };
        Ok((roots, access))
    }

    /// Opens the sockets of an agent: those of its session, or isolated ones with the scripted model of a canary. Refuses when
    /// the daemon stops.
    fn open_sockets(
        &self,
        session: &Handle,
        play: Option<&Arc<ScriptedModel>>,
    ) -> Result<AgentSockets, RuntimeError> {
        let failed = |error: SessionSocketError| RuntimeError::new(ErrorKind::NotStarted, error.to_string());
        let socket_service = &self.socket_service;
        if socket_service.is_closing() {
            let what = "the daemon is stopping and starts no agents";
            return Err(RuntimeError::new(ErrorKind::Draining, what));
        }
        let endpoint = if play.is_none() { McpEndpoint::to(&self.mcp, &session.key) } else { None };
        let (endpoint, servers) = endpoint.unzip();
        let sockets = match play {
            Some(play) => {
                socket_service.open_isolated(&session.key, Arc::clone(play) as Arc<dyn SocketService>)
            }
            None => {
                let servers = endpoint.map(|endpoint| Arc::new(endpoint) as Arc<dyn SocketService>);
                socket_service.open_serving(&session.key, servers)
            }
        };
        let sockets = sockets.map_err(failed)?;
        let user = rustix::process::geteuid().is_root().then(tribune_sandbox::fresh_user);
        if let Some(user) = user {
            sockets.give_to(user, user).map_err(failed)?;
        }
        Ok(AgentSockets { sockets, user, servers })
    }
}

impl std::fmt::Debug for CliAgents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CliAgents")
    }
}

#[async_trait]
impl Spawner for CliAgents {
    fn check(&self, session: &Handle) -> Result<(), RuntimeError> {
        self.resolve_agent(&session.key).map(drop)
    }

    async fn spawn(&self, session: &Handle) -> Result<SpawnedAgent, RuntimeError> {
        let failed = |what: String| RuntimeError::new(ErrorKind::NotStarted, what);
        let ResolvedAgent { profile, model, play } = self.resolve_agent(&session.key)?;
        let profile = profile.clone();
        let (roots, access) = self.workspace(session).await?;
        // The workspace of a canary is there and writable; otherwise the mount could stop a call that the gate lets pass.
        let access = if play.is_some() { WorkspaceAccess::Change } else { access };
        let AgentSockets { sockets, user, servers } = self.open_sockets(session, play.as_ref())?;
        let spec = LaunchSpec {
            number: self.launches.fetch_add(1, Ordering::Relaxed),
            program: profiles::program_folder(&self.home, &profile),
            session_dir: AgentSessionDir::of(&self.home, session),
            home: self.home.clone(),
            ground: roots,
            model,
            access,
            user,
            hide: self.hide.clone(),
            servers: servers.as_ref().map(|servers| servers.all.clone()).unwrap_or_default(),
        };
        let (filled, launcher) = (profile.clone(), self.launcher.clone());
        let launching = tokio::task::spawn_blocking(move || {
            let conversation = spec.session_dir.conversation().filter(|id| filled.takes_up(id));
            let launch = spec.launch(&filled, &sockets, conversation.clone())?;
            let instructions = spec.instructions(&filled);
            let baseline = (access == WorkspaceAccess::Change).then(|| spec.look()).transpose()?;
            // If the caller stops waiting, the child is dropped, which ends the sandbox.
            let child =
                launcher.launch(&launch, ProgramStreams::piped()).map_err(|error| error.to_string())?;
            Ok::<_, String>(Launched { child, sockets, conversation, instructions, baseline })
        });
        let launched = launching.await.map_err(|_| failed("the daemon is being torn down".to_owned()))?;
        let Launched { mut child, sockets, conversation, instructions, baseline } =
            launched.map_err(|what| failed(format!("{} cannot be started: {what}", profile.title())))?;
        let broken = |error: std::io::Error| {
            failed(format!("the pipes of an agent cannot be used ({error}): try again"))
        };
        let pipes = process::pipes(&mut child).map_err(broken)?;
        let process_counter = SandboxProcessCounter::below(child.id());
        let process = SandboxedProcess::new(child, sockets).map_err(broken)?;
        if let Some(play) = play {
            play.reach(Milestone::Started);
        } else if let Some(baseline) = baseline {
            // An earlier baseline is kept, so that changes since then are reported with the next turn.
            let mut baselines = self.baselines.lock().unwrap_or_else(PoisonError::into_inner);
            baselines.entry((*session.key).clone()).or_insert(baseline);
        }
        Ok(SpawnedAgent {
            stdin: Box::new(pipes.stdin),
            stdout: Box::new(pipes.stdout),
            stderr: Box::new(pipes.stderr),
            process: Box::new(process),
            process_counter: Arc::new(process_counter),
            profile,
            workspace: WORKSPACE.to_owned(),
            conversation,
            instructions,
            servers,
        })
    }

    fn mcp_generation(&self, session: &Handle) -> u64 {
        self.mcp.generation(&session.key)
    }

    /// Canaries are exempt from the process limit: they end in seconds, and a busy daemon must not make one fail.
    fn counts_toward_limit(&self, session: &Handle) -> bool {
        !self.played.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&session.key)
    }

    fn store_conversation_id(&self, session: &Handle, conversation: &str) {
        let played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(CanaryAgent { play, .. }) = played.get(&session.key) {
            return play.reach(Milestone::Initialized);
        }
        drop(played);
        AgentSessionDir::of(&self.home, session).remember(conversation);
    }

    fn forget_conversation_id(&self, session: &Handle) {
        AgentSessionDir::of(&self.home, session).forget_conversation();
    }

    async fn changed_autorun_files(&self, session: &Handle) -> Vec<String> {
        let baseline =
            self.baselines.lock().unwrap_or_else(PoisonError::into_inner).get(&session.key).cloned();
        let Some(AutorunBaseline { folder, standing: before }) = baseline else { return Vec::new() };
        let checking = tokio::task::spawn_blocking(move || {
            let now = AutorunSnapshot::take(&folder)?;
            let changed = now.changed_since(&before).map(|path| path.display().to_string()).collect();
            Ok::<_, WorkspaceError>((AutorunBaseline { folder, standing: now }, changed))
        });
        match checking.await {
            Ok(Ok((now, changed))) => {
                let mut baselines = self.baselines.lock().unwrap_or_else(PoisonError::into_inner);
                baselines.insert((*session.key).clone(), now);
                changed
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the autorun files of a workspace could not be checked");
                Vec::new()
            }
            // The daemon is being torn down.
            Err(_) => Vec::new(),
        }
    }

    fn keep_stderr(&self, session: &Handle, text: &str) {
        let text = self.governance.policy.redactor.redact(text);
        AgentSessionDir::of(&self.home, session).keep_stderr(&text);
    }
}
