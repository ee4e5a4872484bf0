//! How many requests may wait at once. Whoever comes later waits for room, in whatever kind of thread.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

/// Room for a number of requests; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct QueuePermits {
    enter: mpsc::Sender<()>,
    leave: Arc<Mutex<mpsc::Receiver<()>>>,
}

/// A place in it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Mutex<mpsc::Receiver<()>>>);

impl QueuePermits {
    pub(crate) fn of(places: usize) -> Self {
        // A channel is the one counter that can be waited for with and without a runtime.
        let (enter, leave) = mpsc::channel(places);
        Self { enter, leave: Arc::new(Mutex::new(leave)) }
    }

    pub(crate) async fn enter(&self) -> Permit {
        // INVARIANT: the other end is held here.
        let _ = self.enter.send(()).await;
        self.ticket()
    }

    pub(crate) fn enter_blocking(&self) -> Permit {
        let _ = self.enter.blocking_send(());
        self.ticket()
    }

    /// None if it is full.
    pub(crate) fn try_enter(&self) -> Option<Permit> {
        self.enter.try_send(()).ok().map(|()| self.ticket())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.enter.capacity() == self.enter.max_capacity()
    }

    fn ticket(&self) -> Permit {
        Permit(Arc::clone(&self.leave))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
    }
}
