//! The connection limit. Connections of the operator, of approvers and of agents of the roster keep their slot. A connection
//! that proved nothing, or only an unregistered key, can be evicted: when the limit is reached, a new connection takes the
//! slot of the oldest of them. So nobody can lock the operator out by holding connections, with however many keys.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::principal::Principal;
use crate::status::Status;

/// One slot in this many is reserved for the operator: approvers and agents cannot keep it.
const ONE_IN: usize = 8;

/// What a connection has proved, as far as its slot is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrincipalTier {
    Operator,
    /// An approver, or an agent of the roster.
    Member,
    /// Any other caller; its slot can be given away.
    Guest,
}

impl Principal {
    pub(super) const fn standing(&self) -> PrincipalTier {
        match self {
            Self::Operator => PrincipalTier::Operator,
            Self::Approver(_) | Self::Agent { .. } => PrincipalTier::Member,
            Self::Unregistered { .. } | Self::Anonymous { .. } => PrincipalTier::Guest,
        }
    }
}

/// All connection slots.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    max: usize,
    taken: Mutex<Taken>,
    status: Arc<Status>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// Slots that can be evicted, oldest first, with the token that tells the connection.
    evictable: BTreeMap<u64, CancellationToken>,
    /// Slots that cannot.
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

    /// Takes a slot for a new connection, and evicts the oldest evictable one if all are taken. `None` if none is evictable.
    pub(super) fn take(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut taken = self.taken();
        if taken.evictable.len() + taken.kept.len() >= self.max {
            let (_, oldest) = taken.evictable.pop_first()?;
            oldest.cancel();
        }
        let (number, evicted) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.evictable.insert(number, evicted.clone());
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

impl ConnectionSlot {
    /// Records what this connection has proved. A member beyond the members' share stays evictable.
    pub(super) fn is_of(&self, standing: PrincipalTier) {
        let mut taken = self.limit.taken();
        let was = match taken.kept.get(&self.number) {
            Some(kept) => *kept,
            None if taken.evictable.contains_key(&self.number) => PrincipalTier::Guest,
            // Evicted: the connection is about to end.
            None => return,
        };
        if was == standing {
            return;
        }
        let members = || taken.kept.values().filter(|kept| **kept == PrincipalTier::Member).count();
        let keeps = match standing {
            PrincipalTier::Operator => true,
            PrincipalTier::Member => members() < self.limit.for_members(),
            PrincipalTier::Guest => false,
        };
        if keeps {
            taken.evictable.remove(&self.number);
            taken.kept.insert(self.number, standing);
        } else {
            taken.kept.remove(&self.number);
            taken.evictable.insert(self.number, self.evicted.clone());
        }
    }

    /// Waits until another connection takes this slot.
    pub(super) async fn gone(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.limit.taken();
        taken.evictable.remove(&self.number);
        taken.kept.remove(&self.number);
        self.limit.status.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
