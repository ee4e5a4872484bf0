//! What an operator runs in a box by their own hand (`tribune run`). The program is started where the operator sits; this has its
//! session, its sockets, the layer for its changes, and what the log tells of it.
//!
//! All of it is a [`Lease`]: it ends with the connection that it was opened on, and with it every way out.

mod backend;
mod land;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tribune_contract::ResourceLimits;
use tribune_records::agents::RUN_AGENT;
use tribune_records::agents::RUN_BACKEND;
use tribune_runtime::{AgentId, CloseReason, SessionKey, SessionState};

pub use self::backend::RunBackend;

use tribune_config::egress_rules::{EgressRule, UnlistedPolicy};
use tribune_config::{Sandbox, WorkspacesConfig};
use tribune_egress::{AllowedEgress, BrokerError, SessionSocketService, SessionSockets};
use tribune_records::ledger_payloads::{RunOutcome, RunRecord};
use tribune_storage::home::Home;
use tribune_storage::store::{SessionFilter, StoreError};
use tribune_tools::workspaces::{Label, Workspace, Workspaces, WorkspacesError, check_name};

use crate::session::{SessionError, SessionManager};

/// The agent that programs count as which an operator runs. A roster may have one of this name; then its mandate and its model
/// hold.

/// Its channel.
const CHANNEL: &str = "run";

/// Bytes of a program's name in the log.
const MAX_PROGRAM: usize = 64;

/// Sessions that an earlier daemon left open, at most.
const MAX_LEFT: usize = 10_000;

/// Where changes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Overlay,
    Direct,
    ReadOnly,
}

impl Mode {
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Overlay, Self::Direct, Self::ReadOnly].into_iter().find(|mode| mode.as_str() == word)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::Direct => "direct",
            Self::ReadOnly => "read-only",
        }
    }
}

/// What is to run.
#[derive(Debug)]
pub struct RunRequest {
    pub name: Option<String>,
    pub command: Vec<String>,
    pub folder: PathBuf,
    pub others: Vec<PathBuf>,
    pub mode: Mode,
    pub places: Vec<EgressRule>,
}

/// Why nothing is run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Input(String),
    #[error("everything is stopped: an approver can let things go on with `tribune resume`")]
    Frozen,
    #[error(
        "this house runs its commands with `sandbox: \"{0}\"`, and `tribune run` needs all of the sandbox: set it to \"full\" in config.json5"
    )]
    Sandbox(&'static str),
    #[error("`{0}` is running already: choose another name, or wait for its end")]
    Busy(String),
    #[error(transparent)]
    Workspace(#[from] WorkspacesError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sockets(#[from] BrokerError),
    /// What the law says, with the word for it.
    #[error("{1}")]
    Barred(&'static str, String),
    #[error("the daemon is stopping and takes no new work: try again when it is back")]
    Leaving,
}

/// Opens and ends runs.
#[derive(Debug)]
pub struct Runs {
    home: PathBuf,
    sandbox: Sandbox,
    /// Bytes that the changes of one run may take.
    pub max_bytes: u64,
    /// Patterns of what a run does not see of its project.
    pub hide: Vec<String>,
    sessions: SessionManager,
    pub workspaces: Workspaces,
    brokers: SessionSocketService,
    /// Names of what runs.
    names: Arc<Mutex<HashSet<String>>>,
}

/// A name that nobody else has meanwhile.
#[derive(Debug)]
struct Name {
    name: String,
    all: Arc<Mutex<HashSet<String>>>,
}

impl Drop for Name {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// A run, for as long as this is held.
#[derive(Debug)]
pub struct RunLease {
    pub id: String,
    pub key: SessionKey,
    pub workspace: Option<Workspace>,
    pub sockets: SessionSockets,
    /// Whom the box runs as, if that is not who started it.
    pub user: Option<u32>,
    runs: Arc<Runs>,
    _name: Name,
    is_over: bool,
}

/// What a run left behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunSummary {
    pub changes: u64,
    pub bytes: u64,
    pub traps: u64,
    /// Why they cannot be told, if they cannot.
    pub fault: Option<String>,
}

impl Runs {
    pub fn new(
        home: &Home,
        sandbox: Sandbox,
        limits: &WorkspacesConfig,
        sessions: SessionManager,
        brokers: SessionSocketService,
    ) -> Self {
        let workspaces = Workspaces::of(home);
        // The folder may be reached by several names; this is the one that counts.
        let home = std::fs::canonicalize(home.root()).unwrap_or_else(|_| home.root().to_owned());
        Self {
            home,
            sandbox,
            max_bytes: limits.max_bytes,
            hide: limits.hide.clone(),
            sessions,
            workspaces,
            brokers,
            names: Arc::default(),
        }
    }

    /// Opens a run: its session, its layer, its sockets. The folder comes back by its one name.
    pub async fn open(self: &Arc<Self>, wanted: RunRequest) -> Result<(RunLease, PathBuf), RunError> {
        match self.sandbox {
            Sandbox::Full => {}
            Sandbox::Landlock => return Err(RunError::Sandbox("landlock")),
            Sandbox::Off => return Err(RunError::Sandbox("off")),
        }
        let governance = self.sessions.governance();
        if governance.gate.is_frozen() {
            return Err(RunError::Frozen);
        }
        if self.brokers.is_closing() {
            return Err(RunError::Leaving);
        }
        let id = match wanted.name {
            Some(name) => name,
            None => fresh_id().ok_or(RunError::Leaving)?,
        };
        check_name(&id)?;
        let program = program_name(&wanted.command)?;
        let folder = self.project(&wanted.folder)?;
        for other in &wanted.others {
            self.project(other)?;
        }
        let key = key_of(&id)?;
        let name = self.take(&id)?;
        if self.sessions.row(&key).await?.is_some_and(|row| row.state != SessionState::Closed) {
            return Err(RunError::Busy(id));
        }
        let outlets =
            AllowedEgress { places: wanted.places, unlisted: Some(UnlistedPolicy::Ask), carries: None };
        let places = outlets.places.len() as u64;
        let sockets = self.brokers.open_with(&key, outlets)?;
        let workspace = match wanted.mode {
            Mode::Overlay => {
                let (session, began) = (key.to_string(), governance.clock.now().to_string());
                let (folder, program) = (folder.clone(), program.clone());
                let label = Label { id: id.clone(), session, folder, program, began };
                let workspaces = self.workspaces.clone();
                let made = tokio::task::spawn_blocking(move || workspaces.create(label)).await;
                Some(made.map_err(|_| RunError::Leaving)??)
            }
            Mode::Direct | Mode::ReadOnly => None,
        };
        // From here on, whatever goes wrong ends what was begun.
        let mut lease = RunLease {
            id,
            key,
            workspace,
            sockets,
            user: None,
            runs: Arc::clone(self),
            _name: name,
            is_over: false,
        };
        let handle = self.sessions.open_run(lease.key.clone()).await?;
        let words = serde_json::to_vec(&wanted.command).unwrap_or_default();
        let mode = wanted.mode.as_str().to_owned();
        let record = |command| RunRecord::RunBegan { program, command, workspace: mode, places };
        governance.run_began(&handle, &words, record).await?;
        if rustix::process::geteuid().is_root() {
            let user = tribune_sandbox::fresh_user();
            lease.sockets.give_to(user, user)?;
            lease.user = Some(user);
        }
        Ok((lease, folder))
    }

    fn take(&self, id: &str) -> Result<Name, RunError> {
        let is_free = self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
        let name = || Name { name: id.to_owned(), all: Arc::clone(&self.names) };
        is_free.then(name).ok_or_else(|| RunError::Busy(id.to_owned()))
    }

    /// A folder that may be shown to a box: none that holds this house, or is in it.
    fn project(&self, folder: &Path) -> Result<PathBuf, RunError> {
        let shown = folder.display();
        if !folder.is_absolute() {
            return Err(RunError::Input(format!("`{shown}` is no whole path: begin it with a slash")));
        }
        let found = std::fs::canonicalize(folder).map_err(|error| {
            RunError::Input(format!("`{shown}` cannot be used ({error}): name a folder that is there"))
        })?;
        if tribune_contract::is_system_path(&found) && found != Path::new("/") {
            let what = "belongs to the running system, of which a box has its own or none: choose a folder outside \
                        /proc, /sys, /dev and /run";
            return Err(RunError::Input(format!("`{shown}` {what}")));
        }
        if found.starts_with(&self.home) || self.home.starts_with(&found) {
            let what = "holds Tribune's own home or is in it, with the operator's token: choose a folder of a project";
            return Err(RunError::Input(format!("`{shown}` {what}")));
        }
        Ok(found)
    }

    /// Closes the sessions of runs that an earlier daemon left open, tells of landings that it left unfinished, and removes workspaces
    /// without changes.
    pub async fn recover(&self) -> Result<(), SessionError> {
        let governance = self.sessions.governance();
        let filter = SessionFilter { agent_id: Some(RUN_AGENT.to_owned()), state: None, after: None };
        let rows = self.sessions.list(filter, MAX_LEFT).await?;
        let left = rows.iter().filter(|row| row.backend == RUN_BACKEND && row.state != SessionState::Closed);
        for key in left.filter_map(|row| row.key.parse::<SessionKey>().ok()) {
            let record = RunRecord::RunEnded { outcome: RunOutcome::Lost, code: None, signal: None };
            governance.note_run(&key, &record).await?;
            self.sessions.close(&key, CloseReason::Finished).await?;
        }
        self.recover_workspaces().await
    }

    /// The place of a run in the log.
    async fn ended(&self, key: &SessionKey, record: &RunRecord) -> Result<(), SessionError> {
        self.sessions.governance().note_run(key, record).await?;
        self.sessions.close(key, CloseReason::Finished).await
    }

    /// What is left of a workspace, which goes if that is nothing.
    async fn leavings(workspace: &Workspace) -> RunSummary {
        let workspace = workspace.clone();
        let look = move || {
            // Its program may still be ending.
            let held = workspace.clone().hold();
            let diff = workspace.diff()?;
            if diff.changes.is_empty() {
                held?.remove_if_empty()?;
            }
            let traps = diff.changes.iter().filter(|change| change.is_autorun).count();
            let (changes, traps) = (diff.changes.len() as u64, traps as u64);
            Ok::<_, WorkspacesError>(RunSummary { changes, bytes: diff.bytes, traps, fault: None })
        };
        match tokio::task::spawn_blocking(look).await {
            Ok(Ok(leavings)) => leavings,
            Ok(Err(error)) => RunSummary { fault: Some(error.to_string()), ..RunSummary::default() },
            Err(_) => RunSummary::default(),
        }
    }
}

impl RunLease {
    /// Writes down what holds the program.
    pub async fn started(&self, limited_by: String, landlock_abi: u32) -> Result<(), StoreError> {
        let limits = ResourceLimits::default();
        let record = RunRecord::RunStarted {
            sandbox: "full".to_owned(),
            limited_by,
            landlock_abi,
            memory_bytes: limits.memory_bytes,
            processes: limits.processes,
            cpu_percent: limits.cpu_percent,
            // In a layer, one file has no more room than all.
            file_bytes: limits.file_bytes.min(self.runs.max_bytes),
            layer_bytes: self.runs.max_bytes,
        };
        self.runs.sessions.governance().note_run(&self.key, &record).await
    }

    /// Ends it, and says what is left.
    pub async fn ended(mut self, record: RunRecord) -> Result<RunSummary, RunError> {
        self.is_over = true;
        self.runs.ended(&self.key, &record).await?;
        match &self.workspace {
            Some(workspace) => Ok(Runs::leavings(workspace).await),
            None => Ok(RunSummary::default()),
        }
    }
}

/// Whoever ran it went away.
impl Drop for RunLease {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (runs, key, workspace) = (Arc::clone(&self.runs), self.key.clone(), self.workspace.clone());
        // Without a runtime the daemon is gone too, and the next start ends it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let work = runs.sessions.governance().background.clone();
        let ending = async move {
            let record = RunRecord::RunEnded { outcome: RunOutcome::Lost, code: None, signal: None };
            if let Err(error) = runs.ended(&key, &record).await {
                // The next start ends it.
                tracing::warn!(%error, session = %key, "the end of a run could not be written down");
            }
            // Whoever was killed left the groups that held it.
            let _ = tokio::task::spawn_blocking(tribune_sandbox::remove_stale_cgroups).await;
            if let Some(workspace) = workspace {
                // Its program may still be ending; then its changes stay until somebody discards them.
                Runs::leavings(&workspace).await;
            }
        };
        work.spawn_on(ending, &runtime);
    }
}

/// The session of a run.
fn key_of(id: &str) -> Result<SessionKey, SessionError> {
    let agent: AgentId = RUN_AGENT.parse()?;
    Ok(SessionKey::direct(&agent, CHANNEL, "local", id)?)
}

/// The name of what runs, as the log has it.
fn program_name(command: &[String]) -> Result<String, RunError> {
    let nothing = || RunError::Input("there is no command: write it behind `--`".to_owned());
    let first = command.first().filter(|first| !first.is_empty()).ok_or_else(nothing)?;
    let name = Path::new(first).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    Ok(name.chars().filter(|c| !c.is_control()).take(MAX_PROGRAM).collect())
}

fn fresh_id() -> Option<String> {
    let mut bytes = [0_u8; 3];
    getrandom::fill(&mut bytes).ok()?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("run-{hex}"))
}
