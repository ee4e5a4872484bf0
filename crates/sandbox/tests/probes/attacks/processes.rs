//! Other processes: the host's, process 1, and own children.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tribune_sandbox::Isolation::{
    Cgroup, Environment, Keyring, Landlock, NonDumpable, PidNamespace, ProcMasks, Seccomp,
};

use crate::probes::bait::{Bait, HUSH, taste};
use crate::probes::probe::{Outcome, Probe, Sign};
use crate::probes::raw;

const GROUP: &str = "Processes and keys";

pub(crate) const PROBES: &[Probe] = &[
    Probe::new(
        GROUP,
        "see_host_process",
        "see a process of the host in /proc",
        &[PidNamespace],
        see_host_process,
    ),
    Probe::new(
        GROUP,
        "kill_host_process",
        "kill a process of the host with the same user",
        &[PidNamespace, Landlock],
        kill_host_process,
    )
    .seen_by(Sign::VictimGone),
    Probe::as_root(GROUP, "trace_host_process", "attach to a process of the host", trace_host_process),
    Probe::new(
        GROUP,
        "outlive",
        "leave a process that outlives the sandbox",
        &[PidNamespace, Cgroup],
        outlive,
    )
    .seen_by(Sign::Survivor),
    Probe::new(
        GROUP,
        "first_environ",
        "read the environment of process 1",
        &[NonDumpable, Landlock],
        first_environ,
    ),
    Probe::new(GROUP, "first_owned", "own the files of process 1 in /proc", &[NonDumpable], first_owned),
    Probe::new(GROUP, "first_memory", "read the memory of process 1", &[NonDumpable, Landlock], first_memory),
    Probe::new(GROUP, "first_maps", "read the map of process 1", &[NonDumpable, Landlock], first_maps),
    Probe::new(
        GROUP,
        "first_descriptors",
        "see the descriptors of process 1",
        &[NonDumpable, Landlock],
        first_descriptors,
    ),
    Probe::new(GROUP, "first_root", "go through the root of process 1", &[NonDumpable, Landlock], first_root),
    Probe::new(
        GROUP,
        "first_descriptor_taken",
        "take a descriptor out of process 1 (pidfd_getfd)",
        &[NonDumpable, Landlock, Seccomp],
        first_descriptor_taken,
    ),
    Probe::new(
        GROUP,
        "first_limited",
        "limit the descriptors of process 1 (prlimit)",
        &[Seccomp],
        first_limited,
    ),
    Probe::new(GROUP, "first_traced", "attach to process 1", &[NonDumpable, Landlock, Seccomp], first_traced),
    Probe::new(GROUP, "first_signalled", "send a signal to process 1", &[Landlock], first_signalled),
    Probe::new(
        GROUP,
        "first_oom_score",
        "raise the OOM score of process 1",
        &[NonDumpable, Landlock],
        first_oom_score,
    ),
    Probe::new(GROUP, "trace_child", "be traced by the parent", &[Seccomp], trace_child),
    Probe::new(GROUP, "read_child", "read the memory of a child (process_vm_readv)", &[Seccomp], read_child),
    Probe::new(
        GROUP,
        "write_child",
        "write the memory of a child (process_vm_writev)",
        &[Seccomp],
        write_child,
    ),
    Probe::new(
        GROUP,
        "take_childs_descriptor",
        "take a descriptor of a child (pidfd_getfd)",
        &[Seccomp],
        take_childs_descriptor,
    ),
    Probe::as_root(GROUP, "advise_child", "advise on the memory of a child (process_madvise)", advise_child),
    Probe::new(
        GROUP,
        "compare_child",
        "compare kernel objects with a child (kcmp)",
        &[Seccomp],
        compare_child,
    ),
    Probe::new(
        GROUP,
        "session_key",
        "read a key of the session that started the daemon",
        &[Keyring, Seccomp],
        session_key,
    ),
    Probe::new(GROUP, "list_keys", "read the names of keys in /proc/keys", &[Keyring, ProcMasks], list_keys),
    Probe::new(GROUP, "key_counts", "read the key counts in /proc/key-users", &[ProcMasks], key_counts),
    Probe::new(GROUP, "add_key", "add a key", &[Seccomp], add_key),
    Probe::new(GROUP, "own_environ", "see a variable of the launcher", &[Environment], own_environ),
];

fn see_host_process(bait: &Bait) -> Outcome {
    let command = taste(format!("/proc/{}/cmdline", bait.victim));
    Outcome::when(command.as_ref().is_ok_and(|text| text.contains("wait")), format!("{command:?}"))
}

fn kill_host_process(bait: &Bait) -> Outcome {
    // In a pid namespace this can be the id of another process, but never of process 1.
    Outcome::of(raw::call(libc::SYS_kill, &[bait.victim as usize, libc::SIGKILL as usize]))
}

fn attach(pid: i32) -> Outcome {
    // PTRACE_SEIZE does not stop the process.
    const PTRACE_SEIZE: usize = 0x4206;
    Outcome::of(raw::call(libc::SYS_ptrace, &[PTRACE_SEIZE, pid as usize, 0, 0]))
}

fn trace_host_process(bait: &Bait) -> Outcome {
    attach(bait.victim)
}

/// Prints the name of the process that it leaves behind, for the case to find.
fn outlive(_: &Bait) -> Outcome {
    let unique = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    let name: String = unique.chars().filter(char::is_ascii_alphanumeric).take(15).collect();
    raw::in_child(|| {
        let _ = rustix::process::setsid();
        let c_name = std::ffi::CString::new(name.clone()).unwrap();
        // Open streams would keep the case waiting.
        for fd in 0..3 {
            let _ = raw::call(libc::SYS_close, &[fd]);
        }
        // Named before it is orphaned, so that it can be found.
        let _ = rustix::thread::set_name(&c_name);
        i32::from(raw::sleeper().is_err())
    })
    .unwrap();
    println!("{}", serde_json::to_string(&name).unwrap());
    std::process::exit(0);
}

fn first_environ(_: &Bait) -> Outcome {
    let text = taste("/proc/1/environ");
    Outcome::when(text.as_ref().is_ok_and(|text| text.contains(HUSH)), format!("{text:?}"))
}

fn first_maps(_: &Bait) -> Outcome {
    let text = taste("/proc/1/maps");
    Outcome::when(text.as_ref().is_ok_and(|text| !text.is_empty()), format!("{text:?}"))
}

fn first_memory(_: &Bait) -> Outcome {
    use std::os::unix::fs::FileExt as _;
    let read = (|| {
        let maps = taste("/proc/1/maps")?;
        let start = maps.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
        let mut bytes = [0; 4];
        let memory = std::fs::File::options().read(true).write(true).open("/proc/1/mem")?;
        memory.read_exact_at(&mut bytes, start.unwrap_or_default())?;
        Ok::<_, std::io::Error>(bytes)
    })();
    Outcome::of(read)
}

fn first_descriptors(_: &Bait) -> Outcome {
    let found = std::fs::read_dir("/proc/1/fd").map(|entries| {
        entries.filter_map(Result::ok).filter(|entry| std::fs::read_link(entry.path()).is_ok()).count()
    });
    Outcome::when(found.as_ref().is_ok_and(|count| *count > 0), format!("{found:?}"))
}

fn first_owned(_: &Bait) -> Outcome {
    let owner = std::fs::metadata("/proc/1/environ").unwrap().uid();
    Outcome::when(owner == rustix::process::getuid().as_raw(), format!("they are user {owner}'s"))
}

fn first_limited(_: &Bait) -> Outcome {
    // Sets the current limit again, so that nothing is lost in the control.
    let mut limit = [0_u64; 2];
    let (no_files, place) = (libc::RLIMIT_NOFILE as usize, limit.as_mut_ptr() as usize);
    raw::call(libc::SYS_prlimit64, &[0, no_files, 0, place]).unwrap();
    Outcome::of(raw::call(libc::SYS_prlimit64, &[1, no_files, place, 0]))
}

fn first_root(_: &Bait) -> Outcome {
    Outcome::of(taste("/proc/1/root/etc/passwd"))
}

fn first_descriptor_taken(_: &Bait) -> Outcome {
    let taken = raw::call(libc::SYS_pidfd_open, &[1, 0])
        .and_then(|pidfd| raw::call(libc::SYS_pidfd_getfd, &[pidfd, 0, 0]));
    Outcome::of(taken)
}

fn first_traced(_: &Bait) -> Outcome {
    attach(1)
}

static CAME: AtomicBool = AtomicBool::new(false);

extern "C" fn came(_: i32) {
    CAME.store(true, Ordering::Relaxed);
}

/// Process 1 forwards signals, so one that it accepted from inside would come back.
fn first_signalled(_: &Bait) -> Outcome {
    // SAFETY: the handler stores a bool.
    unsafe { libc::signal(libc::SIGUSR1, came as *const () as usize) };
    let sent = raw::call(libc::SYS_kill, &[1, libc::SIGUSR1 as usize]);
    let patience = Instant::now() + Duration::from_secs(5);
    while sent.is_ok() && !CAME.load(Ordering::Relaxed) && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    Outcome::when(CAME.load(Ordering::Relaxed), format!("{sent:?}"))
}

fn first_oom_score(_: &Bait) -> Outcome {
    let wrote = std::fs::write("/proc/1/oom_score_adj", "1000");
    let now = taste("/proc/1/oom_score_adj").unwrap_or_default();
    Outcome::when(now.trim() == "1000", format!("{wrote:?} {now}"))
}

fn trace_child(_: &Bait) -> Outcome {
    const PTRACE_TRACEME: usize = 0;
    let code = raw::in_child(|| i32::from(raw::call(libc::SYS_ptrace, &[PTRACE_TRACEME, 0, 0, 0]).is_err()));
    Outcome::when(code.as_ref().is_ok_and(|code| *code == 0), format!("{code:?}"))
}

/// Runs a function on a child that sleeps.
fn to_child(act: impl FnOnce(i32) -> std::io::Result<usize>) -> Outcome {
    let child = raw::sleeper().unwrap();
    let done = act(child);
    raw::end(child);
    Outcome::of(done)
}

static MARK: [u8; 8] = *b"markmark";

fn copy(call: libc::c_long, child: i32, theirs: usize) -> std::io::Result<usize> {
    let ours = [0_u8; 8];
    let (local, remote) = ([raw::address(&ours), 8], [theirs, 8]);
    raw::call(call, &[child as usize, raw::address(&local), 1, raw::address(&remote), 1, 0])
}

fn read_child(_: &Bait) -> Outcome {
    to_child(|child| copy(libc::SYS_process_vm_readv, child, raw::address(&MARK)))
}

fn write_child(_: &Bait) -> Outcome {
    let writable = Box::new([0_u8; 8]);
    to_child(|child| copy(libc::SYS_process_vm_writev, child, raw::address(&*writable)))
}

fn take_childs_descriptor(_: &Bait) -> Outcome {
    to_child(|child| {
        let pidfd = raw::call(libc::SYS_pidfd_open, &[child as usize, 0])?;
        raw::call(libc::SYS_pidfd_getfd, &[pidfd, 1, 0])
    })
}

fn advise_child(_: &Bait) -> Outcome {
    let page = vec![0_u8; 8192];
    let start = raw::address(&page[0]).next_multiple_of(4096);
    to_child(|child| {
        let pidfd = raw::call(libc::SYS_pidfd_open, &[child as usize, 0])?;
        let range = [start, 4096];
        let advice = libc::MADV_COLD as usize;
        raw::call(libc::SYS_process_madvise, &[pidfd, raw::address(&range), 1, advice, 0])
    })
}

fn compare_child(_: &Bait) -> Outcome {
    const KCMP_FILE: usize = 0;
    let own = std::process::id() as usize;
    to_child(|child| raw::call(libc::SYS_kcmp, &[own, child as usize, KCMP_FILE, 1, 1]))
}

fn session_key(_: &Bait) -> Outcome {
    const SEARCH: usize = 10;
    const READ: usize = 11;
    let session = (-3_isize).cast_unsigned();
    let mut value = [0_u8; 32];
    let found = raw::call(
        libc::SYS_keyctl,
        &[SEARCH, session, c"user".as_ptr() as usize, c"tribune-probe".as_ptr() as usize, 0],
    )
    .and_then(|key| raw::call(libc::SYS_keyctl, &[READ, key, (&raw mut value) as usize, value.len()]));
    Outcome::when(found.is_ok() && value.starts_with(HUSH.as_bytes()), format!("{found:?}"))
}

fn list_keys(_: &Bait) -> Outcome {
    let text = std::fs::read_to_string("/proc/keys");
    Outcome::when(text.as_ref().is_ok_and(|text| text.contains("tribune-probe")), format!("{text:?}"))
}

fn key_counts(_: &Bait) -> Outcome {
    let text = taste("/proc/key-users");
    Outcome::when(text.as_ref().is_ok_and(|text| !text.is_empty()), format!("{text:?}"))
}

fn add_key(_: &Bait) -> Outcome {
    let process_keyring = (-2_isize).cast_unsigned();
    let (kind, about, value) = (c"user", c"new", b"value");
    let args = [
        kind.as_ptr() as usize,
        about.as_ptr() as usize,
        value.as_ptr() as usize,
        value.len(),
        process_keyring,
    ];
    Outcome::of(raw::call(libc::SYS_add_key, &args))
}

fn own_environ(_: &Bait) -> Outcome {
    Outcome::of(std::env::var("TRIBUNE_PROBE_LEAK"))
}
