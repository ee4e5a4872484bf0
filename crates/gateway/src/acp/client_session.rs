//! A session that a client has open: its binding, how far its events were sent, and its pending permission requests.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tribune_runtime::SessionKey;
use tribune_sessions::session::Subscription;
use tribune_tools::mcp::ServerSpec;

use super::options::Mode;
use super::slash_commands::OfAgent;
use super::update_mapper::UpdateMapper;

/// How many of its newest turns a client is remembered to have started.
const MAX_OWN: usize = 64;

/// A session that a client has open.
pub(super) struct ClientSession {
    /// The session id that the client knows: the key under which the session was opened.
    pub(super) id: String,
    binding: Mutex<SessionBinding>,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) own: watch::Sender<OwnTurns>,
    /// The prompt whose response this client awaits.
    running: Mutex<Option<Running>>,
    /// Wakes those that wait for the end of that prompt.
    prompt_ended: Notify,
    /// The subscription that the next forwarder takes.
    prefetched: Mutex<Option<Prefetched>>,
    /// Cancels the current forwarder.
    following: Mutex<CancellationToken>,
    /// Held while the session is reopened.
    pub(super) attaching: tokio::sync::Mutex<()>,
    /// Open permission requests, by approval id.
    permission_requests: Mutex<HashMap<String, CancellationToken>>,
}

/// A running prompt of a client.
#[derive(Debug)]
pub(super) struct Running {
    /// Fires when the client cancels the prompt.
    pub(super) token: CancellationToken,
    /// The turn of the prompt, once it was accepted.
    pub(super) turn: Option<String>,
}

/// A prepared subscription that a forwarder has not taken yet.
pub(super) struct Prefetched {
    pub(super) subscription: Subscription,
    pub(super) mapper: UpdateMapper,
    /// Fires when another subscription replaces this one.
    pub(super) over: CancellationToken,
}

/// What a client session is bound to: the session, its folders, and the client's choices.
#[derive(Debug, Clone)]
pub(super) struct SessionBinding {
    pub(super) key: SessionKey,
    /// The workspace of the session, which may differ from what the client asked for.
    pub(super) folder: PathBuf,
    /// The additional directories that the client asked for; `None` if the client may not choose them.
    pub(super) additional_directories: Option<Vec<String>>,
    pub(super) mode: Mode,
    /// The model that the client chose.
    pub(super) model: Option<String>,
    /// Slash commands of the agent.
    pub(super) commands: OfAgent,
    pub(super) has_title: bool,
    /// The MCP servers that the client sent.
    pub(super) servers: Arc<[ServerSpec]>,
    /// Sentences about what the client asked for and did not get. Sent when the forwarder starts.
    pub(super) left_out: Vec<String>,
}

impl SessionBinding {
    pub(super) fn new(key: SessionKey, folder: PathBuf, model: Option<String>) -> Self {
        let (commands, servers, left_out) = (OfAgent::default(), Arc::default(), Vec::new());
        let (mode, has_title, additional_directories) = (Mode::Ask, false, None);
        Self { key, folder, additional_directories, mode, model, commands, has_title, servers, left_out }
    }
}

/// How far a client was sent the events of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// The sequence number of the newest event.
    pub(super) seq: u64,
    /// No forwarder runs: nothing is sent until the session is followed again.
    pub(super) is_over: bool,
    /// The newest failure of a turn.
    pub(super) failure: Option<TurnFailure>,
    /// The newest response of an agent to `session/prompt` that has more fields than Tribune's.
    pub(super) response: Option<AgentResponse>,
}

/// Why a turn failed.
#[derive(Debug, Clone)]
pub(super) struct TurnFailure {
    pub(super) turn: String,
    pub(super) code: String,
    pub(super) message: String,
}

/// An agent's own response to the prompt of a turn.
#[derive(Debug, Clone)]
pub(super) struct AgentResponse {
    pub(super) turn: String,
    pub(super) fields: Map<String, Value>,
}

/// Turns that the client itself started. Their prompts are not sent back to it.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnTurns {
    /// Requested and not yet started.
    pub(super) pending: usize,
    turns: HashSet<String>,
    order: Vec<String>,
}

impl OwnTurns {
    pub(super) fn has(&self, turn: &str) -> bool {
        self.turns.contains(turn)
    }

    fn add(&mut self, turn: String) {
        if self.order.len() >= MAX_OWN {
            let oldest = self.order.remove(0);
            self.turns.remove(&oldest);
        }
        self.order.push(turn.clone());
        self.turns.insert(turn);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientSession {
    pub(super) fn new(id: String, binding: SessionBinding) -> Arc<Self> {
        Arc::new(Self {
            id,
            binding: Mutex::new(binding),
            progress: watch::Sender::new(Progress { is_over: true, ..Progress::default() }),
            own: watch::Sender::new(OwnTurns::default()),
            running: Mutex::default(),
            prompt_ended: Notify::new(),
            prefetched: Mutex::default(),
            following: Mutex::default(),
            attaching: tokio::sync::Mutex::default(),
            permission_requests: Mutex::default(),
        })
    }

    pub(super) fn binding(&self) -> MutexGuard<'_, SessionBinding> {
        locked(&self.binding)
    }

    pub(super) fn key(&self) -> SessionKey {
        self.binding().key.clone()
    }

    /// The running prompt, if this client started it.
    pub(super) fn running(&self) -> MutexGuard<'_, Option<Running>> {
        locked(&self.running)
    }

    /// The prompt of this client is over.
    pub(super) fn end_running(&self) {
        *self.running() = None;
        self.prompt_ended.notify_waiters();
    }

    /// Cancels this client's prompt and waits for its end. A prompt that is still on its way to the session would reopen it.
    pub(super) async fn cancel_prompt(&self) {
        loop {
            let ended = self.prompt_ended.notified();
            tokio::pin!(ended);
            // From here on no notification is missed.
            ended.as_mut().enable();
            match &*self.running() {
                Some(running) => running.token.cancel(),
                None => return,
            }
            ended.await;
        }
    }

    /// Counts a requested turn as pending until [`PendingTurn::started`] names it, or the returned value is dropped.
    pub(super) fn begin_turn(self: &Arc<Self>) -> PendingTurn {
        self.own.send_modify(|own| own.pending += 1);
        PendingTurn { session: Arc::clone(self), turn: None }
    }

    /// Starts to follow the session after `seq`, and cancels the current forwarder. Tasks that wait for progress keep waiting.
    pub(super) fn restart_following(self: &Arc<Self>, seq: u64) -> FollowGuard {
        let over = self.stop_following(seq);
        self.progress.send_modify(|progress| progress.is_over = false);
        FollowGuard { session: Arc::clone(self), over, is_followed: false }
    }

    /// Cancels the current forwarder and resets the progress to `seq`.
    pub(super) fn stop_following(&self, seq: u64) -> CancellationToken {
        let over = CancellationToken::new();
        std::mem::replace(&mut *locked(&self.following), over.clone()).cancel();
        self.take_prefetched();
        self.progress
            .send_modify(|progress| *progress = Progress { seq, is_over: true, ..Progress::default() });
        over
    }

    pub(super) fn take_prefetched(&self) -> Option<Prefetched> {
        locked(&self.prefetched).take()
    }

    /// Registers a permission request. The returned token fires when it is closed; `None` if it is already registered.
    pub(super) fn register_request(&self, approval: &str) -> Option<CancellationToken> {
        let mut requests = locked(&self.permission_requests);
        if requests.contains_key(approval) {
            return None;
        }
        let token = CancellationToken::new();
        requests.insert(approval.to_owned(), token.clone());
        Some(token)
    }

    /// Closes a permission request.
    pub(super) fn close_request(&self, approval: &str) {
        if let Some(token) = locked(&self.permission_requests).remove(approval) {
            token.cancel();
        }
    }

    /// Cancels every permission request at this client. The calls keep waiting in the inbox.
    pub(super) fn cancel_requests(&self) {
        for (_, token) in locked(&self.permission_requests).drain() {
            token.cancel();
        }
    }

    /// Detaches the client: no events and no permission requests from here on.
    pub(super) fn detach(&self) {
        self.stop_following(0);
        self.cancel_requests();
    }
}

/// A session that is about to be followed. If this is dropped before a subscription is set, the progress is marked as over, so
/// that no task waits for events which never come.
pub(super) struct FollowGuard {
    session: Arc<ClientSession>,
    over: CancellationToken,
    is_followed: bool,
}

impl FollowGuard {
    /// Sets the subscription that the next forwarder takes.
    pub(super) fn with(mut self, subscription: Subscription, mapper: UpdateMapper) {
        self.is_followed = true;
        let ahead = Prefetched { subscription, mapper, over: self.over.clone() };
        *locked(&self.session.prefetched) = Some(ahead);
    }
}

impl Drop for FollowGuard {
    fn drop(&mut self) {
        // Not if another `restart_following` has replaced this one.
        if !self.is_followed && !self.over.is_cancelled() {
            self.session.progress.send_modify(|progress| progress.is_over = true);
        }
    }
}

/// A turn that was requested and has no id yet.
pub(super) struct PendingTurn {
    session: Arc<ClientSession>,
    turn: Option<String>,
}

impl PendingTurn {
    pub(super) fn started(mut self, turn: &str) {
        self.turn = Some(turn.to_owned());
    }
}

impl Drop for PendingTurn {
    fn drop(&mut self) {
        let turn = self.turn.take();
        self.session.own.send_modify(|own| {
            own.pending -= 1;
            if let Some(turn) = turn {
                own.add(turn);
            }
        });
    }
}
