//! Nested namespaces and mounts.

use tribune_sandbox::Isolation::{
    CgroupNamespace, IpcNamespace, Landlock, NestedNamespaces, Seccomp, UtsNamespace,
};

use crate::probes::bait::Bait;
use crate::probes::probe::{Outcome, Probe};
use crate::probes::raw;

const GROUP: &str = "Namespaces and mounts";

pub(crate) const PROBES: &[Probe] = &[
    Probe::new(
        GROUP,
        "unshare_user",
        "create a user namespace (unshare)",
        &[Seccomp, NestedNamespaces],
        unshare_user,
    ),
    Probe::new(
        GROUP,
        "clone_user",
        "create a user namespace (clone)",
        &[Seccomp, NestedNamespaces],
        clone_user,
    ),
    Probe::new(
        GROUP,
        "clone3_user",
        "create a user namespace (clone3)",
        &[Seccomp, NestedNamespaces],
        clone3_user,
    ),
    Probe::new(GROUP, "namespaces_left", "have user namespaces left", &[NestedNamespaces], namespaces_left),
    Probe::new(
        GROUP,
        "nested_network",
        "get a network namespace with capabilities in it",
        &[Seccomp, NestedNamespaces],
        nested_network,
    ),
    Probe::new(
        GROUP,
        "nested_mount",
        "mount in a user namespace of its own",
        &[Seccomp, NestedNamespaces, Landlock],
        nested_mount,
    ),
    Probe::new(
        GROUP,
        "nested_fsopen",
        "prepare a file system in a user namespace of its own",
        &[Seccomp, NestedNamespaces],
        nested_fsopen,
    ),
    Probe::new(
        GROUP,
        "nested_open_tree",
        "clone a mount in a user namespace of its own",
        &[Seccomp, NestedNamespaces, Landlock],
        nested_open_tree,
    ),
    Probe::new(
        GROUP,
        "nested_chroot",
        "change its root in a user namespace of its own",
        &[Seccomp, NestedNamespaces],
        nested_chroot,
    ),
    Probe::new(
        GROUP,
        "nested_hostname",
        "change a host name in a namespace of its own",
        &[Seccomp, NestedNamespaces],
        nested_hostname,
    ),
    Probe::as_root(GROUP, "mount", "mount a file system", mount),
    Probe::as_root(GROUP, "join_first", "join the namespaces of process 1", join_first),
    Probe::new(GROUP, "host_name", "read the host's name", &[UtsNamespace], host_name),
    Probe::new(
        GROUP,
        "shared_memory",
        "attach shared memory of the host",
        &[IpcNamespace, Seccomp],
        shared_memory,
    ),
    Probe::new(
        GROUP,
        "cgroup_path",
        "see where in the host's cgroups it is",
        &[CgroupNamespace],
        cgroup_path,
    ),
];

const USER: usize = libc::CLONE_NEWUSER as usize;

/// Runs a function in new namespaces. Fails with the step that failed.
fn nested(flags: i32, act: impl FnOnce() -> bool) -> Outcome {
    let code = raw::in_child(|| match raw::call(libc::SYS_unshare, &[USER | flags as usize]) {
        Err(_) => 1,
        Ok(_) if !act() => 2,
        Ok(_) => 0,
    });
    Outcome::when(code.as_ref().is_ok_and(|code| *code == 0), format!("{code:?}"))
}

fn unshare_user(_: &Bait) -> Outcome {
    let namespace = || std::fs::read_link("/proc/self/ns/user").ok();
    let before = namespace();
    nested(0, || namespace() != before)
}

fn clone_user(_: &Bait) -> Outcome {
    let flags = USER | libc::SIGCHLD as usize;
    match raw::call(libc::SYS_clone, &[flags, 0, 0, 0, 0]) {
        // SAFETY: ends the child that the call made.
        Ok(0) => unsafe { libc::_exit(0) },
        result => Outcome::of(result),
    }
}

fn clone3_user(_: &Bait) -> Outcome {
    let args = [USER as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    match raw::call(libc::SYS_clone3, &[raw::address(&args), size_of_val(&args)]) {
        // SAFETY: ends the child that the call made.
        Ok(0) => unsafe { libc::_exit(0) },
        result => Outcome::of(result),
    }
}

fn nested_network(_: &Bait) -> Outcome {
    nested(libc::CLONE_NEWNET, || {
        let kind = libc::SOCK_RAW as usize;
        raw::call(libc::SYS_socket, &[libc::AF_INET as usize, kind, libc::IPPROTO_ICMP as usize]).is_ok()
    })
}

fn tmpfs(target: &std::ffi::CStr) -> std::io::Result<usize> {
    let kind = c"tmpfs";
    let args = [kind.as_ptr() as usize, target.as_ptr() as usize, kind.as_ptr() as usize, 0, 0];
    raw::call(libc::SYS_mount, &args)
}

fn nested_mount(_: &Bait) -> Outcome {
    nested(libc::CLONE_NEWNS, || tmpfs(c"/tmp").is_ok())
}

fn nested_fsopen(_: &Bait) -> Outcome {
    nested(libc::CLONE_NEWNS, || raw::call(libc::SYS_fsopen, &[c"tmpfs".as_ptr() as usize, 0]).is_ok())
}

fn nested_open_tree(_: &Bait) -> Outcome {
    const CLONE_RECURSIVE: usize = 1 | 0x8000;
    nested(libc::CLONE_NEWNS, || {
        let args = [libc::AT_FDCWD as usize, c"/workspace".as_ptr() as usize, CLONE_RECURSIVE];
        raw::call(libc::SYS_open_tree, &args).is_ok()
    })
}

fn nested_chroot(_: &Bait) -> Outcome {
    nested(0, || {
        raw::call(libc::SYS_chroot, &[c"/usr".as_ptr() as usize]).is_ok()
            && std::path::Path::new("/bin/env").exists()
    })
}

fn nested_hostname(_: &Bait) -> Outcome {
    nested(libc::CLONE_NEWUTS, || {
        raw::call(libc::SYS_sethostname, &[c"changed".as_ptr() as usize, 7]).is_ok()
            && rustix::system::uname().nodename() == c"changed"
    })
}

/// In the control this runs as root in the case's own mount namespace.
fn mount(bait: &Bait) -> Outcome {
    Outcome::of(tmpfs(&raw::path(bait.workspace.join("sub"))))
}

/// In the control, where process 1 may be out of reach, uses the victim.
fn join_first(bait: &Bait) -> Outcome {
    let join = |pid: i32| {
        let namespace = std::fs::File::open(format!("/proc/{pid}/ns/uts"))?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&namespace) as usize;
        raw::call(libc::SYS_setns, &[fd, libc::CLONE_NEWUTS as usize])
    };
    Outcome::of(join(1).or_else(|_| join(bait.victim)))
}

fn host_name(bait: &Bait) -> Outcome {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Outcome::when(name == bait.hostname, name)
}

fn shared_memory(bait: &Bait) -> Outcome {
    let attached = raw::call(libc::SYS_shmget, &[bait.shm_key as usize, 4096, 0])
        .and_then(|id| raw::call(libc::SYS_shmat, &[id, 0, libc::SHM_RDONLY as usize]));
    Outcome::of(attached)
}

fn cgroup_path(_: &Bait) -> Outcome {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let is_somewhere = text.lines().any(|line| line.rsplit(':').next() != Some("/"));
    Outcome::when(is_somewhere, text)
}

fn namespaces_left(_: &Bait) -> Outcome {
    let left = std::fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap();
    Outcome::when(left.trim() != "0", left.trim())
}
