//! Sessions: who is open, one serial queue each, and the way back to a stream after a lost connection.
//!
//! A session lives in the ledger; here it is only loaded. One that is open and not loaded (after a restart, say) is
//! loaded by the first who asks for it.

mod actor;
mod error;
mod idle_reaper;
mod lifecycle;
mod run_sessions;
mod scheduler;
mod session_limit;
mod subagents;
mod subscription;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tribune_constitution::DEFAULT_MANDATE;
use tribune_governance::turn::Governance;
use tribune_records::workspace_roots;
use tribune_registry::{Agents, CLI_BACKENDS};
use tribune_runtime::{
    AgentRuntime, ContentBlock, ErrorKind, Handle, SessionInput, SessionKey, SessionMode, SessionState,
    Speaker,
};
use tribune_storage::store::{SessionFilter, SessionRow};
use tribune_storage::vault::Vault;
use tribune_tools::ScheduleFile;

pub use self::actor::{Accepted, TurnEnd};
use self::actor::{Actor, Command, QueueClaim, Run};
pub use self::actor::{NoTools, Session};
pub use self::error::SessionError;
use self::session_limit::{IfFull, SessionLimit};
pub use self::subagents::SubAgents;
pub use self::subscription::{Subscription, TurnHandle};

/// Locks under which sessions are opened and closed; more than cores, few enough to be nothing.
const OPENING_LOCKS: usize = 64;

/// What a turn that is told to end at shutdown gets to write its end down.
const CANCEL_GRACE: Duration = Duration::from_secs(3);

/// What an agent may lack when the daemon starts, and have later.
const NOT_READY_CODES: [ErrorKind; 7] = [
    ErrorKind::NotInstalled,
    ErrorKind::NoProfile,
    ErrorKind::NoModel,
    ErrorKind::UnknownModel,
    ErrorKind::UnknownProvider,
    ErrorKind::ProviderDisabled,
    ErrorKind::Sandbox,
];

/// What bounds sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Time without a turn after which a `domain` session is closed.
    pub ttl: Duration,
    /// Turns waiting per session.
    pub queue: usize,
    /// Sessions open at once.
    pub max_open: usize,
}

/// All sessions of the daemon. Clones share them.
#[derive(Clone)]
pub struct SessionManager {
    shared: Arc<Shared>,
}

struct Shared {
    governance: Arc<Governance>,
    runtimes: HashMap<String, Arc<dyn AgentRuntime>>,
    agents: Arc<Agents>,
    /// When agents want to be woken.
    schedules: Arc<ScheduleFile>,
    limits: SessionLimits,
    loaded: Mutex<HashMap<SessionKey, Arc<Session>>>,
    opening: Vec<Arc<tokio::sync::Mutex<()>>>,
    opening_hash: RandomState,
    room: SessionLimit,
    tasks: TaskTracker,
    /// Openings, closings and forgettings under way.
    work: TaskTracker,
    draining: CancellationToken,
}

impl std::fmt::Debug for SessionManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionManager")
    }
}

/// Who opens a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opener {
    /// For the record.
    pub name: String,
    /// The key that was proved, if one was.
    pub pubkey: Option<String>,
    /// Not in the roster: gets the default mandate.
    pub is_unregistered: bool,
    /// The model that the session is to talk to, instead of its agent's own.
    pub model: Option<String>,
    /// The folder that it is to work in from now on. Without one it keeps what it has.
    pub workspace: Option<String>,
    /// The further folders that it has beside that from now on: exactly these. Without a word of them it keeps what it has.
    pub further: Option<Vec<String>>,
}

/// What to do about a session that turns out to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfClosed {
    Reopen,
    Refuse,
}

/// The further folders that a session has with this backend. Agents of another make work in one folder: their boxes have no other.
fn within_reach(backend: &str, further: Vec<String>) -> Vec<String> {
    if CLI_BACKENDS.contains(&backend) { Vec::new() } else { further }
}

impl SessionManager {
    pub fn new(
        governance: Arc<Governance>,
        runtimes: HashMap<String, Arc<dyn AgentRuntime>>,
        agents: Arc<Agents>,
        schedules: Arc<ScheduleFile>,
        sub_agents: &SubAgents,
        limits: SessionLimits,
    ) -> Result<Self, SessionError> {
        let open = governance.readers.now(|reader| reader.open_sessions())?;
        let shared = Shared {
            governance,
            runtimes,
            agents,
            schedules,
            limits,
            loaded: Mutex::default(),
            opening: (0..OPENING_LOCKS).map(|_| Arc::default()).collect(),
            opening_hash: RandomState::new(),
            room: SessionLimit::new(open, limits.max_open),
            tasks: TaskTracker::new(),
            work: TaskTracker::new(),
            draining: CancellationToken::new(),
        };
        let sessions = Self { shared: Arc::new(shared) };
        sub_agents.live_in(&sessions);
        Ok(sessions)
    }

    /// Opens the sessions of standing agents. One that cannot be run yet, because its program or its model is not there, does not
    /// keep the others waiting: it is told, and opened by the first who speaks to it.
    pub async fn preload(&self) -> Result<usize, SessionError> {
        let mut open = 0;
        for agent in &self.shared.agents.standing() {
            let key = SessionKey::direct(&agent.id, "standing", "local", "main")?;
            let opener = Opener {
                name: "roster".to_owned(),
                pubkey: None,
                is_unregistered: false,
                model: None,
                workspace: None,
                further: None,
            };
            match self.admit(key, Some(SessionMode::Persistent), opener, IfFull::Admit).await {
                Ok(_) => open += 1,
                Err(SessionError::Runtime(error)) if NOT_READY_CODES.contains(&error.kind) => {
                    tracing::warn!(agent = %agent.id, "a standing agent cannot be run yet: {}", error.message);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(open)
    }

    /// Opens a session, or finds it open. What it may do follows from the roster, never from the caller. Without a mode
    /// it keeps the one it has.
    pub async fn ensure(
        &self,
        key: SessionKey,
        mode: Option<SessionMode>,
        opener: Opener,
    ) -> Result<Handle, SessionError> {
        self.admit(key, mode, opener, IfFull::Refuse).await
    }

    async fn admit(
        &self,
        key: SessionKey,
        mode: Option<SessionMode>,
        opener: Opener,
        if_full: IfFull,
    ) -> Result<Handle, SessionError> {
        let row = match (mode, &opener.workspace, &opener.further) {
            (Some(_), Some(_), Some(_)) => None,
            _ => self.row(&key).await?,
        };
        let mode = mode.or(row.as_ref().map(|row| row.mode)).unwrap_or_default();
        let (own, also) = row.map(|row| (row.workspace, row.further)).unwrap_or_default();
        let (workspace, further) = (opener.workspace.clone().or(own), opener.further.clone().unwrap_or(also));
        let (backend, model, mandate) = match self.shared.agents.agent(key.agent()) {
            Some(agent) => (agent.backend, agent.model, agent.mandate),
            None if opener.is_unregistered => {
                (tribune_registry::DEFAULT_BACKEND.to_owned(), None, DEFAULT_MANDATE.to_owned())
            }
            None => return Err(SessionError::UnknownAgent(key.agent().to_string())),
        };
        let Opener { pubkey, name: opened_by, model: chosen, .. } = opener;
        let (backend, model) = match chosen {
            Some(model) => (tribune_runtime::native::BACKEND.to_owned(), Some(model)),
            None => (backend, model),
        };
        let mut further = within_reach(&backend, further);
        if let Some(workspace) = &workspace {
            // Whoever chose another workspace, and has no word of these, chose it over them.
            further.retain(|folder| !workspace_roots::is_nested(folder.as_ref(), workspace.as_ref()));
        }
        let input = SessionInput {
            key,
            mode,
            backend,
            model,
            pubkey,
            mandate,
            opened_by,
            lineage: None,
            workspace,
            additional_directories: further,
        };
        self.let_go_of_another(&input).await?;
        self.open(input, IfClosed::Reopen, if_full).await.map(|session| session.handle().clone())
    }

    /// Closes a session that is open with another backend or model, or elsewhere, so that it can be opened with these. What was said in it
    /// stays.
    async fn let_go_of_another(&self, input: &SessionInput) -> Result<(), SessionError> {
        let key = &input.key;
        let Some(row) = self.row(key).await? else { return Ok(()) };
        let is_there = row.workspace == input.workspace && row.further == input.additional_directories;
        let same = row.backend == input.backend && row.model == input.model && is_there;
        // One with a turn under way is left alone: whoever comes next finds it idle.
        if same || matches!(row.state, SessionState::Closed | SessionState::Running) {
            return Ok(());
        }
        self.close(key, tribune_runtime::CloseReason::Requested).await
    }

    fn start(
        &self,
        session: Arc<Session>,
        runtime: Arc<dyn AgentRuntime>,
        commands: mpsc::Receiver<Command>,
    ) {
        let opening = Arc::clone(self.opening(&session.handle().key));
        let draining = self.shared.draining.clone();
        let (room, readers) = (self.shared.room.clone(), self.shared.governance.readers.clone());
        let actor = Actor { session: Arc::clone(&session), runtime, opening, room, readers, draining };
        let shared = Arc::downgrade(&self.shared);
        self.shared.tasks.spawn(async move {
            actor::run(actor, commands).await;
            let (shared, key) = (shared.upgrade(), &session.handle().key);
            if let Some(shared) = &shared {
                shared.governance.feeds.remove(key, &session.feed);
            }
            session.feed.end();
            let Some(shared) = shared else { return };
            let mut loaded = shared.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            let key: &SessionKey = key;
            if loaded.get(key).is_some_and(|found| Arc::ptr_eq(found, &session)) {
                loaded.remove(key);
                // Whoever opens it again comes behind this, and brings them again.
                shared.governance.tools.end_session(key);
            }
        });
    }

    fn opening(&self, key: &SessionKey) -> &Arc<tokio::sync::Mutex<()>> {
        let at = self.shared.opening_hash.hash_one(key) as usize % OPENING_LOCKS;
        &self.shared.opening[at]
    }

    fn loaded(&self, key: &SessionKey) -> Option<Arc<Session>> {
        let loaded = self.shared.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.get(key).filter(|session| !session.inbox.is_closed()).cloned()
    }

    /// The session as the log has it.
    pub async fn row(&self, key: &SessionKey) -> Result<Option<SessionRow>, SessionError> {
        let key = key.as_str().to_owned();
        Ok(self.shared.governance.readers.read(move |reader| reader.session(&key)).await?)
    }

    /// An open session, loaded if need be.
    async fn session(&self, key: &SessionKey) -> Result<Arc<Session>, SessionError> {
        if let Some(session) = self.loaded(key) {
            return Ok(session);
        }
        let row = self.row(key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
        if row.state == SessionState::Closed {
            return Err(SessionError::Closed(key.to_string()));
        }
        let rostered = self.shared.agents.agent(key.agent());
        let (backend, model, mandate) = match rostered {
            // It goes on with what it was opened with, under the mandate that its agent has now.
            Some(agent) => (row.backend, row.model, agent.mandate),
            // An agent that left the roster is a stranger from then on.
            None => (row.backend, row.model, DEFAULT_MANDATE.to_owned()),
        };
        let further = within_reach(&backend, row.further);
        let input = SessionInput {
            key: key.clone(),
            mode: row.mode,
            backend,
            model,
            pubkey: row.pubkey,
            mandate,
            opened_by: "restart".to_owned(),
            lineage: None,
            workspace: row.workspace,
            additional_directories: further,
        };
        self.open(input, IfClosed::Refuse, IfFull::Refuse).await
    }

    /// Tells every running turn to end. Returns how many there were.
    pub fn cancel_all(&self) -> usize {
        let sessions = self.shared.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().filter(|session| session.cancel()).count()
    }

    /// Asks for a turn. It is queued behind those that were asked for before.
    pub async fn run_turn(
        &self,
        key: &SessionKey,
        content: Vec<ContentBlock>,
        speaker: Speaker,
    ) -> Result<TurnHandle, SessionError> {
        self.run_stored(key, content, speaker, None).await
    }

    /// Asks for a turn whose words may have been stored under a name.
    async fn run_stored(
        &self,
        key: &SessionKey,
        content: Vec<ContentBlock>,
        speaker: Speaker,
        stored_as: Option<String>,
    ) -> Result<TurnHandle, SessionError> {
        if self.shared.draining.is_cancelled() {
            return Err(SessionError::Draining);
        }
        let session = self.session(key).await?;
        let (accept, accepted) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let follower = Subscription {
            vault: Arc::clone(&self.shared.governance.vault),
            session_id: Arc::clone(&session.handle().session_id),
            head: Some(session.feed.follow()),
            session: Some(Arc::clone(&session)),
            left: 0,
            after: 0,
        };
        let in_line = Arc::new(QueueClaim::default());
        let run =
            Run { content, speaker, stored_as, in_line: Arc::clone(&in_line), accepted: accept, ended: end };
        let run = Command::Run(Box::new(run));
        session.inbox.try_send(run).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                SessionError::Busy(key.to_string(), self.shared.limits.queue)
            }
            mpsc::error::TrySendError::Closed(_) => SessionError::Closed(key.to_string()),
        })?;
        Ok(TurnHandle { in_line, accepted, ended, follower: Some(follower) })
    }

    /// Tells the session's running turn to end. False if none is running.
    pub async fn cancel(&self, key: &SessionKey) -> Result<bool, SessionError> {
        if let Some(session) = self.loaded(key) {
            return Ok(session.cancel());
        }
        // Not loaded: nothing runs, but it must be there.
        self.row(key).await?.map(|_| false).ok_or_else(|| SessionError::NotFound(key.to_string()))
    }

    /// Whether a turn of the session is running, and the number of its newest event.
    pub async fn live(&self, key: &SessionKey) -> Result<(bool, u64), SessionError> {
        match self.loaded(key) {
            Some(session) => Ok((session.is_running(), session.feed.head())),
            None => Ok((false, self.newest_at_rest(key).await?)),
        }
    }

    /// How many follow a session that is loaded.
    pub fn followers(&self, key: &SessionKey) -> usize {
        self.loaded(key).map_or(0, |session| session.feed.followers())
    }

    pub async fn list(&self, filter: SessionFilter, limit: usize) -> Result<Vec<SessionRow>, SessionError> {
        Ok(self.shared.governance.readers.read(move |reader| reader.sessions(&filter, limit)).await?)
    }

    pub fn vault(&self) -> &Arc<Vault> {
        &self.shared.governance.vault
    }

    pub fn governance(&self) -> &Arc<Governance> {
        &self.shared.governance
    }

    /// Sessions that are open, and sessions that are loaded.
    pub fn counts(&self) -> (usize, usize) {
        let loaded = self.shared.loaded.lock().unwrap_or_else(PoisonError::into_inner).len();
        (self.shared.room.taken(), loaded)
    }

    /// Openings, closings and forgettings that were begun and are not over.
    pub fn under_way(&self) -> usize {
        self.shared.work.len()
    }

    /// Takes no more turns, lets those that run end within `deadline`, then tells them to.
    pub async fn drain(&self, deadline: Duration) -> Drained {
        self.shared.draining.cancel();
        self.shared.governance.begin_shutdown();
        self.shared.tasks.close();
        self.shared.work.close();
        let mut drained = Drained::default();
        if tokio::time::timeout(deadline, self.rest()).await.is_ok() {
            return drained;
        }
        let running: Vec<Arc<Session>> = {
            let loaded = self.shared.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            loaded.values().filter(|session| session.is_running()).cloned().collect()
        };
        drained.cancelled = running.len();
        for session in running {
            session.cancel();
        }
        drained.abandoned = tokio::time::timeout(CANCEL_GRACE, self.rest()).await.is_err();
        drained
    }

    /// Waits until nothing is under way any more.
    async fn rest(&self) {
        // In this order: an opening that came just in time starts a session.
        self.shared.work.wait().await;
        self.shared.tasks.wait().await;
        self.shared.governance.background.wait().await;
    }
}

/// How stopping went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Turns that did not end by themselves in time.
    pub cancelled: usize,
    /// Whether some did not even end when told; they will be found interrupted.
    pub abandoned: bool,
}
