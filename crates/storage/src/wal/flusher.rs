//! A thread that writes for those who do not wait, and for everyone where the disk is slow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use super::{Wal, WalRecord};
use crate::store::StoreError;

/// A sheet that takes longer than this to write is not written by a thread that runs tasks: it would keep them waiting.
const QUICK: Duration = Duration::from_millis(2);

/// Sheets that an average is taken of, about.
const SHEETS: u64 = 8;

#[derive(Debug, Default)]
pub(super) struct Flusher {
    /// Wakes the thread. There is none before it is needed, and perhaps none to be had.
    wake: OnceLock<Option<mpsc::Sender<()>>>,
    /// How long a sheet took of late, in microseconds.
    micros: AtomicU64,
}

impl Flusher {
    /// Takes in how long a sheet took. Whoever calls this has the pen.
    pub(super) fn record_latency(&self, taken: Duration) {
        let taken = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX / SHEETS);
        let before = self.micros.load(Ordering::Relaxed);
        let now = (before * (SHEETS - 1)).saturating_add(taken) / SHEETS;
        self.micros.store(now, Ordering::Relaxed);
    }

    /// Whether the disk is slow.
    pub(super) fn disk_is_slow(&self) -> bool {
        u128::from(self.micros.load(Ordering::Relaxed)) > QUICK.as_micros()
    }

    fn is_there(&self) -> bool {
        self.wake.get().is_some_and(Option::is_some)
    }
}

impl Wal {
    /// Has a page written soon, by a thread that is there for it. Returns its number at once.
    pub fn enqueue_background(&self, page: WalRecord) -> Result<u64, StoreError> {
        let number = self.enqueue(page, false)?;
        self.wake_flusher();
        Ok(number)
    }

    /// Has everything written that waits. False if there is no thread to be had: whoever waits writes.
    pub(super) fn wake_flusher(&self) -> bool {
        let wake = self.0.scribe.wake.get_or_init(|| {
            let (wake, woken) = mpsc::channel();
            let book = Arc::downgrade(&self.0);
            let scribe = move || {
                while woken.recv().is_ok() {
                    while woken.try_recv().is_ok() {}
                    let Some(book) = book.upgrade() else { return };
                    Self(book).flush();
                }
            };
            let spawned = std::thread::Builder::new().name("daybook-scribe".to_owned()).spawn(scribe);
            spawned.is_ok().then_some(wake)
        });
        wake.as_ref().is_some_and(|wake| wake.send(()).is_ok())
    }

    /// Waits until what [`Self::write_soon`] was given is durable.
    pub async fn wait_flushed_in_background(&self, number: u64) -> Result<(), StoreError> {
        if self.0.scribe.is_there() {
            self.completion(number).await
        } else {
            self.wait_durable_async(number).await
        }
    }

    /// Writes up to this record if the pen lies there. Otherwise the thread gets to it; without one, this waits.
    pub(crate) fn flush_lazy(&self, number: u64) {
        if !self.0.scribe.is_there() {
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
    async fn where_the_disk_is_slow_a_thread_writes() {
        let folder = tempfile::tempdir().unwrap();
        let (book, _) = Wal::open(&Home::at(folder.path()), None).unwrap();
        book.write(WalRecord::default()).await.unwrap();
        assert!(!book.0.scribe.is_there(), "whoever waits wrote");
        for _ in 0..2 * SHEETS {
            book.0.scribe.record_latency(Duration::from_secs(1));
        }
        book.write(WalRecord::default()).await.unwrap();
        assert!(book.0.scribe.is_there());
    }

    #[test]
    fn a_disk_is_slow_when_it_was_so_for_a_while() {
        let scribe = Flusher::default();
        assert!(!scribe.disk_is_slow());
        scribe.record_latency(Duration::from_millis(10));
        assert!(!scribe.disk_is_slow(), "once is nothing");
        for _ in 0..SHEETS {
            scribe.record_latency(Duration::from_millis(10));
        }
        assert!(scribe.disk_is_slow());
        for _ in 0..4 * SHEETS {
            scribe.record_latency(Duration::from_micros(100));
        }
        assert!(!scribe.disk_is_slow());
        scribe.record_latency(Duration::MAX);
        assert!(scribe.disk_is_slow(), "no number is too large");
    }
}
