//! How many requests may wait at once. Whoever comes later waits for room, in whatever kind of thread.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

/// Room for a number of requests; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    enter: mpsc::Sender<()>,
    leave: Arc<Mutex<mpsc::Receiver<()>>>,
}

/// A place in it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<Mutex<mpsc::Receiver<()>>>);

impl Room {
    pub(crate) fn of(places: usize) -> Self {
        // A channel is the one counter that can be waited for with and without a runtime.
        let (enter, leave) = mpsc::channel(places);
        Self { enter, leave: Arc::new(Mutex::new(leave)) }
    }

    pub(crate) async fn enter(&self) -> Ticket {
        // INVARIANT: the other end is held here.
        let _ = self.enter.send(()).await;
        self.ticket()
    }

    pub(crate) fn enter_blocking(&self) -> Ticket {
        let _ = self.enter.blocking_send(());
        self.ticket()
    }

    /// None if it is full.
    pub(crate) fn try_enter(&self) -> Option<Ticket> {
        self.enter.try_send(()).ok().map(|()| self.ticket())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.enter.capacity() == self.enter.max_capacity()
    }

    fn ticket(&self) -> Ticket {
        Ticket(Arc::clone(&self.leave))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
    }
}
