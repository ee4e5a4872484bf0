//! How far everyone is: what is on disk in the book, what is posted into each database, and what is synced there.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Into which database something is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Ledger,
    Vault,
}

/// Numbers of records, which only rise; and whoever waits for them.
#[derive(Debug, Default)]
pub(super) struct Watermarks {
    state: Mutex<State>,
    moved: Condvar,
    /// The same for those who wait in an async runtime; of what is durable alone.
    mark_completed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// In the book, and on disk.
    durable: u64,
    /// How often the pen was put down.
    sheets: u64,
    ledger: Progress,
    vault: Progress,
    failed: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Progress {
    /// The newest record with a part for this side.
    taken: u64,
    /// Readers of the database see everything up to here.
    posted: u64,
    /// Everything up to here is on disk in the database too.
    synced: u64,
    /// Requests that went past the book so far, and those of them that readers see.
    past: u64,
    past_posted: u64,
}

/// What somebody waits for who wants to read everything that was given to both sides until now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadPoint {
    ledger: Newest,
    vault: Newest,
}

impl ReadPoint {
    const fn by(self, side: Target) -> Newest {
        match side {
            Target::Ledger => self.ledger,
            Target::Vault => self.vault,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Newest {
    number: u64,
    past: u64,
}

impl Progress {
    const fn has(&self, newest: Newest) -> bool {
        self.posted >= newest.number && self.past_posted >= newest.past
    }

    const fn newest(&self) -> Newest {
        Newest { number: self.taken, past: self.past }
    }
}

impl Watermarks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, note: impl FnOnce(&mut State)) {
        note(&mut self.lock());
        self.moved.notify_all();
    }

    /// Waits until `reached`. False if that will never be.
    fn wait(&self, reached: impl Fn(&State) -> bool) -> bool {
        let mut state = self.lock();
        while !reached(&state) && !state.failed {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        reached(&state)
    }

    /// Everything up to `number` is done: where a house begins.
    pub(super) fn begin_at(&self, number: u64) {
        self.note(|state| {
            state.durable = number;
            for side in [&mut state.ledger, &mut state.vault] {
                *side = Progress { taken: number, posted: number, synced: number, ..*side };
            }
        });
    }

    pub(super) fn mark_taken(&self, side: Target, number: u64) {
        self.lock().of(side).taken = number;
    }

    /// The pen was put down, and everything up to `number` is on disk.
    pub(super) fn durable(&self, number: u64) {
        self.note(|state| {
            state.durable = state.durable.max(number);
            state.sheets += 1;
        });
        self.mark_completed.notify_waiters();
    }

    /// Whether it is on disk; none while that is not known.
    pub(super) fn is_durable(&self, number: u64) -> Option<bool> {
        let state = self.lock();
        if state.durable >= number { Some(true) } else { state.failed.then_some(false) }
    }

    /// Ends when more is durable, or nothing will be, after it was asked for.
    pub(super) fn told(&self) -> tokio::sync::futures::Notified<'_> {
        self.mark_completed.notified()
    }

    pub(super) fn frames(&self) -> u64 {
        self.lock().sheets
    }

    pub(super) fn mark_bypassed(&self, side: Target) {
        self.lock().of(side).past += 1;
    }

    pub(super) fn mark_applied(&self, side: Target, number: Option<u64>, past: usize) {
        self.note(|state| {
            let own = state.of(side);
            own.posted = own.posted.max(number.unwrap_or(0));
            own.past_posted += past as u64;
        });
    }

    /// Everything that was posted so far is on disk.
    pub(super) fn mark_synced(&self, side: Target) {
        self.note(|state| {
            let own = state.of(side);
            own.synced = own.posted;
        });
    }

    pub(super) fn fail(&self) {
        self.note(|state| state.failed = true);
        self.mark_completed.notify_waiters();
    }

    pub(super) fn wait_durable(&self, number: u64) -> bool {
        self.wait(|state| state.durable >= number)
    }

    /// What was given to each side last.
    pub(super) fn reached(&self) -> ReadPoint {
        let state = self.lock();
        ReadPoint { ledger: state.ledger.newest(), vault: state.vault.newest() }
    }

    /// Whether readers of this side see it, or never will.
    pub(super) fn is_applied(&self, side: Target, reached: ReadPoint) -> bool {
        let state = self.lock();
        state.at(side).has(reached.by(side)) || state.failed
    }

    /// Until everything up to `number` is on disk, or the pen was put down once more than `seen`.
    pub(super) fn wait_written(&self, number: u64, seen: u64) {
        self.wait(|state| state.durable >= number || state.sheets != seen);
    }

    /// Until readers see it, or the pen was put down once more than `seen`.
    pub(super) fn wait_applied(&self, side: Target, reached: ReadPoint, seen: u64) {
        self.wait(|state| state.at(side).has(reached.by(side)) || state.sheets != seen);
    }

    /// Until everything up to `number` is on disk in this side's database.
    pub(super) fn wait_synced(&self, side: Target, number: u64) -> bool {
        self.wait(|state| state.at(side).synced >= number)
    }
}

impl State {
    const fn of(&mut self, side: Target) -> &mut Progress {
        match side {
            Target::Ledger => &mut self.ledger,
            Target::Vault => &mut self.vault,
        }
    }

    const fn at(&self, side: Target) -> &Progress {
        match side {
            Target::Ledger => &self.ledger,
            Target::Vault => &self.vault,
        }
    }
}
