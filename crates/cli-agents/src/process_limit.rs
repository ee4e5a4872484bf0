//! How many agents run at once, whatever they speak: each is a tree of processes with hundreds of megabytes.
//!
//! Where there is no room, the one that was idle for the longest is ended; it is started again when it is next spoken to. If none
//! is idle, whoever wants another waits, in the order in which they came.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// What an agent is at. It goes from one to the other in one step, so that none is ended as a turn begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// A turn runs, or it is being started.
    Busy,
    Idle {
        since: Instant,
    },
    /// It is being ended, and takes no turn any more.
    Ending,
}

/// The room that there is for agents.
#[derive(Debug)]
pub struct Berths {
    most: usize,
    free: Arc<Semaphore>,
    aboard: Mutex<Aboard>,
    /// An agent came to rest.
    rested: Notify,
}

#[derive(Debug, Default)]
struct Aboard {
    next: u64,
    agents: BTreeMap<u64, Taken>,
    /// Those who wait for room.
    waiting: usize,
}

#[derive(Debug)]
struct Taken {
    at: Arc<watch::Sender<Use>>,
    closing: CancellationToken,
    /// Ended for whoever waits.
    makes_room: bool,
}

impl Berths {
    /// Room for so many.
    pub fn new(most: usize) -> Arc<Self> {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(most));
        Arc::new(Self { most, free, aboard: Mutex::default(), rested: Notify::new() })
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Whether whoever comes now has to wait for the end of a turn.
    pub(crate) fn is_full(&self) -> bool {
        let aboard = self.aboard();
        let is_idle = |taken: &Taken| matches!(*taken.at.borrow(), Use::Idle { .. });
        self.free.available_permits() == 0 && !aboard.agents.values().any(is_idle)
    }

    /// Room for an agent that `closing` ends. It is busy from the beginning.
    pub(crate) async fn take(self: &Arc<Self>, closing: &CancellationToken) -> Berth {
        let _waiting = Waiting::new(self);
        let mut acquiring = std::pin::pin!(Arc::clone(&self.free).acquire_owned());
        loop {
            let rested = self.rested.notified();
            let mut rested = std::pin::pin!(rested);
            rested.as_mut().enable();
            self.make_room();
            tokio::select! {
                // INVARIANT: nobody closes it.
                permit = &mut acquiring => return self.berth(closing, permit.ok()),
                () = rested => {}
            }
        }
    }

    /// Beyond the bound, for what is short and one at a time.
    pub(crate) fn squeeze_in(self: &Arc<Self>, closing: &CancellationToken) -> Berth {
        self.berth(closing, None)
    }

    fn berth(self: &Arc<Self>, closing: &CancellationToken, permit: Option<OwnedSemaphorePermit>) -> Berth {
        let at = Arc::new(watch::Sender::new(Use::Busy));
        let mut aboard = self.aboard();
        let number = aboard.next;
        aboard.next += 1;
        if permit.is_some() {
            let taken = Taken { at: Arc::clone(&at), closing: closing.clone(), makes_room: false };
            aboard.agents.insert(number, taken);
        }
        drop(aboard);
        Berth { berths: Arc::clone(self), number, at, _permit: permit }
    }

    /// Ends the one that was idle for the longest, if there is no room and as many wait as are being ended for it.
    fn make_room(&self) {
        let mut aboard = self.aboard();
        let ending = aboard.agents.values().filter(|taken| taken.makes_room).count();
        if self.free.available_permits() > 0 || ending >= aboard.waiting {
            return;
        }
        loop {
            let idle = aboard.agents.values_mut().filter_map(|taken| {
                let at = *taken.at.borrow();
                match at {
                    Use::Idle { since } => Some((since, taken)),
                    Use::Busy | Use::Ending => None,
                }
            });
            let Some((_, taken)) = idle.min_by_key(|(since, _)| *since) else { return };
            if retire(&taken.at) {
                taken.makes_room = true;
                return taken.closing.cancel();
            }
        }
    }

    fn aboard(&self) -> std::sync::MutexGuard<'_, Aboard> {
        self.aboard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From idle to ending, unless a turn began.
fn retire(at: &watch::Sender<Use>) -> bool {
    at.send_if_modified(|at| {
        let is_idle = matches!(at, Use::Idle { .. });
        if is_idle {
            *at = Use::Ending;
        }
        is_idle
    })
}

/// Somebody who waits for room, until this is dropped.
struct Waiting<'a>(&'a Berths);

impl<'a> Waiting<'a> {
    fn new(berths: &'a Berths) -> Self {
        berths.aboard().waiting += 1;
        Self(berths)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.aboard().waiting -= 1;
    }
}

/// The room of one agent, until this is dropped.
#[derive(Debug)]
pub(crate) struct Berth {
    berths: Arc<Berths>,
    number: u64,
    at: Arc<watch::Sender<Use>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Berth {
    fn drop(&mut self) {
        self.berths.aboard().agents.remove(&self.number);
    }
}

impl Berth {
    pub(crate) fn usage(&self) -> Usage {
        Usage { berths: Arc::clone(&self.berths), at: Arc::clone(&self.at) }
    }

    /// Waits until no turn ran for so long. No turn begins after that.
    pub(crate) async fn unused(&self, idle: Duration) {
        let mut at = self.at.subscribe();
        loop {
            let now = *at.borrow_and_update();
            // INVARIANT: this has a sender, so there is no end of changes.
            match now {
                Use::Busy => drop(at.changed().await),
                Use::Idle { .. } => {
                    if tokio::time::timeout(idle, at.changed()).await.is_err() && retire(&self.at) {
                        return;
                    }
                }
                // Whoever ended it tells it so.
                Use::Ending => std::future::pending().await,
            }
        }
    }
}

/// What an agent is at, for those who speak to it.
#[derive(Debug, Clone)]
pub(crate) struct Usage {
    berths: Arc<Berths>,
    at: Arc<watch::Sender<Use>>,
}

impl Usage {
    /// A turn begins. False if the agent is being ended.
    pub(crate) fn claim(&self) -> bool {
        let mut is_claimed = true;
        self.at.send_modify(|at| match at {
            Use::Ending => is_claimed = false,
            Use::Busy | Use::Idle { .. } => *at = Use::Busy,
        });
        is_claimed
    }

    /// A turn is over.
    pub(crate) fn rest(&self) {
        self.at.send_modify(|at| {
            if *at == Use::Busy {
                *at = Use::Idle { since: Instant::now() };
            }
        });
        self.berths.rested.notify_waiters();
    }
}
