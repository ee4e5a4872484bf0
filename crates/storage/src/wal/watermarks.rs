//! Watermarks: the sequence number up to which records are durable in the WAL, applied to each database, and synced there.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The database that a part of a record is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Ledger,
    Vault,
}

/// The watermarks, which only rise, and the callers that wait for them.
#[derive(Debug, Default)]
pub(super) struct Watermarks {
    state: Mutex<State>,
    moved: Condvar,
    /// Wakes waiters in an async runtime, only when `durable` rises or the WAL fails.
    completion: Notify,
    /// Wakes those that wait for the WAL to fail.
    failure: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Everything up to here is on disk in the WAL.
    durable: u64,
    /// How many frames were written: rises each time a leader is done.
    frames: u64,
    ledger: Progress,
    vault: Progress,
    failed: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Progress {
    /// The newest record with a part for this database.
    taken: u64,
    /// Readers of the database see everything up to here.
    applied: u64,
    /// Everything up to here is on disk in the database too.
    synced: u64,
    /// Requests that bypassed the WAL so far, and those of them that readers see.
    bypassed: u64,
    bypassed_applied: u64,
}

/// A point in the history of both databases. A reader that waits for it sees everything that was written until then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadPoint {
    ledger: Newest,
    vault: Newest,
}

impl ReadPoint {
    const fn by(self, target: Target) -> Newest {
        match target {
            Target::Ledger => self.ledger,
            Target::Vault => self.vault,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Newest {
    number: u64,
    bypassed: u64,
}

impl Progress {
    const fn has(&self, newest: Newest) -> bool {
        self.applied >= newest.number && self.bypassed_applied >= newest.bypassed
    }

    const fn newest(&self) -> Newest {
        Newest { number: self.taken, bypassed: self.bypassed }
    }
}

impl Watermarks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, update: impl FnOnce(&mut State)) {
        update(&mut self.lock());
        self.moved.notify_all();
    }

    /// Waits until `reached`. False if the WAL failed before.
    fn wait(&self, reached: impl Fn(&State) -> bool) -> bool {
        let mut state = self.lock();
        while !reached(&state) && !state.failed {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        reached(&state)
    }

    /// Sets every watermark to `number`: the state at startup.
    pub(super) fn begin_at(&self, number: u64) {
        self.update(|state| {
            state.durable = number;
            for target in [&mut state.ledger, &mut state.vault] {
                *target = Progress { taken: number, applied: number, synced: number, ..*target };
            }
        });
    }

    pub(super) fn mark_taken(&self, target: Target, number: u64) {
        self.lock().of(target).taken = number;
    }

    /// A leader is done, and everything up to `number` is on disk.
    pub(super) fn mark_durable(&self, number: u64) {
        self.update(|state| {
            state.durable = state.durable.max(number);
            state.frames += 1;
        });
        self.completion.notify_waiters();
    }

    /// Whether the record is on disk; none while its write is pending.
    pub(super) fn is_durable(&self, number: u64) -> Option<bool> {
        let state = self.lock();
        if state.durable >= number { Some(true) } else { state.failed.then_some(false) }
    }

    /// Completes when more becomes durable, or the WAL fails, after this call.
    pub(super) fn completion(&self) -> tokio::sync::futures::Notified<'_> {
        self.completion.notified()
    }

    pub(super) fn frames(&self) -> u64 {
        self.lock().frames
    }

    pub(super) fn mark_bypassed(&self, target: Target) {
        self.lock().of(target).bypassed += 1;
    }

    pub(super) fn mark_applied(&self, target: Target, number: Option<u64>, bypassed: usize) {
        self.update(|state| {
            let own = state.of(target);
            own.applied = own.applied.max(number.unwrap_or(0));
            own.bypassed_applied += bypassed as u64;
        });
    }

    /// Everything that was applied so far is on disk.
    pub(super) fn mark_synced(&self, target: Target) {
        self.update(|state| {
            let own = state.of(target);
            own.synced = own.applied;
        });
    }

    pub(super) fn fail(&self) {
        self.update(|state| state.failed = true);
        self.completion.notify_waiters();
        self.failure.notify_waiters();
    }

    /// Completes when the WAL has failed.
    pub(super) async fn wait_failed(&self) {
        loop {
            let failure = self.failure.notified();
            tokio::pin!(failure);
            // From here on no notification is missed.
            failure.as_mut().enable();
            if self.lock().failed {
                return;
            }
            failure.await;
        }
    }

    pub(super) fn wait_durable(&self, number: u64) -> bool {
        self.wait(|state| state.durable >= number)
    }

    /// The newest record and request of each database.
    pub(super) fn read_point(&self) -> ReadPoint {
        let state = self.lock();
        ReadPoint { ledger: state.ledger.newest(), vault: state.vault.newest() }
    }

    /// Whether readers of this database see everything up to `point`, or never will.
    pub(super) fn is_applied(&self, target: Target, point: ReadPoint) -> bool {
        let state = self.lock();
        state.at(target).has(point.by(target)) || state.failed
    }

    /// Waits until everything up to `number` is on disk, or another frame than the `seen` ones was written.
    pub(super) fn wait_written(&self, number: u64, seen: u64) {
        self.wait(|state| state.durable >= number || state.frames != seen);
    }

    /// Waits until readers see everything up to `point`, or another frame than the `seen` ones was written.
    pub(super) fn wait_applied(&self, target: Target, point: ReadPoint, seen: u64) {
        self.wait(|state| state.at(target).has(point.by(target)) || state.frames != seen);
    }

    /// Waits until everything up to `number` is on disk in this database. False if the WAL failed before.
    pub(super) fn wait_synced(&self, target: Target, number: u64) -> bool {
        self.wait(|state| state.at(target).synced >= number)
    }
}

impl State {
    const fn of(&mut self, target: Target) -> &mut Progress {
        match target {
            Target::Ledger => &mut self.ledger,
            Target::Vault => &mut self.vault,
        }
    }

    const fn at(&self, target: Target) -> &Progress {
        match target {
            Target::Ledger => &self.ledger,
            Target::Vault => &self.vault,
        }
    }
}
