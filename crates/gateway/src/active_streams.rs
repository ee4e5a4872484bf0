//! Whose events flow through a connection already, so that a turn that is asked for there does not send them twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tribune_sessions::session::{Session, Subscription, TurnHandle};

/// The sessions that subscriptions of one connection follow, by the subscription's number. A session that was closed and
/// opened again is another: who followed the first does not see the second. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Streaming(Arc<Mutex<HashMap<u64, Arc<Session>>>>);

/// A subscription that flows until this is dropped.
#[derive(Debug)]
pub(super) struct Flowing {
    streaming: Streaming,
    number: u64,
}

impl Streaming {
    /// The subscription flows from now on.
    pub(super) fn begin(&self, number: u64, subscription: &Subscription) -> Flowing {
        if let Some(session) = subscription.session() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::clone(session));
        }
        Flowing { streaming: self.clone(), number }
    }

    /// The subscription flows no more.
    pub(super) fn end(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// Whether the events of this turn come through a subscription.
    pub(super) fn flows(&self, ticket: &TurnHandle) -> bool {
        let flowing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ticket.session().is_some_and(|asked| flowing.values().any(|session| Arc::ptr_eq(session, asked)))
    }
}

impl Drop for Flowing {
    fn drop(&mut self) {
        self.streaming.end(self.number);
    }
}
