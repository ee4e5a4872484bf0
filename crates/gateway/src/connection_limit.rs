//! The connection limit. Connections of the operator, of approvers and of agents of the roster keep their slot. When the limit is
//! reached, a new connection takes the slot of the oldest one that proved nothing, or else of the oldest guest. Guests have at
//! most half of what the others leave. So no class keeps another one out by holding connections, with however many keys.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tribune_records::agents::PrincipalTier;

use crate::status::Status;

/// One slot in this many is reserved for the operator: approvers and agents cannot keep it.
const ONE_IN: usize = 8;

/// The share of guests: one in this many of the slots that nobody keeps.
const GUESTS_ONE_IN: usize = 2;

/// All connection slots.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    max: usize,
    taken: Mutex<Taken>,
    status: Arc<Status>,
}

/// The slots that are taken. Those that can be evicted are in order, oldest first, with the token that tells the connection.
#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// Connections that proved nothing yet.
    unproven: BTreeMap<u64, CancellationToken>,
    guests: BTreeMap<u64, CancellationToken>,
    /// Slots that cannot be evicted.
    kept: HashMap<u64, PrincipalTier>,
}

/// One of the connections that may be open. Dropping it frees the slot; a WebSocket keeps it after the upgrade.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limit: Arc<ConnectionLimit>,
    number: u64,
    evicted: CancellationToken,
}

impl ConnectionLimit {
    pub(super) fn new(max: usize, status: Arc<Status>) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default(), status })
    }

    /// Takes a slot for a new connection, and evicts one if all are taken. `None` if none can be evicted.
    pub(super) fn take(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut taken = self.taken();
        if taken.unproven.len() + taken.guests.len() + taken.kept.len() >= self.max {
            let (_, oldest) = taken.unproven.pop_first().or_else(|| taken.guests.pop_first())?;
            oldest.cancel();
        }
        let (number, evicted) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.unproven.insert(number, evicted.clone());
        self.status.connections.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionSlot { limit: Arc::clone(self), number, evicted })
    }

    /// Slots that approvers and agents can keep at most.
    const fn for_members(&self) -> usize {
        self.max - self.max.div_ceil(ONE_IN)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Takes a connection out of its class. `false` if it was evicted.
    fn release(&mut self, number: u64) -> bool {
        let evictable = self.unproven.remove(&number).or_else(|| self.guests.remove(&number));
        self.kept.remove(&number).is_some() || evictable.is_some()
    }
}

impl ConnectionSlot {
    /// Records what this connection has proved. A member beyond the members' share stays evictable.
    pub(super) fn is_of(&self, tier: PrincipalTier) {
        let mut taken = self.limit.taken();
        if !taken.release(self.number) {
            // Evicted: the connection is about to end.
            return;
        }
        let members = || taken.kept.values().filter(|kept| **kept == PrincipalTier::Member).count();
        match tier {
            PrincipalTier::Operator => drop(taken.kept.insert(self.number, tier)),
            PrincipalTier::Member if members() < self.limit.for_members() => {
                taken.kept.insert(self.number, tier);
            }
            PrincipalTier::Member => drop(taken.unproven.insert(self.number, self.evicted.clone())),
            PrincipalTier::Guest => {
                taken.guests.insert(self.number, self.evicted.clone());
                let share = (self.limit.max.saturating_sub(taken.kept.len()) / GUESTS_ONE_IN).max(1);
                while taken.guests.len() > share
                    && let Some((_, oldest)) = taken.guests.pop_first()
                {
                    oldest.cancel();
                }
            }
        }
    }

    /// Waits until another connection takes this slot.
    pub(super) async fn gone(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.limit.taken().release(self.number);
        self.limit.status.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
