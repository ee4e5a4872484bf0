//! seccomp: the system calls that are denied in a sandbox.
//!
//! This is a denylist, so that ordinary programs need no exceptions. Denied calls fail with EPERM. Calls whose
//! arguments a filter cannot read, but which have an older variant that it can check, fail with ENOSYS, and programs
//! use the older variant.

mod bpf;

use std::collections::BTreeMap;

use seccompiler::BpfProgram;
use tribune_contract::{LaunchFailure, LaunchStage, SandboxMode};

use self::bpf::{ArgTest, Rule, SyscallAction};
use super::failure::failed;

type Rules = BTreeMap<libc::c_long, Vec<Rule>>;

/// Denied whatever the arguments.
const DENIED: &[libc::c_long] = &[
    // Access to other processes.
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
    // System administration.
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
    // Files by handle, bypassing the permissions of their folders.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // Memory of other processes, and legacy execution domains.
    libc::SYS_mbind,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    libc::SYS_personality,
];

#[cfg(target_arch = "x86_64")]
const DENIED_ON_THIS_ARCH: &[libc::c_long] = &[
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
const DENIED_ON_THIS_ARCH: &[libc::c_long] = &[libc::SYS_lookup_dcookie, MAP_SHADOW_STACK];

/// Newer than libc's constants; these numbers are the same on all architectures.
const OPEN_TREE_ATTR: libc::c_long = 467;
const MAP_SHADOW_STACK: libc::c_long = 453;
const FCHMODAT2: libc::c_long = 452;

/// Namespaces that `clone` can create. `CLONE_NEWTIME` shares its bit with the exit signal and works with `unshare`
/// only.
const NEW_NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// The `which` argument of `setpriority` and `ioprio_set` that selects all processes of a user.
const PRIO_USER: u32 = 2;
const IOPRIO_WHO_USER: u32 = 3;

/// Mode bits that run a file with the rights of its owner or group.
const SET_ID_BITS: u32 = libc::S_ISUID | libc::S_ISGID;

/// The filters of both modes.
#[derive(Debug)]
pub(super) struct Filters {
    full: BpfProgram,
    landlock: BpfProgram,
}

impl Filters {
    pub(super) fn build() -> Self {
        Self { full: build(SandboxMode::Full), landlock: build(SandboxMode::Landlock) }
    }

    pub(super) const fn of(&self, mode: SandboxMode) -> &BpfProgram {
        match mode {
            SandboxMode::Full => &self.full,
            SandboxMode::Landlock => &self.landlock,
        }
    }
}

/// Installs a filter for this process and its descendants. It cannot be removed.
pub(super) fn install(filter: &BpfProgram) -> Result<(), LaunchFailure> {
    seccompiler::apply_filter(filter).map_err(|error| {
        failed(
            LaunchStage::Seccomp,
            format!("the kernel rejected the filter ({error})"),
            "Use a kernel with CONFIG_SECCOMP_FILTER",
        )
    })
}

fn build(mode: SandboxMode) -> BpfProgram {
    let absent = [libc::SYS_clone3, libc::SYS_openat2].map(|call| (syscall_nr(call), SyscallAction::NoSys));
    let mut actions: BTreeMap<u32, SyscallAction> = absent.into();
    for (call, rules) in deny_rules(mode) {
        let action = if rules.is_empty() { SyscallAction::Deny } else { SyscallAction::DenyIf(rules) };
        actions.insert(syscall_nr(call), action);
    }
    let actions: Vec<(u32, SyscallAction)> = actions.into_iter().collect();
    bpf::program(&actions)
}

fn syscall_nr(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

/// The denied calls with their rules: a call is denied if one rule matches, or always if there are none.
fn deny_rules(mode: SandboxMode) -> Rules {
    let mut rules: Rules = DENIED.iter().chain(DENIED_ON_THIS_ARCH).map(|call| (*call, Vec::new())).collect();
    let namespaces = NEW_NAMESPACES.iter().fold(0, |all, one| all | one.cast_unsigned());
    rules.insert(libc::SYS_clone, vec![vec![ArgTest::HasAnyBit(0, namespaces)]]);
    deny_set_id(&mut rules);
    deny_device_nodes(&mut rules);
    rules.insert(libc::SYS_socket, socket_rules(mode));
    rules.insert(libc::SYS_socketpair, vec![vec![ArgTest::Differs(0, libc::AF_UNIX.cast_unsigned())]]);
    let controls = [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD];
    let is = |control| vec![ArgTest::Equals(1, u32::try_from(control).unwrap_or_default())];
    rules.insert(libc::SYS_ioctl, controls.map(is).into());
    deny_reaching_other_processes(&mut rules, mode);
    rules
}

/// Denies calls that affect the scheduling, limits or System V objects of other processes. Signals are denied by
/// Landlock scopes; a limit can do as much damage: no CPU time left, no file to open.
fn deny_reaching_other_processes(rules: &mut Rules, mode: SandboxMode) {
    let not_itself = |arg| vec![vec![ArgTest::Differs(arg, 0)]];
    rules.insert(libc::SYS_prlimit64, not_itself(0));
    match mode {
        // Every process that has an id here is in the same sandbox.
        SandboxMode::Full => {}
        // Thread ids are indistinguishable from process ids: a program that sets the affinity of its threads by id
        // continues without.
        SandboxMode::Landlock => {
            let by_number = [
                libc::SYS_sched_setparam,
                libc::SYS_sched_setscheduler,
                libc::SYS_sched_setattr,
                libc::SYS_sched_setaffinity,
            ];
            rules.extend(by_number.map(|call| (call, not_itself(0))));
            // The daemon may run as the same user.
            for (call, of_a_user) in
                [(libc::SYS_setpriority, PRIO_USER), (libc::SYS_ioprio_set, IOPRIO_WHO_USER)]
            {
                rules.insert(call, vec![vec![ArgTest::Differs(1, 0)], vec![ArgTest::Equals(0, of_a_user)]]);
            }
            let shared = [
                libc::SYS_shmget,
                libc::SYS_shmat,
                libc::SYS_shmctl,
                libc::SYS_msgget,
                libc::SYS_msgsnd,
                libc::SYS_msgrcv,
                libc::SYS_msgctl,
                libc::SYS_semget,
                libc::SYS_semop,
                libc::SYS_semtimedop,
                libc::SYS_semctl,
            ];
            rules.extend(shared.map(|call| (call, Vec::new())));
        }
    }
}

/// Denies setting a set-id bit, by a mode change or at creation.
fn deny_set_id(rules: &mut Rules) {
    let mut modes =
        vec![(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2), (libc::SYS_mknodat, 2)];
    let mut opens = vec![(libc::SYS_openat, 2, 3)];
    #[cfg(target_arch = "x86_64")]
    {
        modes.extend([(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)]);
        opens.push((libc::SYS_open, 1, 2));
    }
    for (call, mode) in modes {
        rules.entry(call).or_default().push(vec![ArgTest::HasAnyBit(mode, SET_ID_BITS)]);
    }
    // Without one of these flags the kernel ignores the mode argument.
    let making = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY).cast_unsigned();
    for (call, flags, mode) in opens {
        rules
            .entry(call)
            .or_default()
            .push(vec![ArgTest::HasAnyBit(flags, making), ArgTest::HasAnyBit(mode, SET_ID_BITS)]);
    }
}

fn deny_device_nodes(rules: &mut Rules) {
    let mut calls = vec![(libc::SYS_mknodat, 2)];
    #[cfg(target_arch = "x86_64")]
    calls.push((libc::SYS_mknod, 1));
    for (call, mode) in calls {
        for kind in [libc::S_IFCHR, libc::S_IFBLK] {
            rules.entry(call).or_default().push(vec![ArgTest::MaskedEquals(mode, libc::S_IFMT, kind)]);
        }
    }
}

fn socket_rules(mode: SandboxMode) -> Vec<Rule> {
    let is = |arg, value: i32| ArgTest::Equals(arg, value.cast_unsigned());
    let not = |arg, value: i32| ArgTest::Differs(arg, value.cast_unsigned());
    let families: &[i32] = match mode {
        SandboxMode::Full => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        // Sockets of the host are reachable by path, and Landlock does not restrict datagrams.
        SandboxMode::Landlock => &[libc::AF_INET, libc::AF_INET6],
    };
    let mut rules = vec![
        families.iter().map(|known| not(0, *known)).collect(),
        vec![is(0, libc::AF_NETLINK), not(2, libc::NETLINK_ROUTE)],
    ];
    let mut kinds = vec![libc::SOCK_RAW, SOCK_PACKET];
    if mode == SandboxMode::Landlock {
        kinds.push(libc::SOCK_DGRAM);
    }
    for kind in kinds {
        rules.push(vec![not(0, libc::AF_NETLINK), ArgTest::MaskedEquals(1, 0xf, kind.cast_unsigned())]);
    }
    for inet in [libc::AF_INET, libc::AF_INET6] {
        let usual = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_MPTCP];
        rules.push([is(0, inet)].into_iter().chain(usual.map(|protocol| not(2, protocol))).collect());
    }
    rules
}

/// The obsolete packet socket type, which `AF_INET` supports too.
const SOCK_PACKET: i32 = 10;

#[cfg(test)]
#[path = "seccomp/tests.rs"]
mod tests;
