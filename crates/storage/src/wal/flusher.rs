//! The background flush thread. It flushes records that have no waiter, and every record where the disk is slow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use super::{Wal, WalRecord};
use crate::store::StoreError;

/// A disk on which a frame takes longer than this is slow: a thread that runs tasks does not write there, because it would
/// delay them.
const SLOW_WRITE: Duration = Duration::from_millis(2);

/// Frames in the moving average, about.
const AVERAGED_FRAMES: u64 = 8;

#[derive(Debug, Default)]
pub(super) struct Flusher {
    /// Wakes the thread, which starts when it is first needed; none if it could not be started.
    wake: OnceLock<Option<mpsc::Sender<()>>>,
    /// Moving average of the write latency of a frame, in microseconds.
    micros: AtomicU64,
}

impl Flusher {
    /// Records the write latency of a frame. Only the leader calls this.
    pub(super) fn record_latency(&self, taken: Duration) {
        let taken = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX / AVERAGED_FRAMES);
        let before = self.micros.load(Ordering::Relaxed);
        let now = (before * (AVERAGED_FRAMES - 1)).saturating_add(taken) / AVERAGED_FRAMES;
        self.micros.store(now, Ordering::Relaxed);
    }

    /// Whether the disk is slow.
    pub(super) fn disk_is_slow(&self) -> bool {
        u128::from(self.micros.load(Ordering::Relaxed)) > SLOW_WRITE.as_micros()
    }

    fn is_there(&self) -> bool {
        self.wake.get().is_some_and(Option::is_some)
    }
}

impl Wal {
    /// Queues a record and wakes the flush thread. Returns its sequence number at once.
    pub fn enqueue_background(&self, record: WalRecord) -> Result<u64, StoreError> {
        let number = self.enqueue(record, false)?;
        self.wake_flusher();
        Ok(number)
    }

    /// Wakes the thread to flush every queued record. False if no thread could be started: then the waiters flush.
    pub(super) fn wake_flusher(&self) -> bool {
        let wake = self.0.flusher.wake.get_or_init(|| {
            let (wake, woken) = mpsc::channel();
            let wal = Arc::downgrade(&self.0);
            let flusher = move || {
                while woken.recv().is_ok() {
                    while woken.try_recv().is_ok() {}
                    let Some(wal) = wal.upgrade() else { return };
                    Self(wal).flush();
                }
            };
            let spawned = std::thread::Builder::new().name("wal-flusher".to_owned()).spawn(flusher);
            spawned.is_ok().then_some(wake)
        });
        wake.as_ref().is_some_and(|wake| wake.send(()).is_ok())
    }

    /// Waits until a record of [`Self::enqueue_background`] is durable.
    pub async fn wait_flushed_in_background(&self, number: u64) -> Result<(), StoreError> {
        if self.0.flusher.is_there() {
            self.completion(number).await
        } else {
            self.wait_durable_async(number).await
        }
    }

    /// Flushes up to this record if there is no leader. Otherwise the flush thread will do it; without one, this waits.
    pub(crate) fn flush_lazy(&self, number: u64) {
        if !self.0.flusher.is_there() {
            return self.flush_to(number);
        }
        while self.0.marks.is_durable(number).is_none() && self.flush_as_leader() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;

    #[tokio::test]
    async fn on_a_slow_disk_the_flusher_writes() {
        let folder = tempfile::tempdir().unwrap();
        let (wal, _) = Wal::open(&Home::at(folder.path()), None).unwrap();
        wal.write(WalRecord::default()).await.unwrap();
        assert!(!wal.0.flusher.is_there(), "the waiter wrote as the leader");
        for _ in 0..2 * AVERAGED_FRAMES {
            wal.0.flusher.record_latency(Duration::from_secs(1));
        }
        wal.write(WalRecord::default()).await.unwrap();
        assert!(wal.0.flusher.is_there());
    }

    #[test]
    fn a_disk_counts_as_slow_after_several_slow_writes() {
        let flusher = Flusher::default();
        assert!(!flusher.disk_is_slow());
        flusher.record_latency(Duration::from_millis(10));
        assert!(!flusher.disk_is_slow(), "one slow write is not enough");
        for _ in 0..AVERAGED_FRAMES {
            flusher.record_latency(Duration::from_millis(10));
        }
        assert!(flusher.disk_is_slow());
        for _ in 0..4 * AVERAGED_FRAMES {
            flusher.record_latency(Duration::from_micros(100));
        }
        assert!(!flusher.disk_is_slow());
        flusher.record_latency(Duration::MAX);
        assert!(flusher.disk_is_slow(), "no latency overflows");
    }
}
