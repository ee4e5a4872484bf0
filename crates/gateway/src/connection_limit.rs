//! Places of connections. The operator, approvers and agents of the roster keep theirs. Whoever proved nothing, or a key that
//! nobody knows, has one until a newcomer needs it: the oldest of them goes. So nobody can keep the operator out by
//! holding connections, however many keys it makes.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::status::Status;
use tokio_util::sync::CancellationToken;

use super::principal::Principal;

/// Of this many places, one is kept by nobody but the operator.
const ONE_IN: usize = 8;

/// What a connection has proved, as far as its place goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrincipalTier {
    Operator,
    /// An approver, or an agent of the roster.
    Member,
    /// Anyone else.
    Guest,
}

impl Principal {
    pub(super) const fn standing(&self) -> PrincipalTier {
        match self {
            Self::Operator => PrincipalTier::Operator,
            Self::Approver(_) | Self::Agent { .. } => PrincipalTier::Member,
            Self::Stranger { .. } | Self::Anonymous { .. } => PrincipalTier::Guest,
        }
    }
}

/// All places.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    max: usize,
    taken: Mutex<Taken>,
    status: Arc<Status>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// Those that go when others come, oldest first, and how each is told.
    loose: BTreeMap<u64, CancellationToken>,
    kept: HashMap<u64, PrincipalTier>,
}

/// One of the connections that may be open. Given back when this is dropped; a WebSocket takes it along.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    seats: Arc<ConnectionLimit>,
    number: u64,
    gone: CancellationToken,
}

impl ConnectionLimit {
    pub(super) fn new(max: usize, status: Arc<Status>) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default(), status })
    }

    /// A place for a newcomer; none if all are kept.
    pub(super) fn take(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut taken = self.taken();
        if taken.loose.len() + taken.kept.len() >= self.max {
            let (_, oldest) = taken.loose.pop_first()?;
            oldest.cancel();
        }
        let (number, gone) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.loose.insert(number, gone.clone());
        self.status.connections.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionSlot { seats: Arc::clone(self), number, gone })
    }

    /// How many places approvers and agents keep at most.
    const fn for_members(&self) -> usize {
        self.max - self.max.div_ceil(ONE_IN)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Whoever is on this connection is now known to be this.
    pub(super) fn is_of(&self, standing: PrincipalTier) {
        let mut taken = self.seats.taken();
        let was = match taken.kept.get(&self.number) {
            Some(kept) => *kept,
            None if taken.loose.contains_key(&self.number) => PrincipalTier::Guest,
            // It was given to someone else, and the connection is about to end.
            None => return,
        };
        if was == standing {
            return;
        }
        let members = || taken.kept.values().filter(|kept| **kept == PrincipalTier::Member).count();
        let keeps = match standing {
            PrincipalTier::Operator => true,
            PrincipalTier::Member => members() < self.seats.for_members(),
            PrincipalTier::Guest => false,
        };
        if keeps {
            taken.loose.remove(&self.number);
            taken.kept.insert(self.number, standing);
        } else {
            taken.kept.remove(&self.number);
            taken.loose.insert(self.number, self.gone.clone());
        }
    }

    /// Waits until the place is given to someone else.
    pub(super) async fn gone(&self) {
        self.gone.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        taken.loose.remove(&self.number);
        taken.kept.remove(&self.number);
        self.seats.status.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
