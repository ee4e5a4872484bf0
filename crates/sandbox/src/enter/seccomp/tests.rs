use super::*;

/// What the kernel makes of a filter: the instructions that classic BPF programs of this kind have.
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
    panic!("it does not end")
}

fn called(architecture: u32, number: u32, args: &[u32]) -> [u32; 16] {
    let mut data = [0; 16];
    (data[0], data[1]) = (number, architecture);
    for (index, arg) in args.iter().enumerate() {
        data[4 + 2 * index] = *arg;
    }
    data
}

/// The architecture that filters of this program are for.
fn own() -> u32 {
    build(Mode::Full)[1].k
}

/// What the lists say of a call, without a program in between.
fn listed(rules: &Rules, call: u32, args: [u32; 4]) -> u32 {
    let holds = |test: &ArgTest| match *test {
        ArgTest::HasAnyBit(arg, bits) => args[arg] & bits != 0,
        ArgTest::Equals(arg, value) => args[arg] == value,
        ArgTest::Differs(arg, value) => args[arg] != value,
        ArgTest::MaskedEquals(arg, mask, value) => args[arg] & mask == value,
    };
    let is_refused = rules
        .get(&call.into())
        .is_some_and(|rules| rules.is_empty() || rules.iter().any(|rule| rule.iter().all(holds)));
    if is_refused { libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned() } else { libc::SECCOMP_RET_ALLOW }
}

const RET_ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

#[test]
fn each_call_gets_the_answer_of_the_lists_whatever_its_arguments() {
    // Arguments that rules look at, and some that they do not.
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
    let architecture = own();
    for mode in [Mode::Full, Mode::Landlock] {
        let (built, rules) = (build(mode), deny_rules(mode));
        for call in 0..700 {
            if [libc::SYS_clone3, libc::SYS_openat2].map(syscall_nr).contains(&call) {
                assert_eq!(run(&built, &called(architecture, call, &[])), RET_ENOSYS, "{call}");
                continue;
            }
            let is_judged = rules.get(&call.into()).is_some_and(|rules| !rules.is_empty());
            let tried = if is_judged { values.as_slice() } else { &values[..2] };
            for (first, second) in
                tried.iter().flat_map(|first| tried.iter().map(move |second| (*first, *second)))
            {
                for third in tried.iter().step_by(6) {
                    let args = [first, second, *third, second];
                    let answer = run(&built, &called(architecture, call, &args));
                    assert_eq!(answer, listed(&rules, call, args), "{call} {args:?}");
                }
            }
        }
    }
}

/// The lists themselves, where a slip would open something: one call of each kind with what is refused, and with what is not.
#[test]
fn what_the_lists_are_for_is_refused() {
    let built = build(Mode::Full);
    let architecture = own();
    let answer = |call: libc::c_long, args: [i32; 4]| {
        run(&built, &called(architecture, syscall_nr(call), &args.map(i32::cast_unsigned)))
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

#[test]
fn numbers_of_other_architectures_are_not_judged_by_the_lists_of_this_one() {
    let built = build(Mode::Full);
    // 32-bit x86, where 165 is something else and `mount` is 21.
    for call in [0, 21, 165, 0x4000_0000, u32::MAX] {
        assert_eq!(run(&built, &called(0x4000_0003, call, &[])), libc::SECCOMP_RET_KILL_PROCESS, "{call}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_second_number_of_a_call_is_none() {
    let built = build(Mode::Full);
    for call in [0, libc::SYS_mount, libc::SYS_openat].map(syscall_nr) {
        assert_eq!(run(&built, &called(own(), 0x4000_0000 | call, &[])), RET_ENOSYS, "{call}");
    }
    assert_eq!(run(&built, &called(own(), u32::MAX, &[])), RET_ENOSYS);
}

/// The kernel walks the program for each call when it takes it; this is what a start pays.
#[test]
fn the_way_to_an_answer_is_short() {
    let built = build(Mode::Full);
    assert!(built.len() < 500, "{} instructions", built.len());
}
