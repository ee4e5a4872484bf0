//! The system calls that nothing in a sandbox makes (seccomp).
//!
//! A list of what is refused, so that ordinary programs need no exceptions. Refused calls fail with EPERM; those with an
//! older sibling that can be judged by its arguments fail with ENOSYS, and programs use the sibling.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};
use tribune_contract::{Failed, Mode, Stage};

use super::failure::failed;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refused whatever the arguments.
const REFUSED: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // Large parts of the kernel that no tool needs.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    // Keys.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    // The machine.
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    // Files by number, around their folders.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // Memory of others, and old ways to change what code means.
    libc::SYS_mbind,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    libc::SYS_personality,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_lookup_dcookie,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
    MAP_SHADOW_STACK,
];

#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[libc::SYS_lookup_dcookie, MAP_SHADOW_STACK];

/// Newer than the list of names; the numbers are the same on all architectures.
const OPEN_TREE_ATTR: libc::c_long = 467;
const MAP_SHADOW_STACK: libc::c_long = 453;
const FCHMODAT2: libc::c_long = 452;

/// Namespaces that `clone` could make. `CLONE_NEWTIME` shares its bit with the exit signal and works with `unshare` alone.
const NEW_NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Bits of a mode that give its file's rights to whoever runs it.
const SET_ID: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];

/// The filters of both modes, or why there are none.
#[derive(Debug)]
pub(super) struct Filters {
    full: Result<BpfProgram, Failed>,
    landlock: Result<BpfProgram, Failed>,
}

impl Filters {
    pub(super) fn build() -> Self {
        let built = |mode| {
            build(mode).map_err(|error| {
                failed(
                    Stage::Seccomp,
                    format!("the filter cannot be built ({error})"),
                    "Report this to Tribune's makers",
                )
            })
        };
        Self { full: built(Mode::Full), landlock: built(Mode::Landlock) }
    }

    pub(super) fn of(&self, mode: Mode) -> Result<&BpfProgram, Failed> {
        let filter = match mode {
            Mode::Full => &self.full,
            Mode::Landlock => &self.landlock,
        };
        filter.as_ref().map_err(Failed::clone)
    }
}

/// Installs it for this process and all that it starts. It cannot be taken off.
pub(super) fn install(filter: &BpfProgram) -> Result<(), Failed> {
    seccompiler::apply_filter(filter).map_err(|error| {
        failed(
            Stage::Seccomp,
            format!("the kernel does not take the filter ({error})"),
            "Use a kernel with CONFIG_SECCOMP_FILTER",
        )
    })
}

/// Calls in one part of the filter. The kernel goes through a filter once for every call there is when it takes it, so it is
/// cut into parts, and each call meets the part for its number alone.
const CALLS_IN_A_PART: usize = 8;

const fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const LOAD_NUMBER: sock_filter = op(0x20, 0);
const NOT_THERE: sock_filter = op(0x06, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned());

/// Skips the next instruction unless the number is this one.
const fn if_number(number: u32) -> sock_filter {
    sock_filter { code: 0x15, jt: 0, jf: 1, k: number }
}

/// Skips the next instruction unless the number is this one or above it.
const fn if_from(number: u32) -> sock_filter {
    sock_filter { code: 0x35, jt: 0, jf: 1, k: number }
}

const fn jump(over: u32) -> sock_filter {
    op(0x05, over)
}

/// What does not exist, then the parts in the order of their numbers. Each part looks at the architecture by itself.
fn build(mode: Mode) -> Built<BpfProgram> {
    /// On x86-64 each call has a second number, with a bit that the lists do not have.
    const X32_BIT: u32 = 0x4000_0000;
    let arch = std::env::consts::ARCH.try_into()?;
    let mut program = vec![LOAD_NUMBER];
    if cfg!(target_arch = "x86_64") {
        program.extend([if_from(X32_BIT), NOT_THERE]);
    }
    for absent in [libc::SYS_clone3, libc::SYS_openat2] {
        program.extend([if_number(number(absent)), NOT_THERE]);
    }
    let refused: Vec<(i64, Vec<SeccompRule>)> = refused(mode)?.into_iter().collect();
    for (index, calls) in refused.chunks(CALLS_IN_A_PART).enumerate().rev() {
        let errno = SeccompAction::Errno(libc::EPERM.cast_unsigned());
        let rules: Rules = calls.iter().cloned().collect();
        let part = BpfProgram::try_from(SeccompFilter::new(rules, SeccompAction::Allow, errno, arch)?)?;
        // From its first number on a part has the last word, and the lowest has it for the rest: none goes by unseen.
        if let Some((first, _)) = calls.first().filter(|_| index > 0) {
            let past = jump(u32::try_from(part.len()).unwrap_or(u32::MAX));
            program.extend([if_from(number(*first)), jump(1), past]);
        }
        program.extend(part);
    }
    Ok(program)
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

type Built<T> = Result<T, seccompiler::BackendError>;

fn refused(mode: Mode) -> Built<Rules> {
    let mut rules: Rules = REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect();
    let flag = |arg, bits: u32| condition(arg, SeccompCmpOp::MaskedEq(bits.into()), bits);
    for namespace in NEW_NAMESPACES {
        let rule = SeccompRule::new(vec![flag(0, namespace.cast_unsigned())?])?;
        rules.entry(libc::SYS_clone).or_default().push(rule);
    }
    set_id(&mut rules)?;
    devices(&mut rules)?;
    sockets(&mut rules, mode)?;
    for control in [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD] {
        let control = u32::try_from(control).unwrap_or_default();
        let rule = SeccompRule::new(vec![condition(1, SeccompCmpOp::Eq, control)?])?;
        rules.entry(libc::SYS_ioctl).or_default().push(rule);
    }
    Ok(rules)
}

/// Nothing gets a set-id bit: not by a change of mode, nor by being made with one.
fn set_id(rules: &mut Rules) -> Built<()> {
    let mut modes =
        vec![(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2), (libc::SYS_mknodat, 2)];
    let mut opens = vec![(libc::SYS_openat, 2, 3)];
    #[cfg(target_arch = "x86_64")]
    {
        modes.extend([(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)]);
        opens.push((libc::SYS_open, 1, 2));
    }
    for bit in SET_ID {
        let has_bit = |arg| condition(arg, SeccompCmpOp::MaskedEq(bit.into()), bit);
        for (call, mode) in &modes {
            rules.entry(*call).or_default().push(SeccompRule::new(vec![has_bit(*mode)?])?);
        }
        for (call, flags, mode) in &opens {
            // Without one of these flags the mode is not read, and may be anything.
            for making in [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY] {
                let making = making.cast_unsigned();
                let makes = condition(*flags, SeccompCmpOp::MaskedEq(making.into()), making)?;
                rules.entry(*call).or_default().push(SeccompRule::new(vec![makes, has_bit(*mode)?])?);
            }
        }
    }
    Ok(())
}

fn devices(rules: &mut Rules) -> Built<()> {
    let mut calls = vec![(libc::SYS_mknodat, 2)];
    #[cfg(target_arch = "x86_64")]
    calls.push((libc::SYS_mknod, 1));
    for (call, mode) in calls {
        for kind in [libc::S_IFCHR, libc::S_IFBLK] {
            let is_kind = condition(mode, SeccompCmpOp::MaskedEq(libc::S_IFMT.into()), kind)?;
            rules.entry(call).or_default().push(SeccompRule::new(vec![is_kind])?);
        }
    }
    Ok(())
}

fn sockets(rules: &mut Rules, mode: Mode) -> Built<()> {
    let number = |number: i32| number.cast_unsigned();
    let family = |op, family| condition(0, op, number(family));
    let kind = |kind| condition(1, SeccompCmpOp::MaskedEq(0xf), number(kind));
    let not = SeccompCmpOp::Ne;
    let is = SeccompCmpOp::Eq;

    let families: &[i32] = match mode {
        Mode::Full => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        // Sockets of the host are in reach by name, and Landlock has no say in datagrams.
        Mode::Landlock => &[libc::AF_INET, libc::AF_INET6],
    };
    let others: Built<Vec<_>> = families.iter().map(|known| family(not.clone(), *known)).collect();
    let mut socket = vec![SeccompRule::new(others?)?];
    socket.push(SeccompRule::new(vec![
        family(is.clone(), libc::AF_NETLINK)?,
        condition(2, not.clone(), number(libc::NETLINK_ROUTE))?,
    ])?);
    let mut kinds = vec![libc::SOCK_RAW, SOCK_PACKET];
    if mode == Mode::Landlock {
        kinds.push(libc::SOCK_DGRAM);
    }
    for raw in kinds {
        let rule = vec![family(not.clone(), libc::AF_NETLINK)?, kind(raw)?];
        socket.push(SeccompRule::new(rule)?);
    }
    for inet in [libc::AF_INET, libc::AF_INET6] {
        let usual = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_MPTCP];
        let mut rule = vec![family(is.clone(), inet)?];
        for protocol in usual {
            rule.push(condition(2, not.clone(), number(protocol))?);
        }
        socket.push(SeccompRule::new(rule)?);
    }
    rules.insert(libc::SYS_socket, socket);
    let pair = SeccompRule::new(vec![family(not, libc::AF_UNIX)?])?;
    rules.insert(libc::SYS_socketpair, vec![pair]);
    Ok(())
}

/// The first kind of packet socket, which `AF_INET` has too.
const SOCK_PACKET: i32 = 10;

/// The kernel reads 32 bits of these arguments, so 32 bits are compared.
fn condition(arg: u8, op: SeccompCmpOp, value: u32) -> Built<SeccompCondition> {
    SeccompCondition::new(arg, SeccompCmpArgLen::Dword, op, value.into())
}
