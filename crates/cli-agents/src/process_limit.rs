//! Limits how many agents run at once, over all protocols: each is a tree of processes with hundreds of megabytes.
//!
//! When the limit is reached, the agent that was idle for the longest is ended; its next turn starts it again. If none
//! is idle, a new agent waits, in the order of requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// What an agent is doing. It changes in one atomic step, so that no agent is ended as a turn begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentActivity {
    /// A turn runs, or the agent is being started.
    Busy,
    Idle {
        since: Instant,
    },
    /// It is being ended, and takes no turn any more.
    Ending,
}

/// The limit, shared by all backends.
#[derive(Debug)]
pub struct ProcessLimit {
    limit_size: usize,
    free: Arc<Semaphore>,
    running: Mutex<RunningAgents>,
    /// Notifies that an agent became idle.
    rested: Notify,
}

#[derive(Debug, Default)]
struct RunningAgents {
    next: u64,
    agents: BTreeMap<u64, RunningEntry>,
    /// Starts that wait for a place.
    waiting: usize,
}

#[derive(Debug)]
struct RunningEntry {
    at: Arc<watch::Sender<AgentActivity>>,
    closing: CancellationToken,
    /// It is ended to make room for a start that waits.
    is_making_room: bool,
}

impl ProcessLimit {
    /// A limit of `limit_size` agents.
    pub fn new(limit_size: usize) -> Arc<Self> {
        let limit_size = limit_size.clamp(1, Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(limit_size));
        Arc::new(Self { limit_size, free, running: Mutex::default(), rested: Notify::new() })
    }

    pub(crate) fn limit_size(&self) -> usize {
        self.limit_size
    }

    /// Whether another agent would have to wait for the end of a turn.
    pub(crate) fn is_full(&self) -> bool {
        let running = self.running();
        let is_idle = |taken: &RunningEntry| matches!(*taken.at.borrow(), AgentActivity::Idle { .. });
        self.free.available_permits() == 0 && !running.agents.values().any(is_idle)
    }

    /// A place for an agent that `closing` ends. The agent counts as busy from the beginning.
    pub(crate) async fn take(self: &Arc<Self>, closing: &CancellationToken) -> ProcessPermit {
        let _waiting = WaitingStart::new(self);
        let mut acquiring = std::pin::pin!(Arc::clone(&self.free).acquire_owned());
        loop {
            let rested = self.rested.notified();
            let mut rested = std::pin::pin!(rested);
            rested.as_mut().enable();
            self.make_room();
            tokio::select! {
                // INVARIANT: the semaphore is never closed.
                permit = &mut acquiring => return self.permit(closing, permit.ok()),
                () = rested => {}
            }
        }
    }

    /// A place beyond the limit, for short runs of which there is one at a time.
    pub(crate) fn acquire_unbounded(self: &Arc<Self>, closing: &CancellationToken) -> ProcessPermit {
        self.permit(closing, None)
    }

    fn permit(
        self: &Arc<Self>,
        closing: &CancellationToken,
        permit: Option<OwnedSemaphorePermit>,
    ) -> ProcessPermit {
        let at = Arc::new(watch::Sender::new(AgentActivity::Busy));
        let mut running = self.running();
        let number = running.next;
        running.next += 1;
        if permit.is_some() {
            let taken = RunningEntry { at: Arc::clone(&at), closing: closing.clone(), is_making_room: false };
            running.agents.insert(number, taken);
        }
        drop(running);
        ProcessPermit { limit: Arc::clone(self), number, at, _permit: permit }
    }

    /// Ends the agent that was idle for the longest, if no place is free and more starts wait than agents are being
    /// ended for them.
    fn make_room(&self) {
        let mut running = self.running();
        let ending = running.agents.values().filter(|taken| taken.is_making_room).count();
        if self.free.available_permits() > 0 || ending >= running.waiting {
            return;
        }
        loop {
            let idle = running.agents.values_mut().filter_map(|taken| {
                let at = *taken.at.borrow();
                match at {
                    AgentActivity::Idle { since } => Some((since, taken)),
                    AgentActivity::Busy | AgentActivity::Ending => None,
                }
            });
            let Some((_, taken)) = idle.min_by_key(|(since, _)| *since) else { return };
            if retire(&taken.at) {
                taken.is_making_room = true;
                return taken.closing.cancel();
            }
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, RunningAgents> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From idle to ending, unless a turn began.
fn retire(at: &watch::Sender<AgentActivity>) -> bool {
    at.send_if_modified(|at| {
        let is_idle = matches!(at, AgentActivity::Idle { .. });
        if is_idle {
            *at = AgentActivity::Ending;
        }
        is_idle
    })
}

/// A start that waits for a place, until this is dropped.
struct WaitingStart<'a>(&'a ProcessLimit);

impl<'a> WaitingStart<'a> {
    fn new(limit: &'a ProcessLimit) -> Self {
        limit.running().waiting += 1;
        Self(limit)
    }
}

impl Drop for WaitingStart<'_> {
    fn drop(&mut self) {
        self.0.running().waiting -= 1;
    }
}

/// The place of one agent, until this is dropped.
#[derive(Debug)]
pub(crate) struct ProcessPermit {
    limit: Arc<ProcessLimit>,
    number: u64,
    at: Arc<watch::Sender<AgentActivity>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for ProcessPermit {
    fn drop(&mut self) {
        self.limit.running().agents.remove(&self.number);
    }
}

impl ProcessPermit {
    pub(crate) fn activity(&self) -> ActivityHandle {
        ActivityHandle { limit: Arc::clone(&self.limit), at: Arc::clone(&self.at) }
    }

    /// Waits until no turn ran for `idle`. No turn begins after that.
    pub(crate) async fn wait_idle(&self, idle: Duration) {
        let mut at = self.at.subscribe();
        loop {
            let now = *at.borrow_and_update();
            // INVARIANT: this holds a sender, so the channel does not close.
            match now {
                AgentActivity::Busy => drop(at.changed().await),
                AgentActivity::Idle { .. } => {
                    if tokio::time::timeout(idle, at.changed()).await.is_err() && retire(&self.at) {
                        return;
                    }
                }
                // The agent is being ended for another reason.
                AgentActivity::Ending => std::future::pending().await,
            }
        }
    }
}

/// What an agent is doing, for the turns that use it.
#[derive(Debug, Clone)]
pub(crate) struct ActivityHandle {
    limit: Arc<ProcessLimit>,
    at: Arc<watch::Sender<AgentActivity>>,
}

impl ActivityHandle {
    /// Begins a turn. False if the agent is being ended.
    pub(crate) fn begin_turn(&self) -> bool {
        let mut is_claimed = true;
        self.at.send_modify(|at| match at {
            AgentActivity::Ending => is_claimed = false,
            AgentActivity::Busy | AgentActivity::Idle { .. } => *at = AgentActivity::Busy,
        });
        is_claimed
    }

    /// Ends a turn.
    pub(crate) fn end_turn(&self) {
        self.at.send_modify(|at| {
            if *at == AgentActivity::Busy {
                *at = AgentActivity::Idle { since: Instant::now() };
            }
        });
        self.limit.rested.notify_waiters();
    }
}
