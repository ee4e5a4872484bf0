//! The state of the backend's sessions: the running turn, the script that waits for an answer, and whether the last
//! turn was cancelled. A session without any of these takes no memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::cursor::Cursor;
use crate::session::{SessionKey, SessionState};

/// The state of one backend's sessions. It ends with the process.
#[derive(Default)]
pub(super) struct RehearsalSessions(Mutex<KnownSessions>);

#[derive(Default)]
struct KnownSessions {
    known: HashMap<Arc<SessionKey>, SessionEntry>,
    turns_begun: u64,
}

#[derive(Default)]
struct SessionEntry {
    running: Option<TurnHandle>,
    waiting: Option<Box<Cursor>>,
    cancelled: bool,
}

struct TurnHandle {
    /// Distinguishes a turn from a later one of the same session.
    number: u64,
    cancel: CancellationToken,
}

/// A running turn, until it is dropped.
pub(super) struct RunningTurn {
    all: Arc<RehearsalSessions>,
    key: Arc<SessionKey>,
    number: u64,
    pub(super) cancel: CancellationToken,
}

/// What a turn leaves to the session.
pub(super) enum TurnRemainder {
    Nothing,
    Cancelled,
    /// The script goes on with the next turn.
    Script(Box<Cursor>),
}

impl RehearsalSessions {
    /// Begins a turn that this token or [`RehearsalSessions::cancel`] ends. `None` while another runs.
    pub(super) fn begin(
        self: &Arc<Self>,
        key: &Arc<SessionKey>,
        cancel: &CancellationToken,
    ) -> Option<RunningTurn> {
        let mut sessions = self.lock();
        sessions.turns_begun += 1;
        let number = sessions.turns_begun;
        let session = sessions.known.entry(Arc::clone(key)).or_default();
        if session.running.is_some() {
            return None;
        }
        let cancel = cancel.child_token();
        session.running = Some(TurnHandle { number, cancel: cancel.clone() });
        Some(RunningTurn { all: Arc::clone(self), key: Arc::clone(key), number, cancel })
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

    fn lock(&self) -> MutexGuard<'_, KnownSessions> {
        // Nothing under the lock panics halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionEntry {
    fn token(&self) -> Option<CancellationToken> {
        self.running.as_ref().map(|running| running.cancel.clone())
    }
}

impl RunningTurn {
    /// The script that waits for the user's text.
    pub(super) fn waiting(&self) -> Option<Box<Cursor>> {
        self.all.lock().known.get_mut(&self.key).and_then(|session| session.waiting.take())
    }

    pub(super) fn end(self, remains: TurnRemainder) {
        self.settle(Some(remains));
    }

    /// `None` when the turn was dropped before it ended.
    fn settle(&self, remains: Option<TurnRemainder>) {
        let mut sessions = self.all.lock();
        let Entry::Occupied(mut entry) = sessions.known.entry(Arc::clone(&self.key)) else { return };
        let session = entry.get_mut();
        // The session may have been closed and opened again, and run another turn by now.
        if session.running.as_ref().is_none_or(|running| running.number != self.number) {
            return;
        }
        session.running = None;
        session.cancelled = matches!(remains, Some(TurnRemainder::Cancelled));
        if let Some(TurnRemainder::Script(cursor)) = remains {
            session.waiting = Some(cursor);
        }
        if session.waiting.is_none() && !session.cancelled {
            entry.remove();
        }
    }
}

impl Drop for RunningTurn {
    fn drop(&mut self) {
        self.settle(None);
    }
}

impl fmt::Debug for RehearsalSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Conversations never reach a log.
        f.debug_struct("RehearsalSessions")
            .field("sessions", &self.lock().known.len())
            .finish_non_exhaustive()
    }
}
