//! A semaphore that bounds how many requests wait at once. It can be acquired from async tasks and from plain threads.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

/// A fixed number of permits; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct QueuePermits {
    take: mpsc::Sender<()>,
    release: Arc<Mutex<mpsc::Receiver<()>>>,
}

/// One permit. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Mutex<mpsc::Receiver<()>>>);

impl QueuePermits {
    pub(crate) fn of(permits: usize) -> Self {
        // A channel is the one counter that can be awaited in a runtime and waited for without one.
        let (take, release) = mpsc::channel(permits);
        Self { take, release: Arc::new(Mutex::new(release)) }
    }

    pub(crate) async fn enter(&self) -> Permit {
        // INVARIANT: `self` holds the receiver, so sending does not fail.
        let _ = self.take.send(()).await;
        self.permit()
    }

    pub(crate) fn enter_blocking(&self) -> Permit {
        let _ = self.take.blocking_send(());
        self.permit()
    }

    /// None if no permit is free.
    pub(crate) fn try_enter(&self) -> Option<Permit> {
        self.take.try_send(()).ok().map(|()| self.permit())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.take.capacity() == self.take.max_capacity()
    }

    fn permit(&self) -> Permit {
        Permit(Arc::clone(&self.release))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
    }
}
