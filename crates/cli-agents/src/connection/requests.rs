//! Our requests to the agent, and the responses that they wait for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::oneshot;

use crate::codec::ErrorResponse;

/// A response with its line, or the agent's error.
pub(super) type RequestResult = Result<(Value, String), ErrorResponse>;

/// The requests without a response.
pub(super) struct PendingRequests {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<RequestResult>>>,
}

impl PendingRequests {
    pub(super) fn new() -> Self {
        Self { next: AtomicU64::new(1), waiting: Mutex::default() }
    }

    /// The id of a request whose response is ignored.
    pub(super) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The id of a request, and its response.
    pub(super) fn add(&self) -> (u64, oneshot::Receiver<RequestResult>) {
        let id = self.next_id();
        let (response, waiting) = oneshot::channel();
        self.waiting().insert(id, response);
        (id, waiting)
    }

    /// Delivers a response. False if no request of this id was made.
    pub(super) fn resolve(&self, id: u64, result: RequestResult) -> bool {
        let waiting = self.waiting().remove(&id);
        match waiting {
            Some(waiting) => {
                // The caller may have stopped waiting.
                let _ = waiting.send(result);
                true
            }
            // A second response, or one that is not waited for any more.
            None => id > 0 && id < self.next.load(Ordering::Relaxed),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<RequestResult>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
