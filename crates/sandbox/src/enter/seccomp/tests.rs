use super::*;

/// Interprets the instructions of classic BPF that these filters use.
fn run(program: &BpfProgram, data: &[u32; 16]) -> u32 {
    let (mut at, mut loaded) = (0, 0);
    for _ in 0..program.len() {
        let op = &program[at];
        at += 1;
        let branch = |holds: bool| usize::from(if holds { op.jt } else { op.jf });
        match op.code {
            0x20 => loaded = data[op.k as usize / 4],
            0x54 => loaded &= op.k,
            0x05 => at += op.k as usize,
            0x15 => at += branch(loaded == op.k),
            0x45 => at += branch(loaded & op.k != 0),
            0x35 => at += branch(loaded >= op.k),
            0x06 => return op.k,
            code => panic!("{code:#x}"),
        }
    }
    panic!("the program does not return")
}

fn seccomp_data(architecture: u32, number: u32, args: &[u32]) -> [u32; 16] {
    let mut data = [0; 16];
    (data[0], data[1]) = (number, architecture);
    for (index, arg) in args.iter().enumerate() {
        data[4 + 2 * index] = *arg;
    }
    data
}

/// The architecture of this build's filters.
fn native_arch() -> u32 {
    build(SandboxMode::Full, MemoryBound::Cgroup)[1].k
}

/// The expected result according to the rules, without a compiled program.
fn expected_result(rules: &Rules, call: u32, args: [u32; 4]) -> u32 {
    let holds = |test: &ArgTest| match *test {
        ArgTest::HasAnyBit(arg, bits) => args[arg] & bits != 0,
        ArgTest::Equals(arg, value) => args[arg] == value,
        ArgTest::Differs(arg, value) => args[arg] != value,
        ArgTest::MaskedEquals(arg, mask, value) => args[arg] & mask == value,
        ArgTest::MaskedDiffers(arg, mask, value) => args[arg] & mask != value,
    };
    let is_refused = rules
        .get(&call.into())
        .is_some_and(|rules| rules.is_empty() || rules.iter().any(|rule| rule.iter().all(holds)));
    if is_refused { libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned() } else { libc::SECCOMP_RET_ALLOW }
}

const ALL: [(SandboxMode, MemoryBound); 4] = [
    (SandboxMode::Full, MemoryBound::Cgroup),
    (SandboxMode::Full, MemoryBound::Rlimits),
    (SandboxMode::Landlock, MemoryBound::Cgroup),
    (SandboxMode::Landlock, MemoryBound::Rlimits),
];

const RET_ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

#[test]
fn compiled_filter_agrees_with_the_rules_for_all_calls() {
    // Argument values that rules test, and some that they do not.
    let values: Vec<u32> =
        [0, 1, 2, 3, 10, 16, 17, 0o644, 0o1777, 0o2755, 0o4755, 0o6000, 0o020_666, 0o060_666, 0o100_644]
            .into_iter()
            .chain(
                [
                    libc::O_CREAT,
                    libc::O_TMPFILE,
                    libc::O_CREAT | libc::O_RDWR,
                    libc::SOCK_RAW,
                    libc::AF_VSOCK,
                ]
                .map(i32::cast_unsigned),
            )
            .chain(
                [libc::TIOCSTI, libc::TIOCLINUX, libc::TCGETS].map(|control| u32::try_from(control).unwrap()),
            )
            .chain(NEW_NAMESPACES.map(i32::cast_unsigned))
            .chain([libc::SIGCHLD.cast_unsigned(), u32::MAX])
            .collect();
    let architecture = native_arch();
    for (mode, bound) in ALL {
        let (built, rules) = (build(mode, bound), deny_rules(mode, bound));
        let absent: Vec<u32> = absent_calls(bound).into_iter().map(syscall_nr).collect();
        for call in 0..700 {
            if absent.contains(&call) {
                assert_eq!(run(&built, &seccomp_data(architecture, call, &[])), RET_ENOSYS, "{call}");
                continue;
            }
            let is_judged = rules.get(&call.into()).is_some_and(|rules| !rules.is_empty());
            let tried = if is_judged { values.as_slice() } else { &values[..2] };
            for (first, second) in
                tried.iter().flat_map(|first| tried.iter().map(move |second| (*first, *second)))
            {
                for third in tried.iter().step_by(6) {
                    let args = [first, second, *third, second];
                    let answer = run(&built, &seccomp_data(architecture, call, &args));
                    assert_eq!(answer, expected_result(&rules, call, args), "{call} {args:?}");
                }
            }
        }
    }
}

/// Checks the rules themselves, where a mistake would open something: for each kind of call one denied and one allowed
/// example.
#[test]
fn dangerous_calls_are_denied_and_ordinary_ones_allowed() {
    let built = build(SandboxMode::Full, MemoryBound::Cgroup);
    let architecture = native_arch();
    let answer = |call: libc::c_long, args: [i32; 4]| {
        run(&built, &seccomp_data(architecture, syscall_nr(call), &args.map(i32::cast_unsigned)))
    };
    let (refused, allowed) = (libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, libc::SECCOMP_RET_ALLOW);
    let inet = [libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, 0];
    for (call, args, expected) in [
        (libc::SYS_ptrace, [0; 4], refused),
        (libc::SYS_read, [0; 4], allowed),
        (libc::SYS_clone, [libc::CLONE_NEWUSER | libc::SIGCHLD, 0, 0, 0], refused),
        (libc::SYS_clone, [libc::CLONE_VM | libc::CLONE_THREAD, 0, 0, 0], allowed),
        (libc::SYS_fchmodat, [0, 0, 0o4755, 0], refused),
        (libc::SYS_fchmodat, [0, 0, 0o1755, 0], allowed),
        (libc::SYS_openat, [0, 0, libc::O_CREAT, 0o2644], refused),
        (libc::SYS_openat, [0, 0, libc::O_TMPFILE, 0o4644], refused),
        (libc::SYS_openat, [0, 0, libc::O_CREAT, 0o644], allowed),
        (libc::SYS_openat, [0, 0, libc::O_DIRECTORY, 0o4644], allowed),
        (libc::SYS_mknodat, [0, 0, 0o020_600, 0], refused),
        (libc::SYS_mknodat, [0, 0, 0o010_600, 0], allowed),
        (libc::SYS_ioctl, [0, 0x5412, 0, 0], refused),
        (libc::SYS_ioctl, [0, 0x5401, 0, 0], allowed),
        (libc::SYS_socket, inet, allowed),
        (libc::SYS_socket, [libc::AF_VSOCK, libc::SOCK_STREAM, 0, 0], refused),
        (libc::SYS_socket, [libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0, 0], refused),
        (libc::SYS_socket, [libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_SCTP, 0], refused),
        (libc::SYS_socket, [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE, 0], allowed),
        (libc::SYS_socket, [libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT, 0], refused),
        (libc::SYS_socketpair, [libc::AF_UNIX, libc::SOCK_STREAM, 0, 0], allowed),
        (libc::SYS_socketpair, [libc::AF_INET, libc::SOCK_STREAM, 0, 0], refused),
    ] {
        assert_eq!(answer(call, args), expected, "{call} {args:?}");
    }
}

/// Every family, kind and protocol that a kernel may have, also those that this one lacks.
#[test]
fn only_ordinary_sockets_can_be_made() {
    let built = [SandboxMode::Full, SandboxMode::Landlock].map(|mode| build(mode, MemoryBound::Cgroup));
    let architecture = native_arch();
    let flags = [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0x40];
    let protocols = [0, 1, 2, 4, 6, 15, 17, 33, 58, 115, 132, 136, 255, 256, 262, i32::MAX];
    for family in 0..=64 {
        for kind in 0..=15 {
            for protocol in protocols {
                for flag in flags {
                    let args = [family, kind | flag, protocol].map(i32::cast_unsigned);
                    let data = seccomp_data(architecture, syscall_nr(libc::SYS_socket), &args);
                    let is_allowed = match family {
                        libc::AF_UNIX => kind != libc::SOCK_RAW,
                        libc::AF_NETLINK => protocol == libc::NETLINK_ROUTE,
                        libc::AF_INET | libc::AF_INET6 => {
                            [libc::SOCK_STREAM, libc::SOCK_DGRAM].contains(&kind)
                                && [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_MPTCP]
                                    .contains(&protocol)
                        }
                        _ => false,
                    };
                    let answers = built.each_ref().map(|built| run(built, &data) == libc::SECCOMP_RET_ALLOW);
                    assert_eq!(answers, [is_allowed, false], "{family} {kind} {protocol} {flag:#x}");
                }
            }
        }
    }
}

#[test]
fn shared_anonymous_memory_needs_a_cgroup() {
    let (refused, allowed) = (libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, libc::SECCOMP_RET_ALLOW);
    for (mode, bound) in ALL {
        let built = build(mode, bound);
        let answer = |call, flags: i32| {
            run(&built, &seccomp_data(native_arch(), syscall_nr(call), &[0, 4096, 3, flags.cast_unsigned()]))
        };
        let [shared, absent] = match bound {
            MemoryBound::Cgroup => [allowed, allowed],
            MemoryBound::Rlimits => [refused, RET_ENOSYS],
        };
        assert_eq!(answer(libc::SYS_mmap, libc::MAP_SHARED | libc::MAP_ANONYMOUS), shared);
        assert_eq!(
            answer(libc::SYS_mmap, libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE),
            shared
        );
        assert_eq!(answer(libc::SYS_memfd_create, 0), absent);
        for flags in [libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::MAP_SHARED, libc::MAP_PRIVATE] {
            assert_eq!(answer(libc::SYS_mmap, flags), allowed, "{flags:#x}");
        }
    }
}

#[test]
fn calls_of_other_architectures_kill_the_process() {
    let built = build(SandboxMode::Full, MemoryBound::Cgroup);
    // 32-bit x86, where 165 is another call and `mount` is 21.
    for call in [0, 21, 165, 0x4000_0000, u32::MAX] {
        assert_eq!(
            run(&built, &seccomp_data(0x4000_0003, call, &[])),
            libc::SECCOMP_RET_KILL_PROCESS,
            "{call}"
        );
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn x32_calls_do_not_exist() {
    let built = build(SandboxMode::Full, MemoryBound::Cgroup);
    for call in [0, libc::SYS_mount, libc::SYS_openat].map(syscall_nr) {
        assert_eq!(run(&built, &seccomp_data(native_arch(), 0x4000_0000 | call, &[])), RET_ENOSYS, "{call}");
    }
    assert_eq!(run(&built, &seccomp_data(native_arch(), u32::MAX, &[])), RET_ENOSYS);
}

/// The kernel simulates the program for each call when it installs it, so its size is paid at every start.
#[test]
fn compiled_filter_is_small() {
    let built = build(SandboxMode::Full, MemoryBound::Cgroup);
    assert!(built.len() < 500, "{} instructions", built.len());
}
