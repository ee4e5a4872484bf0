//! The one place that asks what time it is.

use tribune_ledger::Timestamp;

/// Where the time comes from; tests bring their own.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// A time as people write it, such as `2030-01-31T18:00:00Z`.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(Timestamp::new)
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
