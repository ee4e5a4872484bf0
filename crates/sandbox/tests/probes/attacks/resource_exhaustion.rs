//! Resource exhaustion. Every loop ends slightly beyond the limit.

use std::io::Write as _;
use std::path::Path;

use tribune_sandbox::Isolation::{Cgroup, Landlock, Rlimits, Seccomp, TmpfsLimits};

use crate::probes::bait::Bait;
use crate::probes::probe::{Outcome, Probe, Sign};
use crate::probes::raw;

const GROUP: &str = "Resource exhaustion";

pub(crate) const PROBES: &[Probe] = &[
    Probe::new(GROUP, "fork_bomb", "start more processes than allowed", &[Cgroup, Rlimits], fork_bomb),
    Probe::new(GROUP, "thread_bomb", "start more threads than allowed", &[Cgroup, Rlimits], thread_bomb),
    Probe::new(GROUP, "memory_bomb", "use more memory than allowed", &[Cgroup, Rlimits], memory_bomb)
        .seen_by(Sign::InsideOrKilled),
    shares("shared_memory_bomb", "use more shared anonymous memory than allowed", shared_memory_bomb),
    shares("zero_device_bomb", "use more shared memory of /dev/zero than allowed", zero_device_bomb),
    shares(
        "memory_file_bomb",
        "use more memory in files without a name (memfd_create) than allowed",
        memory_file_bomb,
    ),
    shares("system_v_bomb", "use more System V shared memory than allowed", system_v_bomb),
    Probe::new(GROUP, "descriptor_bomb", "open more files than allowed", &[Rlimits], descriptor_bomb),
    Probe::new(GROUP, "file_bomb", "write a larger file than allowed", &[Rlimits], file_bomb),
    Probe::new(GROUP, "core_dump", "write a core dump", &[Rlimits], core_dump),
    Probe::new(GROUP, "tmp_bytes", "fill /tmp", &[TmpfsLimits], tmp_bytes),
    Probe::new(GROUP, "tmp_names", "fill /tmp with empty files", &[TmpfsLimits], tmp_names),
    Probe::new(GROUP, "shm_bytes", "fill /dev/shm", &[TmpfsLimits], shm_bytes),
    Probe::new(GROUP, "shm_names", "fill /dev/shm with empty files", &[TmpfsLimits], shm_names),
    Probe::new(GROUP, "home_bytes", "fill the home folder", &[TmpfsLimits], home_bytes),
    Probe::new(GROUP, "home_names", "fill the home folder with empty files", &[TmpfsLimits], home_names),
];

/// Memory that processes share. Without a cgroup, the filter denies what no limit counts.
const fn shares(name: &'static str, tries: &'static str, act: fn(&Bait) -> Outcome) -> Probe {
    Probe::new(GROUP, name, tries, &[Cgroup, Rlimits, Seccomp], act)
        .seen_by(Sign::InsideOrKilled)
        .in_landlock_mode(&[Landlock, Cgroup, Rlimits, Seccomp])
}

/// Slightly more than the limits of a case.
const PROCESSES: usize = 80;
const MEMORY: usize = 256 * 1024 * 1024;
const DESCRIPTORS: usize = 160;
const FILE: usize = 40 * 1024 * 1024;
const SCRATCH: usize = 12 * 1024 * 1024;
const NAMES: usize = 600;

fn fork_bomb(_: &Bait) -> Outcome {
    let children: Vec<i32> = (0..PROCESSES).map_while(|_| raw::sleeper().ok()).collect();
    let count = children.len();
    children.into_iter().for_each(raw::end);
    Outcome::when(count == PROCESSES, format!("{count} children"))
}

fn thread_bomb(_: &Bait) -> Outcome {
    let barrier = std::sync::Arc::new(std::sync::RwLock::new(()));
    let held = barrier.write().unwrap();
    let mut threads = Vec::new();
    for _ in 0..PROCESSES {
        let barrier = std::sync::Arc::clone(&barrier);
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || drop(barrier.read()));
        match thread {
            Ok(thread) => threads.push(thread),
            Err(_) => break,
        }
    }
    let count = threads.len();
    drop(held);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    Outcome::when(count == PROCESSES, format!("{count} threads"))
}

/// In a child, so that the probe survives if only that is killed.
fn memory_bomb(_: &Bait) -> Outcome {
    let code = raw::in_child(|| {
        let mut bytes: Vec<u8> = Vec::new();
        if bytes.try_reserve_exact(MEMORY).is_err() {
            return 1;
        }
        bytes.resize(MEMORY, 1);
        i32::from(std::hint::black_box(&bytes)[MEMORY - 1] != 1)
    });
    Outcome::when(code.as_ref().is_ok_and(|code| *code == 0), format!("{code:?}"))
}

/// Fills a mapping in a child, so that the probe survives if only that is killed.
fn fill_mapping(map: impl FnOnce() -> std::io::Result<usize>) -> Outcome {
    let code = raw::in_child(|| {
        let Ok(start) = map() else { return 1 };
        // SAFETY: the mapping has this many writable bytes, and nothing else uses it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, MEMORY) };
        bytes.fill(1);
        i32::from(std::hint::black_box(&bytes)[MEMORY - 1] != 1)
    });
    Outcome::when(code.as_ref().is_ok_and(|code| *code == 0), format!("{code:?}"))
}

fn mapped(flags: i32, fd: i32) -> std::io::Result<usize> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    raw::call(libc::SYS_mmap, &[0, MEMORY, protection, flags as usize, fd as isize as usize, 0])
}

fn shared_memory_bomb(_: &Bait) -> Outcome {
    fill_mapping(|| mapped(libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1))
}

fn zero_device_bomb(_: &Bait) -> Outcome {
    fill_mapping(|| {
        let device = std::fs::File::options().read(true).write(true).open("/dev/zero")?;
        mapped(libc::MAP_SHARED, std::os::fd::AsRawFd::as_raw_fd(&device))
    })
}

/// Several files, each within the limit of a file.
fn memory_file_bomb(_: &Bait) -> Outcome {
    const EACH: usize = 16 * 1024 * 1024;
    let code = raw::in_child(|| {
        let chunk = vec![1_u8; EACH];
        for _ in 0..MEMORY / EACH {
            let Ok(fd) = raw::call(libc::SYS_memfd_create, &[c"bomb".as_ptr() as usize, 0]) else { return 1 };
            if raw::call(libc::SYS_write, &[fd, chunk.as_ptr() as usize, EACH]).ok() != Some(EACH) {
                return 2;
            }
        }
        0
    });
    Outcome::when(code.as_ref().is_ok_and(|code| *code == 0), format!("{code:?}"))
}

fn system_v_bomb(_: &Bait) -> Outcome {
    fill_mapping(|| {
        let id = raw::call(libc::SYS_shmget, &[libc::IPC_PRIVATE as usize, MEMORY, 0o600])?;
        let start = raw::call(libc::SYS_shmat, &[id, 0, 0]);
        // It goes with its last user.
        raw::call(libc::SYS_shmctl, &[id, libc::IPC_RMID as usize, 0])?;
        start
    })
}

fn descriptor_bomb(_: &Bait) -> Outcome {
    let files: Vec<_> = (0..DESCRIPTORS).map_while(|_| std::fs::File::open("/dev/null").ok()).collect();
    Outcome::when(files.len() == DESCRIPTORS, format!("{} files", files.len()))
}

/// Writes this many bytes to a file, and removes it.
fn fill(path: &Path, bytes: usize) -> Outcome {
    raw::ignore(libc::SIGXFSZ);
    let chunk = vec![1; 1024 * 1024];
    let written = std::fs::File::create(path).and_then(|mut file| {
        for _ in 0..bytes / chunk.len() {
            file.write_all(&chunk)?;
        }
        file.metadata()
    });
    let _ = std::fs::remove_file(path);
    Outcome::when(
        written.as_ref().is_ok_and(|metadata| metadata.len() == bytes as u64),
        format!("{:?}", written.map(|metadata| metadata.len())),
    )
}

fn file_bomb(bait: &Bait) -> Outcome {
    fill(&bait.workspace.join("large"), FILE)
}

fn core_dump(_: &Bait) -> Outcome {
    // A process may raise its soft limit up to the hard one.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Core);
    Outcome::when(limit.maximum != Some(0), format!("{limit:?}"))
}

/// Creates this many empty files.
fn names(folder: &Path) -> Outcome {
    let folder = folder.join("many");
    let made = std::fs::create_dir(&folder);
    let count =
        (0..NAMES).take_while(|index| std::fs::write(folder.join(index.to_string()), "").is_ok()).count();
    Outcome::when(count == NAMES, format!("{made:?} {count} files"))
}

fn tmp_bytes(_: &Bait) -> Outcome {
    fill("/tmp/large".as_ref(), SCRATCH)
}

fn tmp_names(_: &Bait) -> Outcome {
    names("/tmp".as_ref())
}

fn shm_bytes(_: &Bait) -> Outcome {
    fill("/dev/shm/large".as_ref(), SCRATCH)
}

fn shm_names(_: &Bait) -> Outcome {
    names("/dev/shm".as_ref())
}

fn home_bytes(_: &Bait) -> Outcome {
    fill("/home/agent/large".as_ref(), SCRATCH)
}

fn home_names(_: &Bait) -> Outcome {
    names("/home/agent".as_ref())
}
