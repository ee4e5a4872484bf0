//! Sessions: who is open, one serial queue each, and the way back to a stream after a lost connection.
//!
//! A session lives in the ledger; here it is only loaded. One that is open and not loaded (after a restart, say) is
//! loaded by the first who asks for it.

mod actor;
mod error;
mod feed;
pub mod transcript;
mod transcripts;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tribune_agents::{
    AgentRuntime, CloseReason, ContentBlock, Handle, SessionInput, SessionKey, SessionMode, SessionState, Speaker,
};
use tribune_constitution::DEFAULT_MANDATE;
use tribune_ledger::Cid;

pub use self::actor::{Accepted, TurnEnd};
use self::actor::{Actor, Close, Command, Run, Session};
pub use self::error::SessionError;
use self::feed::Head;
pub use self::transcripts::{Projection, Transcripts};
use crate::governed::Governance;
use crate::registry::Agents;
use crate::store::{SessionFilter, SessionRow};
use crate::vault::{Event, Vault};

/// Locks under which sessions are opened and closed; more than cores, few enough to be nothing.
const OPENING_LOCKS: usize = 64;

/// How often a session is closed again that others open while it is to be forgotten.
const CLOSING_ATTEMPTS: usize = 8;

/// How often sessions without turns are looked for, and how many are closed in one go.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
const SWEEP_AT_ONCE: usize = 1_000;

/// What a turn that is told to end at shutdown gets to write its end down.
const LAST_WORDS: Duration = Duration::from_secs(3);

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
    limits: SessionLimits,
    loaded: Mutex<HashMap<SessionKey, Arc<Session>>>,
    opening: Vec<Arc<tokio::sync::Mutex<()>>>,
    opening_hash: RandomState,
    open: AtomicUsize,
    tasks: TaskTracker,
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
    pub is_stranger: bool,
}

/// What to do about a session that turns out to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfClosed {
    Reopen,
    Refuse,
}

/// A turn that was asked for.
#[derive(Debug)]
pub struct Ticket {
    accepted: oneshot::Receiver<Result<Accepted, SessionError>>,
    ended: oneshot::Receiver<Result<TurnEnd, SessionError>>,
    /// Taken before the turn begins, so that its events are kept in memory for whoever asked for it.
    follower: Option<Subscription>,
}

impl Ticket {
    /// Waits until the input is durable and the turn runs.
    pub async fn accepted(&mut self) -> Result<Accepted, SessionError> {
        (&mut self.accepted).await.unwrap_or(Err(SessionError::Draining))
    }

    /// The turn's events, from the first.
    pub fn events(&mut self, accepted: &Accepted) -> Option<Subscription> {
        let mut follower = self.follower.take()?;
        follower.after = accepted.first_seq - 1;
        Some(follower)
    }

    /// Waits for the end of the turn.
    pub async fn ended(self) -> Result<TurnEnd, SessionError> {
        self.ended.await.unwrap_or(Err(SessionError::Draining))
    }
}

/// Where someone stands in a session's events.
#[derive(Debug)]
pub struct Subscription {
    vault: Arc<Vault>,
    session_id: Arc<str>,
    session: Option<Arc<Session>>,
    head: Option<watch::Receiver<Head>>,
    /// The newest event of a session that was closed when this began.
    left: u64,
    after: u64,
}

impl SessionManager {
    pub fn new(
        governance: Arc<Governance>,
        runtimes: HashMap<String, Arc<dyn AgentRuntime>>,
        agents: Arc<Agents>,
        limits: SessionLimits,
    ) -> Result<Self, SessionError> {
        let open = governance.readers.now(|reader| reader.open_sessions())?;
        let shared = Shared {
            governance,
            runtimes,
            agents,
            limits,
            loaded: Mutex::default(),
            opening: (0..OPENING_LOCKS).map(|_| Arc::default()).collect(),
            opening_hash: RandomState::new(),
            open: AtomicUsize::new(usize::try_from(open).unwrap_or(usize::MAX)),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Opens the sessions of standing agents.
    pub async fn preload(&self) -> Result<usize, SessionError> {
        let standing = self.shared.agents.standing();
        for agent in &standing {
            let key = SessionKey::direct(&agent.id, "standing", "local", "main")?;
            let opener = Opener { name: "roster".to_owned(), pubkey: None, is_stranger: false };
            self.ensure(key, Some(SessionMode::Persistent), opener).await?;
        }
        Ok(standing.len())
    }

    /// Opens a session, or finds it open. What it may do follows from the roster, never from the caller. Without a mode
    /// it keeps the one it has.
    pub async fn ensure(
        &self,
        key: SessionKey,
        mode: Option<SessionMode>,
        opener: Opener,
    ) -> Result<Handle, SessionError> {
        let mode = match mode {
            Some(mode) => mode,
            None => self.row(&key).await?.map_or_else(SessionMode::default, |row| row.mode),
        };
        let (backend, model, mandate) = match self.shared.agents.agent(key.agent()) {
            Some(agent) => (agent.backend, agent.model, agent.mandate),
            None if opener.is_stranger => {
                (crate::registry::DEFAULT_BACKEND.to_owned(), None, DEFAULT_MANDATE.to_owned())
            }
            None => return Err(SessionError::UnknownAgent(key.agent().to_string())),
        };
        let Opener { pubkey, name: opened_by, .. } = opener;
        let input = SessionInput { key, mode, backend, model, pubkey, mandate, opened_by };
        self.open(input, IfClosed::Reopen).await.map(|session| session.handle().clone())
    }

    async fn open(&self, input: SessionInput, if_closed: IfClosed) -> Result<Arc<Session>, SessionError> {
        let shared = &self.shared;
        if shared.draining.is_cancelled() {
            return Err(SessionError::Draining);
        }
        let runtime = shared.runtimes.get(&input.backend).ok_or_else(|| {
            let mut known: Vec<&str> = shared.runtimes.keys().map(String::as_str).collect();
            known.sort_unstable();
            SessionError::UnknownBackend(input.backend.clone(), known.join(", "))
        })?;
        let _opening = self.opening(&input.key).lock().await;
        let loaded = self.loaded(&input.key);
        if let Some(running) = loaded.as_ref().filter(|session| session.is_running()) {
            // Its terms cannot change under a running turn; they are looked at again when it is next opened.
            return Ok(Arc::clone(running));
        }
        let row = self.row(&input.key).await?;
        let is_new = row.is_none_or(|row| row.state == SessionState::Closed);
        if is_new && if_closed == IfClosed::Refuse {
            return Err(SessionError::Closed(input.key.to_string()));
        }
        if is_new && shared.open.load(Ordering::Relaxed) >= shared.limits.max_open {
            return Err(SessionError::TooMany(shared.limits.max_open));
        }
        let (key, mode) = (input.key.clone(), input.mode);
        let handle = runtime.ensure_session(input).await?;
        if is_new {
            shared.open.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(session) = loaded {
            session.set_mode(mode);
            return Ok(session);
        }
        let journal = shared.governance.journal(&handle).await?;
        let head = journal.lock().await.next_event() - 1;
        let (session, commands) = Session::new(handle, mode, head, shared.limits.queue);
        self.start(Arc::clone(&session), Arc::clone(runtime), commands);
        shared.loaded.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&session));
        Ok(session)
    }

    fn start(
        &self,
        session: Arc<Session>,
        runtime: Arc<dyn AgentRuntime>,
        commands: mpsc::Receiver<Command>,
    ) {
        let opening = Arc::clone(self.opening(&session.handle().key));
        let draining = self.shared.draining.clone();
        let actor = Actor { session: Arc::clone(&session), runtime, opening, draining };
        let shared = Arc::downgrade(&self.shared);
        self.shared.tasks.spawn(async move {
            let is_closed = actor::run(actor, commands).await;
            session.feed.end();
            let Some(shared) = shared.upgrade() else { return };
            if is_closed {
                shared.open.fetch_sub(1, Ordering::Relaxed);
            }
            let mut loaded = shared.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            let key: &SessionKey = &session.handle().key;
            if loaded.get(key).is_some_and(|found| Arc::ptr_eq(found, &session)) {
                loaded.remove(key);
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
            Some(agent) => (agent.backend, agent.model, agent.mandate),
            // An agent that left the roster is a stranger from then on.
            None => (row.backend, row.model, DEFAULT_MANDATE.to_owned()),
        };
        let (mode, pubkey) = (row.mode, row.pubkey);
        let opened_by = "restart".to_owned();
        let input = SessionInput { key: key.clone(), mode, backend, model, pubkey, mandate, opened_by };
        self.open(input, IfClosed::Refuse).await
    }

    /// Tells every running turn to end. Returns how many there were.
    pub(crate) fn cancel_all(&self) -> usize {
        let sessions = self.shared.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().filter(|session| session.cancel()).count()
    }

    /// Asks for a turn. It is queued behind those that were asked for before.
    pub async fn run_turn(
        &self,
        key: &SessionKey,
        content: Vec<ContentBlock>,
        speaker: Speaker,
    ) -> Result<Ticket, SessionError> {
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
        let run = Command::Run(Box::new(Run { content, speaker, accepted: accept, ended: end }));
        session.inbox.try_send(run).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                SessionError::Busy(key.to_string(), self.shared.limits.queue)
            }
            mpsc::error::TrySendError::Closed(_) => SessionError::Closed(key.to_string()),
        })?;
        Ok(Ticket { accepted, ended, follower: Some(follower) })
    }

    /// Tells the session's running turn to end. False if none is running.
    pub async fn cancel(&self, key: &SessionKey) -> Result<bool, SessionError> {
        if let Some(session) = self.loaded(key) {
            return Ok(session.cancel());
        }
        // Not loaded: nothing runs, but it must be there.
        self.row(key).await?.map(|_| false).ok_or_else(|| SessionError::NotFound(key.to_string()))
    }

    /// Closes a session. On request its running turn is ended first, and those that wait are refused.
    pub async fn close(&self, key: &SessionKey, reason: CloseReason) -> Result<(), SessionError> {
        let session = self.session(key).await?;
        let (answer, closed) = oneshot::channel();
        let command = Command::Close(Box::new(Close { reason, answer }));
        if reason == CloseReason::Requested {
            session.set_closing(true);
            session.cancel();
        }
        session.inbox.send(command).await.map_err(|_| SessionError::Closed(key.to_string()))?;
        let closed = closed.await.unwrap_or(Err(SessionError::Draining));
        if closed.is_err() {
            session.set_closing(false);
        }
        closed
    }

    /// Closes a session and shreds everything said in it. The ledger keeps its hashes, and still verifies.
    pub async fn forget(&self, key: &SessionKey, by: &str) -> Result<Cid, SessionError> {
        for _ in 0..CLOSING_ATTEMPTS {
            match self.close(key, CloseReason::Requested).await {
                Ok(()) | Err(SessionError::Closed(_)) => {}
                Err(error) => return Err(error),
            }
            // Nobody opens it from here on; someone may have, just before.
            let _opening = self.opening(key).lock().await;
            let row = self.row(key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
            if row.state == SessionState::Closed {
                let handle = Handle { key: Arc::new(key.clone()), session_id: row.id.into() };
                return Ok(self.shared.governance.forget(&handle, by).await?);
            }
        }
        Err(SessionError::Reopened(key.to_string()))
    }

    /// Whether a turn of the session is running, and the number of its newest event.
    pub async fn live(&self, key: &SessionKey) -> Result<(bool, u64), SessionError> {
        match self.loaded(key) {
            Some(session) => Ok((session.is_running(), session.feed.head())),
            None => {
                let row = self.row(key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
                if row.state != SessionState::Closed {
                    let session = self.session(key).await?;
                    return Ok((session.is_running(), session.feed.head()));
                }
                Ok((false, self.vault().newest_event(&row.id)?))
            }
        }
    }

    pub async fn list(&self, filter: SessionFilter, limit: usize) -> Result<Vec<SessionRow>, SessionError> {
        Ok(self.shared.governance.readers.read(move |reader| reader.sessions(&filter, limit)).await?)
    }

    /// Follows a session's events from behind `after`.
    pub async fn subscribe(&self, key: &SessionKey, after: u64) -> Result<Subscription, SessionError> {
        let vault = Arc::clone(&self.shared.governance.vault);
        let row = self.row(key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
        let session = match row.state {
            SessionState::Closed => self.loaded(key),
            SessionState::Idle | SessionState::Running | SessionState::Cancelled => {
                match self.session(key).await {
                    Ok(session) => Some(session),
                    // It was closed in between; what it said is still there.
                    Err(SessionError::Closed(_)) => None,
                    Err(error) => return Err(error),
                }
            }
        };
        // Following before looking: an event that comes in between is not missed.
        let head_now = session.as_ref().map(|session| session.feed.follow());
        let head = match &head_now {
            Some(head) => head.borrow().seq,
            None => vault.newest_event(&row.id)?,
        };
        if after > head {
            return Err(SessionError::Ahead { after, head });
        }
        let oldest = vault.events(&row.id, after, 1)?.oldest;
        if after + 1 < oldest {
            return Err(SessionError::Expired { oldest });
        }
        Ok(Subscription { vault, session_id: row.id.into(), session, head: head_now, left: head, after })
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
        (self.shared.open.load(Ordering::Relaxed), loaded)
    }

    /// Closes `domain` sessions that had no turn for their time to live, again and again until the daemon stops.
    pub async fn sweep(&self) {
        let mut tick = tokio::time::interval(SWEEP_EVERY.min(self.shared.limits.ttl));
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.shared.draining.cancelled() => return,
            }
            if let Err(error) = self.sweep_once().await {
                tracing::warn!(%error, "sessions past their time could not be closed");
            }
        }
    }

    /// Closes what is past its time now. Returns how many.
    pub async fn sweep_once(&self) -> Result<usize, SessionError> {
        let now = self.shared.governance.clock.now();
        let before = now.minus(self.shared.limits.ttl).to_string();
        let readers = &self.shared.governance.readers;
        let expired = readers.read(move |reader| reader.expired_sessions(&before, SWEEP_AT_ONCE)).await?;
        let mut closed = 0;
        for key in expired {
            let Ok(key) = key.parse() else { continue };
            if self.loaded(&key).is_some_and(|session| session.is_running()) {
                continue;
            }
            match self.close(&key, CloseReason::Evicted).await {
                Ok(()) => closed += 1,
                Err(SessionError::Closed(_) | SessionError::Draining) => {}
                // One that cannot be closed must not keep the others open.
                Err(error) => {
                    tracing::warn!(session = %key, %error, "a session past its time could not be closed")
                }
            }
        }
        Ok(closed)
    }

    /// Takes no more turns, lets those that run end within `deadline`, then tells them to.
    pub async fn drain(&self, deadline: Duration) -> Drained {
        self.shared.draining.cancel();
        self.shared.tasks.close();
        let mut drained = Drained::default();
        if tokio::time::timeout(deadline, self.shared.tasks.wait()).await.is_ok() {
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
        drained.abandoned = tokio::time::timeout(LAST_WORDS, self.shared.tasks.wait()).await.is_err();
        drained
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

impl Subscription {
    /// The place behind which the next events are read.
    pub const fn after(&self) -> u64 {
        self.after
    }

    /// At most `limit` further events. Waits if there are none yet; none at all if there will be none.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<Event>, SessionError> {
        loop {
            // A closed session has no feed; what it left is all there is.
            let head = match &mut self.head {
                Some(head) => *head.borrow_and_update(),
                None => Head { seq: self.left, is_over: true },
            };
            if self.after < head.seq {
                let mut events = self.read(limit).await?;
                // The vault can be ahead of the ledger. What was not shown yet may never have happened.
                events.retain(|event| event.seq <= head.seq);
                if let Some(last) = events.last() {
                    self.after = last.seq;
                    return Ok(events);
                }
            }
            let more = match &mut self.head {
                Some(feed) if !head.is_over => feed.changed().await.is_ok(),
                _ => false,
            };
            if !more {
                return Ok(Vec::new());
            }
        }
    }

    async fn read(&self, limit: usize) -> Result<Vec<Event>, SessionError> {
        if let Some(recent) = self.session.as_ref().and_then(|session| session.feed.recent(self.after, limit))
        {
            return Ok(recent);
        }
        let (vault, session_id, after) = (Arc::clone(&self.vault), Arc::clone(&self.session_id), self.after);
        let read = tokio::task::spawn_blocking(move || vault.events(&session_id, after, limit)).await;
        let range = read.map_err(|_| SessionError::Draining)??;
        if self.after + 1 < range.oldest {
            return Err(SessionError::Expired { oldest: range.oldest });
        }
        Ok(range.events)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.head = None;
        if let Some(session) = &self.session
            && !session.is_running()
        {
            session.feed.clear();
        }
    }
}
