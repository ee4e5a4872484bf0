//! The rate of guests: how many requests all of them together may send. Other principals have no such limit.
//!
//! A request of a guest costs what another one does: a turn, entries of the ledger, a place in the queue of the disk. So the
//! class as a whole is bounded, with however many keys.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tribune_records::agents::PrincipalTier;

use crate::error::ApiError;
use crate::principal::Principal;

/// Requests per second of all guests together.
const PER_SECOND: f64 = 20.0;

/// Requests that may come at once after a pause: enough for an editor that opens its sessions.
const BURST: f64 = 200.0;

/// A token bucket that all guests share.
#[derive(Debug, Default)]
pub(super) struct GuestRate(Mutex<SpentRequests>);

/// The requests that were spent and have not come back yet.
#[derive(Debug, Default)]
struct SpentRequests {
    count: f64,
    at: Option<Instant>,
}

impl GuestRate {
    /// Counts a request of `who`. Refuses one of a guest beyond the rate.
    pub(super) fn take(&self, who: &Principal) -> Result<(), ApiError> {
        match who.tier() {
            PrincipalTier::Operator | PrincipalTier::Member => Ok(()),
            PrincipalTier::Guest => self.take_at(Instant::now()),
        }
    }

    fn take_at(&self, now: Instant) -> Result<(), ApiError> {
        let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = spent.at.map_or(0.0, |at| now.duration_since(at).as_secs_f64());
        spent.count = (spent.count - passed * PER_SECOND).max(0.0);
        spent.at = Some(now);
        if spent.count + 1.0 > BURST {
            let what = format!(
                "guests send more than {PER_SECOND} requests a second: wait, or let the operator add your key"
            );
            return Err(ApiError::new("rate_limited", what));
        }
        spent.count += 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn guests_share_a_burst_that_comes_back_with_time() {
        let (rate, start) = (GuestRate::default(), Instant::now());
        let allowed = |seconds: u64, tries: usize| {
            let now = start + Duration::from_secs(seconds);
            (0..tries).filter(|_| rate.take_at(now).is_ok()).count()
        };
        assert_eq!(allowed(0, 1_000), 200);
        assert_eq!(allowed(1, 1_000), 20);
        assert_eq!(allowed(3, 1_000), 40);
        assert_eq!(allowed(1_000, 1_000), 200, "a pause gives no more than one burst");
    }

    #[test]
    fn only_guests_are_counted() {
        let rate = GuestRate::default();
        let guest = crate::principal::anonymous().unwrap();
        assert!((0..1_000).any(|_| rate.take(&guest).is_err()));
        assert!((0..1_000).all(|_| rate.take(&Principal::Operator).is_ok()));
    }
}
