//! The clock. No other code reads the system time.

use tribune_ledger::Timestamp;

/// A source of time; tests supply their own.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// Parses a time as people write it, such as `2030-01-31T18:00:00Z`.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(Timestamp::new)
}

/// The system clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that other code receives")]
    fn now(&self) -> Timestamp {
        Timestamp::new(jiff::Timestamp::now())
    }
}
