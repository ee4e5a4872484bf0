//! Programs that an operator runs in a sandbox (`tribune run`). The operator's CLI process starts the program; the daemon provides
//! the session, the sockets, the overlay for its changes, and the ledger entries.
//!
//! A run is a [`RunLease`]: it ends with the connection that opened it, and so does all network access of the run.

mod backend;
mod land;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tribune_contract::ResourceLimits;
use tribune_governance::gate::SandboxWrites;
use tribune_governance::turn::DenialCode;
use tribune_records::agents::RUN_AGENT;
use tribune_records::agents::RUN_BACKEND;
use tribune_runtime::{AgentId, CloseReason, SessionKey, SessionState};

pub use self::backend::RunBackend;

use tribune_config::egress_rules::{EgressRule, UnlistedPolicy};
use tribune_config::{Sandbox, WorkspacesConfig};
use tribune_egress::{AllowedEgress, SessionSocketError, SessionSocketService, SessionSockets};
use tribune_records::ledger_payloads::{RunOutcome, RunRecord};
use tribune_storage::home::Home;
use tribune_storage::store::{SessionFilter, StoreError};
use tribune_tools::workspaces::{Label, Workspace, Workspaces, WorkspacesError, check_name};

use crate::session::{SessionError, SessionManager};

/// The channel in the session keys of runs.
const CHANNEL: &str = "run";

/// The longest program name in the ledger, in characters.
const MAX_PROGRAM: usize = 64;

/// The most sessions of an earlier daemon that one recovery closes.
const MAX_LEFT: usize = 10_000;

/// Where the changes of a run go.
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

/// A request to open a run.
#[derive(Debug)]
pub struct RunRequest {
    pub name: Option<String>,
    pub command: Vec<String>,
    pub folder: PathBuf,
    pub others: Vec<PathBuf>,
    pub mode: Mode,
    pub places: Vec<EgressRule>,
}

/// Why a run is refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Input(String),
    #[error("everything is stopped: an approver can let things go on with `tribune resume`")]
    Frozen,
    #[error(
        "the configuration has `sandbox: \"{0}\"`, and `tribune run` needs all of the sandbox: set it to \"full\" in config.json5"
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
    Sockets(#[from] SessionSocketError),
    /// A denial, with its kind.
    #[error("{1}")]
    Barred(DenialCode, String),
    #[error("the daemon is stopping and takes no new work: try again when it is back")]
    Leaving,
}

/// Opens and ends runs.
#[derive(Debug)]
pub struct Runs {
    home: PathBuf,
    sandbox: Sandbox,
    /// The most bytes that the changes of one run may occupy.
    pub max_bytes: u64,
    /// Patterns of files of the project that are hidden from a run.
    pub hide: Vec<String>,
    sessions: SessionManager,
    pub workspaces: Workspaces,
    socket_service: SessionSocketService,
    /// Names of the running programs.
    names: Arc<Mutex<HashSet<String>>>,
}

/// A reserved run name, released when this is dropped.
#[derive(Debug)]
struct ReservedName {
    name: String,
    all: Arc<Mutex<HashSet<String>>>,
}

impl Drop for ReservedName {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// An open run. Dropping it ends the run.
#[derive(Debug)]
pub struct RunLease {
    pub id: String,
    pub key: SessionKey,
    pub workspace: Option<Workspace>,
    /// The folder that the program changes directly, if it does.
    direct_folder: Option<PathBuf>,
    pub sockets: SessionSockets,
    /// The uid that the sandbox runs as, if it differs from the operator's.
    pub user: Option<u32>,
    runs: Arc<Runs>,
    _name: ReservedName,
    is_over: bool,
}

/// The changes that a run left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunSummary {
    pub changes: u64,
    pub bytes: u64,
    pub traps: u64,
    /// Why the changes could not be counted, if that failed.
    pub fault: Option<String>,
}

impl Runs {
    pub fn new(
        home: &Home,
        sandbox: Sandbox,
        limits: &WorkspacesConfig,
        sessions: SessionManager,
        socket_service: SessionSocketService,
    ) -> Self {
        let workspaces = Workspaces::of(home);
        // Several paths may lead to the folder; comparisons use the canonical one.
        let home = std::fs::canonicalize(home.root()).unwrap_or_else(|_| home.root().to_owned());
        Self {
            home,
            sandbox,
            max_bytes: limits.max_bytes,
            hide: limits.hide.clone(),
            sessions,
            workspaces,
            socket_service,
            names: Arc::default(),
        }
    }

    /// Opens a run: its session, its overlay and its sockets. Also returns the canonical path of the folder.
    pub async fn open(self: &Arc<Self>, request: RunRequest) -> Result<(RunLease, PathBuf), RunError> {
        match self.sandbox {
            Sandbox::Full => {}
            Sandbox::Landlock => return Err(RunError::Sandbox("landlock")),
            Sandbox::Off => return Err(RunError::Sandbox("off")),
        }
        let governance = self.sessions.governance();
        if governance.policy.gate.is_frozen() {
            return Err(RunError::Frozen);
        }
        if self.socket_service.is_closing() {
            return Err(RunError::Leaving);
        }
        let id = match request.name {
            Some(name) => name,
            None => fresh_id().ok_or(RunError::Leaving)?,
        };
        check_name(&id)?;
        let program = program_name(&request.command)?;
        let folder = self.check_folder(&request.folder)?;
        for other in &request.others {
            self.check_folder(other)?;
        }
        let key = key_of(&id)?;
        let name = self.reserve_name(&id)?;
        if self.sessions.row(&key).await?.is_some_and(|row| row.state != SessionState::Closed) {
            return Err(RunError::Busy(id));
        }
        let egress =
            AllowedEgress { rules: request.places, unlisted: Some(UnlistedPolicy::Ask), carries: None };
        let places = egress.rules.len() as u64;
        let sockets = self.socket_service.open_with(&key, egress)?;
        let workspace = match request.mode {
            Mode::Overlay => {
                let (session, began) = (key.to_string(), governance.storage.clock.now().to_string());
                let (folder, program) = (folder.clone(), program.clone());
                let label = Label { id: id.clone(), session, folder, program, began };
                let workspaces = self.workspaces.clone();
                let made = tokio::task::spawn_blocking(move || workspaces.create(label)).await;
                Some(made.map_err(|_| RunError::Leaving)??)
            }
            Mode::Direct | Mode::ReadOnly => None,
        };
        // From here on, an error drops the lease, which ends the run.
        let mut lease = RunLease {
            id,
            key,
            workspace,
            direct_folder: (request.mode == Mode::Direct).then(|| folder.clone()),
            sockets,
            user: None,
            runs: Arc::clone(self),
            _name: name,
            is_over: false,
        };
        let handle = self.sessions.open_run(lease.key.clone()).await?;
        let command = serde_json::to_vec(&request.command).unwrap_or_default();
        let mode = request.mode.as_str().to_owned();
        let record = |command| RunRecord::RunBegan { program, command, workspace: mode, places };
        governance.record_run_start(&handle, &command, record).await?;
        if rustix::process::geteuid().is_root() {
            let user = tribune_sandbox::fresh_user();
            lease.sockets.give_to(user, user)?;
            lease.user = Some(user);
        }
        Ok((lease, folder))
    }

    fn reserve_name(&self, id: &str) -> Result<ReservedName, RunError> {
        let is_free = self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
        let name = || ReservedName { name: id.to_owned(), all: Arc::clone(&self.names) };
        is_free.then(name).ok_or_else(|| RunError::Busy(id.to_owned()))
    }

    /// Checks a folder that is mounted in a sandbox: it must not contain the state folder, or lie in it. Returns its canonical path.
    fn check_folder(&self, folder: &Path) -> Result<PathBuf, RunError> {
        let shown = folder.display();
        if !folder.is_absolute() {
            return Err(RunError::Input(format!("`{shown}` is not an absolute path: begin it with a slash")));
        }
        let found = std::fs::canonicalize(folder).map_err(|error| {
            RunError::Input(format!("`{shown}` cannot be used ({error}): name an existing folder"))
        })?;
        if tribune_contract::is_system_path(&found) && found != Path::new("/") {
            let what = "belongs to the running system, which a sandbox does not share: choose a folder outside \
                        /proc, /sys, /dev and /run";
            return Err(RunError::Input(format!("`{shown}` {what}")));
        }
        if found.starts_with(&self.home) || self.home.starts_with(&found) {
            let what = "holds Tribune's own home or is in it, with the operator's token: choose a folder of a project";
            return Err(RunError::Input(format!("`{shown}` {what}")));
        }
        if let Some(home) =
            tribune_contract::tribune_home_around(&found, |path| path.symlink_metadata().is_ok())
        {
            let what = "is a home of Tribune or lies in one, with its keys: choose a folder of a project";
            return Err(RunError::Input(format!("`{shown}` {what} (`{}`)", home.display())));
        }
        Ok(found)
    }

    /// Closes the sessions of runs that an earlier daemon left open, recovers and records its unfinished landings, and removes
    /// workspaces without changes.
    pub async fn recover(&self) -> Result<(), SessionError> {
        let governance = self.sessions.governance();
        let filter = SessionFilter { agent_id: Some(RUN_AGENT.to_owned()), state: None, after: None };
        let rows = self.sessions.list(filter, MAX_LEFT).await?;
        let left =
            rows.iter().filter(|row| row.terms.backend == RUN_BACKEND && row.state != SessionState::Closed);
        for key in left.filter_map(|row| row.key.parse::<SessionKey>().ok()) {
            let record = RunRecord::RunEnded { outcome: RunOutcome::Lost, code: None, signal: None };
            governance.record_run(&key, &record).await?;
            self.sessions.close(&key, CloseReason::Finished).await?;
        }
        self.recover_workspaces().await
    }

    /// Records the end of a run and closes its session. What it wrote in a folder directly gets its labels.
    async fn record_end(
        &self,
        key: &SessionKey,
        direct_folder: Option<&Path>,
        record: &RunRecord,
    ) -> Result<(), SessionError> {
        let governance = self.sessions.governance();
        if let Some(folder) = direct_folder {
            let out_of_turn = &governance.policy.out_of_turn;
            out_of_turn.label_sandbox_writes(key, folder, SandboxWrites::Anywhere, None).await?;
        }
        governance.record_run(key, record).await?;
        self.sessions.close(key, CloseReason::Finished).await
    }

    /// Counts the changes in a workspace, and removes the workspace if there are none.
    async fn summarize(workspace: &Workspace) -> RunSummary {
        let workspace = workspace.clone();
        let count = move || {
            // Fails while the program is still ending; then the workspace is not removed.
            let held = workspace.clone().hold();
            let diff = workspace.diff()?;
            if diff.changes.is_empty() {
                held?.remove_if_empty()?;
            }
            let traps = diff.changes.iter().filter(|change| change.is_autorun).count();
            let (changes, traps) = (diff.changes.len() as u64, traps as u64);
            Ok::<_, WorkspacesError>(RunSummary { changes, bytes: diff.bytes, traps, fault: None })
        };
        match tokio::task::spawn_blocking(count).await {
            Ok(Ok(summary)) => summary,
            Ok(Err(error)) => RunSummary { fault: Some(error.to_string()), ..RunSummary::default() },
            Err(_) => RunSummary::default(),
        }
    }
}

impl RunLease {
    /// Records the isolation and the limits of the started program.
    pub async fn started(&self, limited_by: String, landlock_abi: u32) -> Result<(), StoreError> {
        let limits = ResourceLimits::default();
        let record = RunRecord::RunStarted {
            sandbox: "full".to_owned(),
            limited_by,
            landlock_abi,
            memory_bytes: limits.memory_bytes,
            processes: limits.processes,
            cpu_percent: limits.cpu_percent,
            // In an overlay, one file cannot exceed the limit of all changes.
            file_bytes: limits.file_bytes.min(self.runs.max_bytes),
            layer_bytes: self.runs.max_bytes,
        };
        self.runs.sessions.governance().record_run(&self.key, &record).await
    }

    /// Ends the run, and reports its changes.
    pub async fn ended(mut self, record: RunRecord) -> Result<RunSummary, RunError> {
        self.is_over = true;
        self.runs.record_end(&self.key, self.direct_folder.as_deref(), &record).await?;
        match &self.workspace {
            Some(workspace) => Ok(Runs::summarize(workspace).await),
            None => Ok(RunSummary::default()),
        }
    }
}

/// The connection of the run is gone.
impl Drop for RunLease {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (runs, key, workspace) = (Arc::clone(&self.runs), self.key.clone(), self.workspace.clone());
        let direct_folder = self.direct_folder.clone();
        // Without a Tokio runtime the daemon is stopping, and recovery at the next start ends the run.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let work = runs.sessions.governance().background().clone();
        let ending = async move {
            let record = RunRecord::RunEnded { outcome: RunOutcome::Lost, code: None, signal: None };
            if let Err(error) = runs.record_end(&key, direct_folder.as_deref(), &record).await {
                // Recovery at the next start records it.
                tracing::warn!(%error, session = %key, "the end of a run could not be recorded");
            }
            // A CLI process that was killed leaves its cgroups.
            let _ = tokio::task::spawn_blocking(tribune_sandbox::remove_stale_cgroups).await;
            if let Some(workspace) = workspace {
                // While the program is still ending, its changes stay until they are discarded.
                Runs::summarize(&workspace).await;
            }
        };
        work.spawn_on(ending, &runtime);
    }
}

/// The session key of a run.
fn key_of(id: &str) -> Result<SessionKey, SessionError> {
    let agent: AgentId = RUN_AGENT.parse()?;
    Ok(SessionKey::direct(&agent, CHANNEL, "local", id)?)
}

/// The program's name as the ledger records it.
fn program_name(command: &[String]) -> Result<String, RunError> {
    let nothing = || RunError::Input("there is no command: write it after `--`".to_owned());
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
