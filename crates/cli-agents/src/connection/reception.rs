//! Who receives the agent's messages, and what it does while no turn does.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::mpsc;

use super::{Incoming, QUEUE};
use crate::codec::MessageCodec;

/// Lines of a turn that are no messages: some programs print a warning to the wrong stream.
pub(super) const MAX_JUNK_LINES: usize = 64;

/// Calls of a turn that are remembered until the next, and bytes of the id of one.
const MAX_KNOWN_CALLS: usize = 10_000;
const MAX_KNOWN_ID_BYTES: usize = 1024;

/// The receiver of the moment. Opening a new one resets the state of the turn before.
#[derive(Default)]
pub(super) struct Reception {
    receiver: Mutex<Option<mpsc::Sender<Incoming>>>,
    /// Receivers so far.
    opened: AtomicU64,
    /// No message arrived since a receiver was opened.
    is_silent: AtomicBool,
    /// Lines since a receiver was opened that are no messages.
    junk_lines: AtomicUsize,
    /// A turn is over, and none has begun since. Before the first one an agent may report old calls.
    is_idle: AtomicBool,
    /// Calls of the last turn that were reported while it ran.
    known_calls: Mutex<HashSet<String>>,
    /// The first violation between two turns.
    violation: Mutex<Option<String>>,
}

impl Reception {
    /// Opens a receiver in place of the earlier one. Returns it with its number.
    pub(super) fn open(&self) -> (u64, mpsc::Receiver<Incoming>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        self.is_idle.store(false, Ordering::Relaxed);
        self.junk_lines.store(0, Ordering::Relaxed);
        self.is_silent.store(true, Ordering::Relaxed);
        self.known_calls().clear();
        *self.receiver_slot() = Some(sender);
        (number, receiver)
    }

    /// Whether this is the newest receiver.
    pub(super) fn is_newest(&self, number: u64) -> bool {
        self.opened.load(Ordering::Relaxed) == number
    }

    /// Between two turns from now on.
    pub(super) fn mark_idle(&self) {
        *self.receiver_slot() = None;
        self.is_idle.store(true, Ordering::Relaxed);
    }

    /// Where a message goes that arrives now.
    pub(super) fn receiver(&self) -> Option<mpsc::Sender<Incoming>> {
        self.is_silent.store(false, Ordering::Relaxed);
        self.receiver_slot().clone()
    }

    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Counts a line that is no message. True if there were too many.
    pub(super) fn count_junk_line(&self) -> bool {
        self.junk_lines.fetch_add(1, Ordering::Relaxed) >= MAX_JUNK_LINES
    }

    /// Remembers a call of the turn. A turn with more calls than are remembered is ended for that.
    pub(super) fn note_call(&self, id: &str) {
        let mut known = self.known_calls();
        if known.len() < MAX_KNOWN_CALLS && id.len() <= MAX_KNOWN_ID_BYTES {
            known.insert(id.to_owned());
        }
    }

    /// Records work that is reported while no turn runs.
    pub(super) fn record_violation(&self, codec: &dyn MessageCodec, notification: &Value) {
        let is_unknown = codec.call(notification).is_some_and(|(id, _)| !self.known_calls().contains(id));
        if self.is_idle.load(Ordering::Relaxed) && (is_unknown || codec.is_work(notification)) {
            self.violation_slot()
                .get_or_insert_with(|| "it went on working when its turn was over".to_owned());
        }
    }

    pub(super) fn violation(&self) -> Option<String> {
        self.violation_slot().clone()
    }

    fn receiver_slot(&self) -> MutexGuard<'_, Option<mpsc::Sender<Incoming>>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_calls(&self) -> MutexGuard<'_, HashSet<String>> {
        self.known_calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn violation_slot(&self) -> MutexGuard<'_, Option<String>> {
        self.violation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
