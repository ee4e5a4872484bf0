//! The sessions that a connection already streams. A turn that is requested on the same connection then does not send its
//! events a second time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tribune_sessions::session::{Session, Subscription, TurnHandle};

/// The sessions that the subscriptions of one connection follow, by subscription number. A session that was closed and
/// reopened is another one: a subscriber of the first does not see the second. Clones share the map.
#[derive(Debug, Clone, Default)]
pub(super) struct ActiveStreams(Arc<Mutex<HashMap<u64, Arc<Session>>>>);

/// Marks a subscription as active until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveStream {
    streams: ActiveStreams,
    number: u64,
}

impl ActiveStreams {
    /// Marks the subscription as active.
    pub(super) fn begin(&self, number: u64, subscription: &Subscription) -> ActiveStream {
        if let Some(session) = subscription.session() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::clone(session));
        }
        ActiveStream { streams: self.clone(), number }
    }

    /// Marks the subscription as ended.
    pub(super) fn end(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// Whether a subscription of this connection already delivers the events of this turn.
    pub(super) fn delivers(&self, turn: &TurnHandle) -> bool {
        let active = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turn.session().is_some_and(|own| active.values().any(|session| Arc::ptr_eq(session, own)))
    }
}

impl Drop for ActiveStream {
    fn drop(&mut self) {
        self.streams.end(self.number);
    }
}
