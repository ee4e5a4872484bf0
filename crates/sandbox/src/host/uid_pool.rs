//! Users that nothing else has, for sandboxes that root starts.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Far above the ids that systems give to people, services and containers.
const HIGH_BASE: u32 = 0x7000_0000;

/// Where only the usual 65536 ids exist, as in many containers: below `nobody`, above people and services.
const LOW_RANGE: std::ops::Range<u32> = 61_184..65_519;

/// Bits for the launches of one process, and above them for its pid.
const LAUNCH_BITS: u32 = 12;
const PID_BITS: u32 = 16;

static LAUNCHES: AtomicU32 = AtomicU32::new(0);

/// The one that a sandbox is made ahead for.
static RESERVED: Mutex<Option<u32>> = Mutex::new(None);

fn reserved() -> MutexGuard<'static, Option<u32>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next one. Its number is its group's too. If something is made ahead for one that nobody has taken yet, it is that.
#[must_use]
pub fn next() -> u32 {
    reserved().take().unwrap_or_else(generate)
}

/// The one that [`next`] will tell.
pub(super) fn reserve() -> u32 {
    *reserved().get_or_insert_with(generate)
}

/// Whether an id is one of these.
pub(super) fn is_pool_uid(id: u32) -> bool {
    id >= HIGH_BASE || LOW_RANGE.contains(&id)
}

/// One that was not told before.
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
    fn ids_that_do_not_exist_are_not_taken() {
        assert!(is_mapped("         0          0 4294967295\n", HIGH_BASE));
        assert!(!is_mapped("0 100000 65536\n", HIGH_BASE));
        assert!(is_mapped("0 100000 65536\n", LOW_RANGE.start));
        assert!(!is_mapped("", 0));
    }

    #[test]
    fn each_is_new_and_none_is_root() {
        let (first, second) = (next(), next());
        assert_ne!(first, second);
        assert!(is_pool_uid(first) && is_pool_uid(second));
        assert!(!is_pool_uid(0) && !is_pool_uid(1000) && !is_pool_uid(65_534));
    }
}
