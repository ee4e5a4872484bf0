//! The connection limit. Connections of the operator, of approvers and of agents of the roster keep their slot. When the limit is
//! reached, a new connection takes the slot of the oldest one that proved nothing, or else of the oldest guest. Guests have at
//! most half of what the others leave. So no class keeps another one out by holding connections, with however many keys.
//!
//! What arrives on a connection that proved nothing, or only that it is a guest's, is counted until it is handled: it is held in
//! memory. There is a bound for each such connection, and a budget for all of them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tribune_records::agents::PrincipalTier;

use crate::status::Status;

/// One slot in this many is reserved for the operator: approvers and agents cannot keep it.
const ONE_IN: usize = 8;

/// The share of guests: one in this many of the slots that nobody keeps.
const GUESTS_ONE_IN: usize = 2;

/// Most bytes of a WebSocket message until its connection has proved more than a guest does.
pub(super) const UNPROVEN_MESSAGE: usize = 64 << 10;

/// Most bytes of an HTTP request and of the head behind it, on such a connection.
const UNPROVEN_HTTP: usize = 192 << 10;

/// Bytes that a reader may have taken beyond the end of a message.
const READ_AHEAD: usize = 8 << 10;

/// Most bytes that all such connections together hold.
const UNPROVEN_TOTAL: usize = 4 << 20;

/// The text of the error of a connection that sent too much.
pub(super) const TOO_MUCH_UNPROVEN: &str =
    "a message of more than 64 KiB before authentication, or of a guest";

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
    unproven: BTreeMap<u64, Evictable>,
    guests: BTreeMap<u64, Evictable>,
    /// Slots that cannot be evicted.
    kept: HashMap<u64, PrincipalTier>,
    /// Bytes that all connections which can be evicted hold.
    held: usize,
}

/// A slot that can be evicted.
#[derive(Debug)]
struct Evictable {
    evicted: CancellationToken,
    /// Bytes that arrived and were not handled yet.
    held: usize,
}

impl Evictable {
    const fn new(evicted: CancellationToken) -> Self {
        Self { evicted, held: 0 }
    }
}

/// One of the connections that may be open. Dropping it frees the slot; a WebSocket keeps it after the upgrade.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limit: Arc<ConnectionLimit>,
    number: u64,
    evicted: CancellationToken,
    /// It proved that it is not a guest's: what it sends is not counted.
    is_proven: AtomicBool,
    is_websocket: AtomicBool,
}

impl ConnectionLimit {
    pub(super) fn new(max: usize, status: Arc<Status>) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default(), status })
    }

    /// Takes a slot for a new connection, and evicts one if all are taken. `None` if none can be evicted.
    pub(super) fn take(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut taken = self.taken();
        if taken.unproven.len() + taken.guests.len() + taken.kept.len() >= self.max {
            let oldest = taken.unproven.first_key_value().or_else(|| taken.guests.first_key_value());
            let oldest = *oldest?.0;
            taken.evict(oldest);
        }
        let (number, evicted) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.unproven.insert(number, Evictable::new(evicted.clone()));
        self.status.connections.fetch_add(1, Ordering::Relaxed);
        let (is_proven, is_websocket) = (AtomicBool::new(false), AtomicBool::new(false));
        Some(ConnectionSlot { limit: Arc::clone(self), number, evicted, is_proven, is_websocket })
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
        self.held -= evictable.as_ref().map_or(0, |evictable| evictable.held);
        self.kept.remove(&number).is_some() || evictable.is_some()
    }

    fn evictable(&mut self, number: u64) -> Option<&mut Evictable> {
        self.unproven.get_mut(&number).or_else(|| self.guests.get_mut(&number))
    }

    fn evict(&mut self, number: u64) {
        if let Some(evictable) = self.evictable(number) {
            evictable.evicted.cancel();
        }
        self.release(number);
    }

    /// The connection that holds the most.
    fn largest(&self) -> Option<u64> {
        let all = self.unproven.iter().chain(&self.guests);
        all.max_by_key(|(_, evictable)| evictable.held).map(|(number, _)| *number)
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
        self.is_proven.store(tier != PrincipalTier::Guest, Ordering::Relaxed);
        let evictable = || Evictable::new(self.evicted.clone());
        let members = || taken.kept.values().filter(|kept| **kept == PrincipalTier::Member).count();
        match tier {
            PrincipalTier::Operator => drop(taken.kept.insert(self.number, tier)),
            PrincipalTier::Member if members() < self.limit.for_members() => {
                taken.kept.insert(self.number, tier);
            }
            PrincipalTier::Member => drop(taken.unproven.insert(self.number, evictable())),
            PrincipalTier::Guest => {
                taken.guests.insert(self.number, evictable());
                let share = (self.limit.max.saturating_sub(taken.kept.len()) / GUESTS_ONE_IN).max(1);
                while taken.guests.len() > share
                    && let Some(oldest) = taken.guests.first_key_value().map(|(number, _)| *number)
                {
                    taken.evict(oldest);
                }
            }
        }
    }

    /// The connection is a WebSocket from now on.
    pub(super) fn is_websocket(&self) {
        self.is_websocket.store(true, Ordering::Relaxed);
        self.handled();
    }

    /// Counts bytes that arrived. Fails if the connection holds more than it may. If all connections together do, the one that
    /// holds the most is evicted.
    pub(super) fn received(&self, bytes: usize) -> io::Result<()> {
        if self.is_proven.load(Ordering::Relaxed) {
            return Ok(());
        }
        let most = match self.is_websocket.load(Ordering::Relaxed) {
            true => UNPROVEN_MESSAGE + READ_AHEAD,
            false => UNPROVEN_HTTP,
        };
        let mut taken = self.limit.taken();
        let Some(own) = taken.evictable(self.number) else { return Ok(()) };
        own.held += bytes;
        let held = own.held;
        taken.held += bytes;
        while taken.held > UNPROVEN_TOTAL
            && let Some(largest) = taken.largest()
        {
            taken.evict(largest);
        }
        if held > most { Err(io::Error::other(TOO_MUCH_UNPROVEN)) } else { Ok(()) }
    }

    /// Everything that arrived so far is handled.
    pub(super) fn handled(&self) {
        if self.is_proven.load(Ordering::Relaxed) {
            return;
        }
        let mut taken = self.limit.taken();
        let held = taken.evictable(self.number).map_or(0, |own| std::mem::take(&mut own.held));
        taken.held -= held;
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
