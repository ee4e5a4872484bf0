//! The number of worker threads of the async runtime.

/// Most worker threads. More bring nothing, because agents wait for models and disks, not for processors.
const MAX_WORKERS: usize = 4;

/// One worker for every two processors. The rest is for the threads that apply WAL records, and for the agents: a worker that
/// is woken without work takes the processor from a thread that has work.
pub fn workers() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.div_ceil(2).min(MAX_WORKERS)
}
