//! How many threads run the daemon's tasks.

/// At most: agents wait for models and disks, not for processors.
const MOST: usize = 4;

/// One for every two processors. The others are for those who post what was written, and for the agents: a thread that is woken only to find
/// that there is nothing to do takes the processor from somebody who has.
pub fn workers() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.div_ceil(2).min(MOST)
}
