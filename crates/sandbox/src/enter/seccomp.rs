//! seccomp: the system calls that are denied in a sandbox.
//!
//! This is a denylist, so that ordinary programs need no exceptions. Denied calls fail with EPERM. Calls whose
//! arguments a filter cannot read, but which have an older variant that it can check, fail with ENOSYS, and programs
//! use the older variant.

mod bpf;

use std::collections::BTreeMap;

use seccompiler::BpfProgram;
use tribune_contract::{LaunchFailure, LaunchStage, LimitedBy, SandboxMode};

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

/// What bounds the memory of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemoryBound {
    Cgroup,
    /// A limit on the private memory of each process.
    Rlimits,
}

impl From<LimitedBy> for MemoryBound {
    fn from(limited_by: LimitedBy) -> Self {
        match limited_by {
            LimitedBy::CgroupV1 | LimitedBy::CgroupV2 => Self::Cgroup,
            LimitedBy::Rlimits => Self::Rlimits,
        }
    }
}

/// The filters of both modes, each for both memory bounds.
#[derive(Debug)]
pub(super) struct Filters {
    full: [BpfProgram; 2],
    landlock: [BpfProgram; 2],
}

impl Filters {
    pub(super) fn build() -> Self {
        let of = |mode| [MemoryBound::Cgroup, MemoryBound::Rlimits].map(|bound| build(mode, bound));
        Self { full: of(SandboxMode::Full), landlock: of(SandboxMode::Landlock) }
    }

    pub(super) fn of(&self, mode: SandboxMode, limited_by: LimitedBy) -> &BpfProgram {
        let [cgroup, rlimits] = match mode {
            SandboxMode::Full => &self.full,
            SandboxMode::Landlock => &self.landlock,
        };
        match MemoryBound::from(limited_by) {
            MemoryBound::Cgroup => cgroup,
            MemoryBound::Rlimits => rlimits,
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

fn build(mode: SandboxMode, bound: MemoryBound) -> BpfProgram {
    let absent = absent_calls(bound).into_iter().map(|call| (syscall_nr(call), SyscallAction::NoSys));
    let mut actions: BTreeMap<u32, SyscallAction> = absent.collect();
    for (call, rules) in deny_rules(mode, bound) {
        let action = if rules.is_empty() { SyscallAction::Deny } else { SyscallAction::DenyIf(rules) };
        actions.insert(syscall_nr(call), action);
    }
    let actions: Vec<(u32, SyscallAction)> = actions.into_iter().collect();
    bpf::program(&actions)
}

fn syscall_nr(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

/// Calls that seem not to exist, so that programs use another one.
fn absent_calls(bound: MemoryBound) -> Vec<libc::c_long> {
    let mut calls = vec![libc::SYS_clone3, libc::SYS_openat2];
    if bound == MemoryBound::Rlimits {
        // Programs use a file in `/dev/shm` instead, whose size is limited.
        calls.extend([libc::SYS_memfd_create, libc::SYS_memfd_secret]);
    }
    calls
}

/// The denied calls with their rules: a call is denied if one rule matches, or always if there are none.
fn deny_rules(mode: SandboxMode, bound: MemoryBound) -> Rules {
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
    if bound == MemoryBound::Rlimits {
        deny_shared_memory(&mut rules);
    }
    rules
}

/// Denies memory that is not private to a process and belongs to no file: no limit of a process counts it.
fn deny_shared_memory(rules: &mut Rules) {
    let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS).cast_unsigned();
    rules.insert(libc::SYS_mmap, vec![vec![ArgTest::MaskedEquals(3, shared, shared)]]);
    rules.insert(libc::SYS_shmget, Vec::new());
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

/// Denies sockets of other families, kinds and protocols than ordinary programs use. A kind with protocol 0 selects the
/// kernel's default for it, so that `SOCK_SEQPACKET` is SCTP without naming it: kinds of IP sockets are an allowlist.
///
/// In Landlock mode every socket is denied: its network is the host's. Landlock's port rules cover `connect` and `bind` of
/// TCP, but not MPTCP, not the connection that `MSG_FASTOPEN` makes by sending, not `listen` without `bind`, and no
/// address.
fn socket_rules(mode: SandboxMode) -> Vec<Rule> {
    let is = |arg, value: i32| ArgTest::Equals(arg, value.cast_unsigned());
    let not = |arg, value: i32| ArgTest::Differs(arg, value.cast_unsigned());
    let is_not_kind = |kind: i32| ArgTest::MaskedDiffers(1, SOCK_TYPE_MASK, kind.cast_unsigned());
    if mode == SandboxMode::Landlock {
        return Vec::new();
    }
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let mut rules = vec![
        families.map(|known| not(0, known)).into(),
        vec![is(0, libc::AF_NETLINK), not(2, libc::NETLINK_ROUTE)],
        vec![is(0, libc::AF_UNIX), ArgTest::MaskedEquals(1, SOCK_TYPE_MASK, libc::SOCK_RAW.cast_unsigned())],
    ];
    for inet in [libc::AF_INET, libc::AF_INET6] {
        rules.push(vec![is(0, inet), is_not_kind(libc::SOCK_STREAM), is_not_kind(libc::SOCK_DGRAM)]);
        let usual = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_MPTCP];
        rules.push([is(0, inet)].into_iter().chain(usual.map(|protocol| not(2, protocol))).collect());
    }
    rules
}

/// The bits of a socket's type that say its kind; the others are flags.
const SOCK_TYPE_MASK: u32 = 0xf;

#[cfg(test)]
#[path = "seccomp/tests.rs"]
mod tests;
