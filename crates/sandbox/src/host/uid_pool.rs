//! User ids that nothing else uses, for sandboxes that root starts.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Far above the ids that systems assign to people, services and containers.
const HIGH_BASE: u32 = 0x7000_0000;

/// For containers that map only the usual 65536 ids: below `nobody`, above people and services.
const LOW_RANGE: std::ops::Range<u32> = 61_184..65_519;

/// The low bits count the launches of one process, the bits above hold its pid.
const LAUNCH_BITS: u32 = 12;
const PID_BITS: u32 = 16;

static LAUNCHES: AtomicU32 = AtomicU32::new(0);

/// The user id for which a launcher is being prewarmed.
static RESERVED: Mutex<Option<u32>> = Mutex::new(None);

fn reserved() -> MutexGuard<'static, Option<u32>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the next unused user id, which is also the group id. Prefers the reserved one, so that the prewarmed
/// launcher fits.
#[must_use]
pub fn next() -> u32 {
    reserved().take().unwrap_or_else(generate)
}

/// Reserves the id that [`next`] will return.
pub(super) fn reserve() -> u32 {
    *reserved().get_or_insert_with(generate)
}

/// Whether an id is from this pool.
pub(super) fn is_pool_uid(id: u32) -> bool {
    id >= HIGH_BASE || LOW_RANGE.contains(&id)
}

/// Returns an id that was not returned before.
fn generate() -> u32 {
    let launch = LAUNCHES.fetch_add(1, Ordering::Relaxed);
    let pid = std::process::id();
    let high = HIGH_BASE + ((pid % (1 << PID_BITS)) << LAUNCH_BITS) + launch % (1 << LAUNCH_BITS);
    let maps = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if is_mapped(&maps, high) {
        return high;
    }
    LOW_RANGE.start + pid.wrapping_add(launch) % (LOW_RANGE.end - LOW_RANGE.start)
}

/// Whether an id exists in this user namespace.
fn is_mapped(maps: &str, id: u32) -> bool {
    maps.lines().any(|line| {
        let mut numbers = line.split_whitespace().map_while(|number| number.parse::<u64>().ok());
        let (Some(first), Some(_), Some(count)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&id.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mapped_ids_are_used() {
        assert!(is_mapped("         0          0 4294967295\n", HIGH_BASE));
        assert!(!is_mapped("0 100000 65536\n", HIGH_BASE));
        assert!(is_mapped("0 100000 65536\n", LOW_RANGE.start));
        assert!(!is_mapped("", 0));
    }

    #[test]
    fn every_id_is_new_and_from_the_pool() {
        let (first, second) = (next(), next());
        assert_ne!(first, second);
        assert!(is_pool_uid(first) && is_pool_uid(second));
        assert!(!is_pool_uid(0) && !is_pool_uid(1000) && !is_pool_uid(65_534));
    }
}
