//! Large kernel subsystems behind a single system call.

use tribune_sandbox::Isolation::Seccomp;

use crate::probes::bait::Bait;
use crate::probes::probe::{Outcome, Probe};
use crate::probes::raw;

const GROUP: &str = "System calls";

pub(crate) const PROBES: &[Probe] = &[
    Probe::new(GROUP, "io_uring", "set up io_uring", &[Seccomp], io_uring),
    Probe::new(GROUP, "userfaultfd", "handle page faults (userfaultfd)", &[Seccomp], userfaultfd),
    Probe::new(GROUP, "fanotify", "watch files of other processes (fanotify)", &[Seccomp], fanotify),
    Probe::new(GROUP, "personality", "disable address space randomisation", &[Seccomp], personality),
    Probe::new(
        GROUP,
        "memory_policy",
        "bind memory to a NUMA node (set_mempolicy)",
        &[Seccomp],
        memory_policy,
    ),
    Probe::new(GROUP, "move_pages", "move pages of memory", &[Seccomp], move_pages),
    Probe::new(
        GROUP,
        "old_statistics",
        "query a file system by device number (ustat)",
        &[Seccomp],
        old_statistics,
    ),
    Probe::as_root(GROUP, "bpf", "load a program into the kernel (bpf)", bpf),
    Probe::as_root(GROUP, "perf", "count another process's events (perf_event_open)", perf),
    Probe::as_root(GROUP, "kernel_log", "read the kernel log", kernel_log),
];

fn io_uring(_: &Bait) -> Outcome {
    let mut params = [0_u8; 120];
    Outcome::of(raw::call(libc::SYS_io_uring_setup, &[4, (&raw mut params) as usize]))
}

fn userfaultfd(_: &Bait) -> Outcome {
    const USER_MODE_ONLY: usize = 1;
    Outcome::of(raw::call(libc::SYS_userfaultfd, &[USER_MODE_ONLY]))
}

fn fanotify(_: &Bait) -> Outcome {
    const REPORT_FID: usize = 0x200;
    Outcome::of(raw::call(libc::SYS_fanotify_init, &[REPORT_FID, 0]))
}

fn personality(_: &Bait) -> Outcome {
    Outcome::of(raw::call(libc::SYS_personality, &[libc::ADDR_NO_RANDOMIZE as usize]))
}

fn memory_policy(_: &Bait) -> Outcome {
    Outcome::of(raw::call(libc::SYS_set_mempolicy, &[0, 0, 0]))
}

fn move_pages(_: &Bait) -> Outcome {
    Outcome::of(raw::call(libc::SYS_move_pages, &[0, 0, 0, 0, 0, 0]))
}

fn old_statistics(_: &Bait) -> Outcome {
    use std::os::unix::fs::MetadataExt as _;
    let mut statistics = [0_u8; 64];
    let device = std::fs::metadata("/").unwrap().dev();
    Outcome::of(raw::call(libc::SYS_ustat, &[device as usize, (&raw mut statistics) as usize]))
}

/// Creates the smallest possible map.
fn bpf(_: &Bait) -> Outcome {
    const MAP_CREATE: usize = 0;
    const ARRAY: u32 = 2;
    let attributes = [ARRAY, 4, 4, 1, 0, 0, 0, 0];
    Outcome::of(raw::call(libc::SYS_bpf, &[MAP_CREATE, raw::address(&attributes), size_of_val(&attributes)]))
}

/// Counts the CPU time of process 1.
fn perf(_: &Bait) -> Outcome {
    const SOFTWARE: u32 = 1;
    let mut attributes = [0_u32; 28];
    (attributes[0], attributes[1]) = (SOFTWARE, 112);
    let none = (-1_isize).cast_unsigned();
    Outcome::of(raw::call(libc::SYS_perf_event_open, &[raw::address(&attributes), 1, none, none, 0]))
}

fn kernel_log(_: &Bait) -> Outcome {
    const SIZE_BUFFER: usize = 10;
    const READ_ALL: usize = 3;
    let mut text = [0_u8; 64];
    let read = raw::call(libc::SYS_syslog, &[SIZE_BUFFER, 0, 0])
        .and_then(|_| raw::call(libc::SYS_syslog, &[READ_ALL, (&raw mut text) as usize, text.len()]));
    Outcome::of(read)
}
