//! The session manager: opens and closes sessions, runs one serial queue of turns for each, and lets clients resume a
//! stream after a lost connection.
//!
//! The ledger holds the state of a session; this module only loads it. An open session that is not loaded, after a
//! restart for example, is loaded on its first request.

mod actor;
mod error;
mod idle_reaper;
mod lifecycle;
mod opener;
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
use tribune_registry::Agents;
use tribune_runtime::{
    AgentRuntime, ContentBlock, ErrorKind, Handle, SessionInput, SessionKey, SessionMode, SessionState,
    SessionTerms, Speaker,
};
use tribune_storage::store::{SessionFilter, SessionRow, StoreError};
use tribune_storage::vault::Vault;
use tribune_tools::ScheduleFile;

pub use self::actor::{Accepted, TurnEnd};
use self::actor::{Actor, Command, QueueClaim, Run};
pub use self::actor::{NoTools, Session};
pub use self::error::SessionError;
use self::opener::supported_directories;
pub use self::opener::{Opener, RequestedTerms};
use self::session_limit::{IfFull, SessionLimit};
pub use self::subagents::SubAgents;
pub use self::subscription::{Subscription, TurnHandle};

/// Lock stripes for opening and closing sessions: more than cores, and few enough to cost no memory worth counting.
const OPENING_LOCKS: usize = 64;

/// Time that a turn cancelled at shutdown has to record its end.
const CANCEL_GRACE: Duration = Duration::from_secs(3);

/// Errors of an agent that is not ready when the daemon starts and may become ready later.
const NOT_READY_CODES: [ErrorKind; 7] = [
    ErrorKind::NotInstalled,
    ErrorKind::NoProfile,
    ErrorKind::NoModel,
    ErrorKind::UnknownModel,
    ErrorKind::UnknownProvider,
    ErrorKind::ProviderDisabled,
    ErrorKind::Sandbox,
];

/// Limits of sessions.
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
    /// Schedules at which agents are woken.
    schedules: Arc<ScheduleFile>,
    limits: SessionLimits,
    loaded: Mutex<HashMap<SessionKey, Arc<Session>>>,
    opening: Vec<Arc<tokio::sync::Mutex<()>>>,
    opening_hash: RandomState,
    room: SessionLimit,
    tasks: TaskTracker,
    /// Operations in progress: opening, closing and forgetting sessions.
    work: TaskTracker,
    draining: CancellationToken,
}

impl std::fmt::Debug for SessionManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionManager")
    }
}

/// What opening does with a session that is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfClosed {
    Reopen,
    Refuse,
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
        let open = governance.storage.readers.now(|reader| reader.open_sessions())?;
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

    /// Opens the sessions of standing agents. An agent whose program or model is missing does not stop the others: a warning
    /// is logged, and its session is opened on the first request.
    pub async fn preload(&self) -> Result<usize, SessionError> {
        let mut open = 0;
        for agent in &self.shared.agents.standing() {
            let key = SessionKey::direct(&agent.id, "standing", "local", "main")?;
            let opener = Opener {
                name: "roster".to_owned(),
                pubkey: None,
                is_unregistered: false,
                requested: RequestedTerms {
                    mode: Some(SessionMode::Persistent),
                    ..RequestedTerms::default()
                },
            };
            match self.admit(key, opener, IfFull::Admit).await {
                Ok(_) => open += 1,
                Err(SessionError::Runtime(error)) if NOT_READY_CODES.contains(&error.kind) => {
                    tracing::warn!(agent = %agent.id, "a standing agent cannot be run yet: {}", error.message);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(open)
    }

    /// Opens a session, or returns it if it is open. Its mandate comes from the roster, never from the caller.
    pub async fn ensure(&self, key: SessionKey, opener: Opener) -> Result<Handle, SessionError> {
        self.admit(key, opener, IfFull::Refuse).await
    }

    async fn admit(&self, key: SessionKey, opener: Opener, if_full: IfFull) -> Result<Handle, SessionError> {
        let Opener { name: opened_by, pubkey, is_unregistered, requested } = opener;
        let stored = if requested.needs_stored() { self.row(&key).await? } else { None };
        let agent = self.shared.agents.agent(key.agent());
        let terms = opener::agent_terms(agent, is_unregistered)
            .ok_or_else(|| SessionError::UnknownAgent(key.agent().to_string()))?;
        let terms = SessionTerms { pubkey, ..requested.resolve(terms, stored.map(|row| row.terms)) };
        let input = SessionInput { key, terms, opened_by, lineage: None };
        self.close_if_terms_changed(&input).await?;
        self.open(input, IfClosed::Reopen, if_full).await.map(|session| session.handle().clone())
    }

    /// Closes an open session whose terms cannot become those of `input`, so that it can be opened with the new terms. Its
    /// conversation stays.
    async fn close_if_terms_changed(&self, input: &SessionInput) -> Result<(), SessionError> {
        let key = &input.key;
        let Some(row) = self.row(key).await? else { return Ok(()) };
        // A running turn is not interrupted: the terms change at the next opening, when the session is idle.
        if row.terms.can_become(&input.terms)
            || matches!(row.state, SessionState::Closed | SessionState::Running)
        {
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
        let (room, storage) = (self.shared.room.clone(), self.shared.governance.storage.clone());
        let actor = Actor { session: Arc::clone(&session), runtime, opening, room, storage, draining };
        let shared = Arc::downgrade(&self.shared);
        self.shared.tasks.spawn(async move {
            actor::run(actor, commands).await;
            let (shared, key) = (shared.upgrade(), &session.handle().key);
            if let Some(shared) = &shared {
                shared.governance.event_hub().remove(key, &session.feed);
            }
            session.feed.end();
            let Some(shared) = shared else { return };
            let mut loaded = shared.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            let key: &SessionKey = key;
            if loaded.get(key).is_some_and(|found| Arc::ptr_eq(found, &session)) {
                loaded.remove(key);
                // INVARIANT: under the lock of `loaded`, so a reopening starts the session's MCP servers after this stop.
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

    /// The session's row in the ledger's views.
    pub async fn row(&self, key: &SessionKey) -> Result<Option<SessionRow>, SessionError> {
        let key = key.as_str().to_owned();
        Ok(self.shared.governance.storage.readers.read(move |reader| reader.session(&key)).await?)
    }

    /// Returns an open session, and loads it first if it is not loaded.
    async fn session(&self, key: &SessionKey) -> Result<Arc<Session>, SessionError> {
        if let Some(session) = self.loaded(key) {
            return Ok(session);
        }
        let row = self.row(key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
        if row.state == SessionState::Closed {
            return Err(SessionError::Closed(key.to_string()));
        }
        // It keeps the terms of its opening, under the present mandate of its agent. An agent that is no longer in the roster
        // counts as unregistered.
        let rostered = self.shared.agents.agent(key.agent());
        let mut terms = row.terms;
        terms.mandate = rostered.map_or_else(|| DEFAULT_MANDATE.to_owned(), |agent| agent.mandate);
        terms.additional_directories = supported_directories(&terms.backend, terms.additional_directories);
        let (key, opened_by) = (key.clone(), "restart".to_owned());
        let input = SessionInput { key, terms, opened_by, lineage: None };
        self.open(input, IfClosed::Refuse, IfFull::Refuse).await
    }

    /// Cancels every running turn. Returns how many there were.
    pub fn cancel_all(&self) -> usize {
        let sessions = self.shared.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().filter(|session| session.cancel()).count()
    }

    /// Queues a turn behind those that were queued before.
    pub async fn run_turn(
        &self,
        key: &SessionKey,
        content: Vec<ContentBlock>,
        speaker: Speaker,
    ) -> Result<TurnHandle, SessionError> {
        self.run_stored(key, content, speaker, None).await
    }

    /// Queues a turn whose text may come from a schedule (`stored_as` is its id, for the labels).
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
            vault: Arc::clone(&self.shared.governance.storage.vault),
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

    /// Cancels the session's running turn. Returns `false` if none is running.
    pub async fn cancel(&self, key: &SessionKey) -> Result<bool, SessionError> {
        if self.loaded(key).is_some_and(|session| session.cancel()) {
            return Ok(true);
        }
        // A session that is not loaded runs nothing, but must exist.
        let row = self.row(key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
        match self.failure() {
            // Its turn has ended, but not on record.
            Some(why) if row.state == SessionState::Running => Err(StoreError::ReadOnly(why).into()),
            _ => Ok(false),
        }
    }

    /// Why nothing can be recorded any more, if that is so. The turns that ran then have ended without a record of it.
    pub fn failure(&self) -> Option<String> {
        self.shared.governance.storage.ledger.failure()
    }

    /// Whether a turn of the session is running, and the sequence number of the session's newest event.
    pub async fn live(&self, key: &SessionKey) -> Result<(bool, u64), SessionError> {
        match self.loaded(key) {
            Some(session) => Ok((session.is_running(), session.feed.head())),
            None => Ok((false, self.newest_at_rest(key).await?)),
        }
    }

    /// The number of subscribers of a loaded session; 0 if it is not loaded.
    pub fn followers(&self, key: &SessionKey) -> usize {
        self.loaded(key).map_or(0, |session| session.feed.followers())
    }

    pub async fn list(&self, filter: SessionFilter, limit: usize) -> Result<Vec<SessionRow>, SessionError> {
        Ok(self.shared.governance.storage.readers.read(move |reader| reader.sessions(&filter, limit)).await?)
    }

    pub fn vault(&self) -> &Arc<Vault> {
        &self.shared.governance.storage.vault
    }

    pub fn governance(&self) -> &Arc<Governance> {
        &self.shared.governance
    }

    /// The number of open sessions and of loaded sessions.
    pub fn counts(&self) -> (usize, usize) {
        let loaded = self.shared.loaded.lock().unwrap_or_else(PoisonError::into_inner).len();
        (self.shared.room.taken(), loaded)
    }

    /// The number of operations (open, close, forget) in progress.
    pub fn under_way(&self) -> usize {
        self.shared.work.len()
    }

    /// Accepts no more turns, waits up to `deadline` for running ones to end, then cancels them.
    pub async fn drain(&self, deadline: Duration) -> Drained {
        self.shared.draining.cancel();
        self.shared.governance.begin_shutdown();
        self.shared.tasks.close();
        self.shared.work.close();
        let mut drained = Drained::default();
        if tokio::time::timeout(deadline, self.wait_idle()).await.is_ok() {
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
        drained.abandoned = tokio::time::timeout(CANCEL_GRACE, self.wait_idle()).await.is_err();
        drained
    }

    /// Waits until no operation, session task or background work runs.
    async fn wait_idle(&self) {
        // In this order, because an opening in progress may still start a session task.
        self.shared.work.wait().await;
        self.shared.tasks.wait().await;
        self.shared.governance.background().wait().await;
    }
}

/// The result of [`SessionManager::drain`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Turns that did not end within the deadline and were cancelled.
    pub cancelled: usize,
    /// Whether some turns did not end after the cancellation either; crash recovery marks them as interrupted.
    pub abandoned: bool,
}
