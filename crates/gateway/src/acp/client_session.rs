//! A session that a client has open: where it is, how far it was told, and what waits.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tribune_runtime::SessionKey;
use tribune_sessions::session::Subscription;
use tribune_tools::mcp::ServerSpec;

use super::options::Mode;
use super::slash_commands::OfAgent;
use super::update_mapper::UpdateMapper;

/// Turns of one client that are remembered as its own, the newest.
const MAX_OWN: usize = 64;

/// A session that a client has open.
pub(super) struct ClientSession {
    /// What the client knows it by: the key of the session as it was opened.
    pub(super) id: String,
    place: Mutex<SessionBinding>,
    pub(super) told: watch::Sender<Progress>,
    pub(super) own: watch::Sender<Own>,
    /// The prompt that this client waits for.
    running: Mutex<Option<Running>>,
    /// What is to be followed next.
    waiting: Mutex<Option<Prefetched>>,
    /// Ends whoever follows it.
    following: Mutex<CancellationToken>,
    /// Held while the session is opened again.
    pub(super) attaching: tokio::sync::Mutex<()>,
    /// Questions that wait for a person, by the approval's id.
    questions: Mutex<HashMap<String, CancellationToken>>,
}

/// A prompt that a client waits for.
#[derive(Debug)]
pub(super) struct Running {
    /// Fires when the client does not want it any more.
    pub(super) token: CancellationToken,
    /// The turn that it became.
    pub(super) turn: Option<String>,
}

/// What is to be followed.
pub(super) struct Prefetched {
    pub(super) subscription: Subscription,
    pub(super) teller: UpdateMapper,
    /// Fires when something else is followed instead.
    pub(super) over: CancellationToken,
}

/// Where a session is, and how it is used.
#[derive(Debug, Clone)]
pub(super) struct SessionBinding {
    pub(super) key: SessionKey,
    /// The workspace: that of the session, whatever the client asked for.
    pub(super) folder: PathBuf,
    /// The further folders that the client wants beside it, if it has a word in that.
    pub(super) further: Option<Vec<String>>,
    pub(super) mode: Mode,
    /// The model that the client chose.
    pub(super) model: Option<String>,
    /// Commands of the agent behind us.
    pub(super) commands: OfAgent,
    pub(super) has_title: bool,
    /// The MCP servers that the client brought.
    pub(super) servers: Arc<[ServerSpec]>,
    /// What the client asked for and does not get, to be told when it listens.
    pub(super) left_out: Vec<String>,
}

impl SessionBinding {
    pub(super) fn new(key: SessionKey, folder: PathBuf, model: Option<String>) -> Self {
        let (commands, servers, left_out) = (OfAgent::default(), Arc::default(), Vec::new());
        let (mode, has_title, further) = (Mode::Ask, false, None);
        Self { key, folder, further, mode, model, commands, has_title, servers, left_out }
    }
}

/// How far a client was told.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    /// The number of the newest event.
    pub(super) seq: u64,
    /// Nothing more comes until it is followed again.
    pub(super) is_over: bool,
    /// The newest failure: of which turn, its word, and why.
    pub(super) failure: Option<(String, String, String)>,
    /// The newest answer of an agent to its prompt that says more than ours would: of which turn, and what it says.
    pub(super) answer: Option<(String, Map<String, Value>)>,
}

/// Turns that the client itself asked for: it knows what it said.
#[derive(Debug, Clone, Default)]
pub(super) struct Own {
    /// Asked for and not yet begun.
    pub(super) pending: usize,
    turns: HashSet<String>,
    order: Vec<String>,
}

impl Own {
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
    pub(super) fn new(id: String, place: SessionBinding) -> Arc<Self> {
        Arc::new(Self {
            id,
            place: Mutex::new(place),
            told: watch::Sender::new(Progress { is_over: true, ..Progress::default() }),
            own: watch::Sender::new(Own::default()),
            running: Mutex::default(),
            waiting: Mutex::default(),
            following: Mutex::default(),
            attaching: tokio::sync::Mutex::default(),
            questions: Mutex::default(),
        })
    }

    pub(super) fn place(&self) -> MutexGuard<'_, SessionBinding> {
        locked(&self.place)
    }

    pub(super) fn key(&self) -> SessionKey {
        self.place().key.clone()
    }

    /// The prompt that runs, if this client asked for one.
    pub(super) fn running(&self) -> MutexGuard<'_, Option<Running>> {
        locked(&self.running)
    }

    /// A turn was asked for. It counts as pending until what is returned is told its name, or dropped.
    pub(super) fn asks(self: &Arc<Self>) -> Asking {
        self.own.send_modify(|own| own.pending += 1);
        Asking { seat: Arc::clone(self), turn: None }
    }

    /// Follows the session anew, from behind `seq`, in place of what was before. Whoever waits to be told something waits on.
    pub(super) fn follow_anew(self: &Arc<Self>, seq: u64) -> Anew {
        let over = self.follow_nothing(seq);
        self.told.send_modify(|told| told.is_over = false);
        Anew { seat: Arc::clone(self), over, is_followed: false }
    }

    /// Ends whoever follows the session; nothing behind `seq` was told.
    pub(super) fn follow_nothing(&self, seq: u64) -> CancellationToken {
        let over = CancellationToken::new();
        std::mem::replace(&mut *locked(&self.following), over.clone()).cancel();
        self.take_waiting();
        self.told.send_modify(|told| *told = Progress { seq, is_over: true, ..Progress::default() });
        over
    }

    pub(super) fn take_waiting(&self) -> Option<Prefetched> {
        locked(&self.waiting).take()
    }

    /// A question is to be asked. It is over when what is returned fires; none if it is asked already.
    pub(super) fn opened(&self, approval: &str) -> Option<CancellationToken> {
        let mut questions = locked(&self.questions);
        if questions.contains_key(approval) {
            return None;
        }
        let token = CancellationToken::new();
        questions.insert(approval.to_owned(), token.clone());
        Some(token)
    }

    /// A question is over.
    pub(super) fn decided(&self, approval: &str) {
        if let Some(token) = locked(&self.questions).remove(approval) {
            token.cancel();
        }
    }

    /// Takes back every question that is open here. They wait in the inbox.
    pub(super) fn take_questions_back(&self) {
        for (_, token) in locked(&self.questions).drain() {
            token.cancel();
        }
    }

    /// Nobody sits here any more.
    pub(super) fn leave(&self) {
        self.follow_nothing(0);
        self.take_questions_back();
    }
}

/// A session that is about to be followed. Dropped before that, it is not: nobody waits for what nobody tells.
pub(super) struct Anew {
    seat: Arc<ClientSession>,
    over: CancellationToken,
    is_followed: bool,
}

impl Anew {
    /// Leaves it to be followed from here.
    pub(super) fn with(mut self, subscription: Subscription, teller: UpdateMapper) {
        self.is_followed = true;
        let ahead = Prefetched { subscription, teller, over: self.over.clone() };
        *locked(&self.seat.waiting) = Some(ahead);
    }
}

impl Drop for Anew {
    fn drop(&mut self) {
        // Unless someone else has begun anew meanwhile.
        if !self.is_followed && !self.over.is_cancelled() {
            self.seat.told.send_modify(|told| told.is_over = true);
        }
    }
}

/// A turn that was asked for and has no name yet.
pub(super) struct Asking {
    seat: Arc<ClientSession>,
    turn: Option<String>,
}

impl Asking {
    pub(super) fn begun(mut self, turn: &str) {
        self.turn = Some(turn.to_owned());
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let turn = self.turn.take();
        self.seat.own.send_modify(|own| {
            own.pending -= 1;
            if let Some(turn) = turn {
                own.add(turn);
            }
        });
    }
}
