//! The one place that asks what time it is.

use tribune_ledger::Timestamp;

/// Where the time comes from; tests bring their own.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everyone else is handed")]
    fn now(&self) -> Timestamp {
        Timestamp::new(jiff::Timestamp::now())
    }
}
