//! What the backend knows of its sessions: the turn that runs, the script that waits for an answer, and whether the
//! last turn was cancelled. A session of which none is true takes no memory at all.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::cursor::Cursor;
use crate::session::{SessionKey, SessionState};

/// The memory of one backend. Gone when the process ends.
#[derive(Default)]
pub(super) struct Memory(Mutex<Sessions>);

#[derive(Default)]
struct Sessions {
    known: HashMap<Arc<SessionKey>, Session>,
    turns_begun: u64,
}

#[derive(Default)]
struct Session {
    running: Option<Running>,
    waiting: Option<Box<Cursor>>,
    cancelled: bool,
}

struct Running {
    /// Tells a turn from a later one of the same session.
    number: u64,
    cancel: CancellationToken,
}

/// A running turn. Dropped, it no longer runs.
pub(super) struct Turn {
    memory: Arc<Memory>,
    key: Arc<SessionKey>,
    number: u64,
    pub(super) cancel: CancellationToken,
}

/// What remains of a turn.
pub(super) enum Remains {
    Nothing,
    Cancelled,
    /// The script goes on with the next turn.
    Script(Box<Cursor>),
}

impl Memory {
    /// Begins a turn that ends with this token or with [`Memory::cancel`]. `None` while another runs.
    pub(super) fn begin(self: &Arc<Self>, key: &Arc<SessionKey>, cancel: &CancellationToken) -> Option<Turn> {
        let mut sessions = self.lock();
        sessions.turns_begun += 1;
        let number = sessions.turns_begun;
        let session = sessions.known.entry(Arc::clone(key)).or_default();
        if session.running.is_some() {
            return None;
        }
        let cancel = cancel.child_token();
        session.running = Some(Running { number, cancel: cancel.clone() });
        Some(Turn { memory: Arc::clone(self), key: Arc::clone(key), number, cancel })
    }

    /// Cancels the running turn, if there is one.
    pub(super) fn cancel(&self, key: &SessionKey) {
        let token = self.lock().known.get(key).and_then(|session| session.token());
        // Outside the lock: it wakes others.
        if let Some(token) = token {
            token.cancel();
        }
    }

    /// Forgets the session and cancels its turn.
    pub(super) fn close(&self, key: &SessionKey) {
        let forgotten = self.lock().known.remove(key);
        if let Some(token) = forgotten.and_then(|session| session.token()) {
            token.cancel();
        }
    }

    pub(super) fn state(&self, key: &SessionKey) -> SessionState {
        match self.lock().known.get(key) {
            Some(session) if session.running.is_some() => SessionState::Running,
            Some(session) if session.cancelled => SessionState::Cancelled,
            Some(_) | None => SessionState::Idle,
        }
    }

    /// Sessions that take memory.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().known.len()
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        // Nothing under the lock panics halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn token(&self) -> Option<CancellationToken> {
        self.running.as_ref().map(|running| running.cancel.clone())
    }
}

impl Turn {
    /// The script that waits for what the user said now.
    pub(super) fn waiting(&self) -> Option<Box<Cursor>> {
        self.memory.lock().known.get_mut(&self.key).and_then(|session| session.waiting.take())
    }

    pub(super) fn end(self, remains: Remains) {
        self.settle(Some(remains));
    }

    /// `None` when the turn was dropped before it ended.
    fn settle(&self, remains: Option<Remains>) {
        let mut sessions = self.memory.lock();
        let Entry::Occupied(mut entry) = sessions.known.entry(Arc::clone(&self.key)) else { return };
        let session = entry.get_mut();
        // The session may have been closed and opened again, and run another turn by now.
        if session.running.as_ref().is_none_or(|running| running.number != self.number) {
            return;
        }
        session.running = None;
        session.cancelled = matches!(remains, Some(Remains::Cancelled));
        if let Some(Remains::Script(cursor)) = remains {
            session.waiting = Some(cursor);
        }
        if session.waiting.is_none() && !session.cancelled {
            entry.remove();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.settle(None);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What people said never reaches a log.
        f.debug_struct("Memory").field("sessions", &self.lock().known.len()).finish_non_exhaustive()
    }
}
