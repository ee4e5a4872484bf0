//! The few system calls without a safe wrapper. Only this module and the allocator have `unsafe`.
//!
//! Every function here is safe to call from a process with one thread, which the entering half is. Functions that the
//! host half uses with its many threads say so.
#![expect(
    unsafe_code,
    reason = "clone, keyctl, mount_setattr, signalfd and ioctl have no safe wrapper in rustix"
)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::Pid;

/// The descriptor on which the entering half finds the socket to the host half.
pub(crate) const CONTROL_FD: RawFd = 3;

/// Which side of the clone this is.
#[derive(Debug)]
pub(crate) enum CloneResult {
    Parent { child: Pid, pidfd: OwnedFd },
    Child,
}

/// The kernel's `struct clone_args`, version 0; later fields are not needed.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// The kernel's `struct mount_attr`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct MountAttributes {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) userns: u64,
}

fn check_ret(returned: libc::c_long) -> io::Result<libc::c_long> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Forks, with new namespaces if `flags` names any. The child has a copy of the parent's memory, as after `fork`.
pub(crate) fn clone_process(flags: u64) -> io::Result<CloneResult> {
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: flags | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    // SAFETY: without CLONE_VM and without a stack of its own the child continues on a copy of this stack. The process
    // has one thread, so no other thread holds a lock of the allocator. `args` outlives the call, which writes `pidfd`.
    let pid = check_ret(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) })?;
    match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        None => Ok(CloneResult::Child),
        // SAFETY: the kernel opened this descriptor for this call, so nothing else owns it.
        Some(child) => Ok(CloneResult::Parent { child, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
    }
}

/// Stack of a process that is about to execute another program. Only used pages are allocated.
const STACK_BYTES: usize = 1 << 20;

/// Starts a process that runs `exec_program` in this process's memory (CLONE_VM and CLONE_VFORK), and waits until it
/// has executed another program or exited. Copying the page tables would be most of the cost of a process that lives
/// this briefly. Descriptors, working folder, credentials and signal handlers are the child's own.
pub(crate) fn clone_vfork<F: FnMut()>(mut exec_program: F) -> io::Result<Pid> {
    extern "C" fn run<F: FnMut()>(closure: *mut libc::c_void) -> libc::c_int {
        // SAFETY: this is the closure of the caller, which waits and so keeps it alive.
        unsafe { (*closure.cast::<F>())() };
        1
    }
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is new memory that nothing else uses, it grows down from its end, and it is unmapped after the
    // child's last use: with CLONE_VFORK this thread, the only one, continues when the child no longer uses this
    // memory, including the closure.
    let pid = unsafe {
        let stack = libc::mmap(std::ptr::null_mut(), STACK_BYTES, access, kind, -1, 0);
        if stack == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let top = stack.byte_add(STACK_BYTES);
        let pid = check_ret(libc::clone(run::<F>, top, flags, (&raw mut exec_program).cast()).into());
        libc::munmap(stack, STACK_BYTES);
        pid?
    };
    i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Exits at once without cleanup: the state of this process is a copy.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: this system call does not return, and this process has no buffered output.
    unsafe { libc::_exit(code) }
}

/// Replaces the session keyring with a new anonymous one.
pub(crate) fn join_new_session_keyring() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: the null name requests an anonymous keyring; nothing is read or written.
    check_ret(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) }).map(drop)
}

/// Returns the kernel's Landlock ABI version; zero if Landlock is missing or disabled.
pub(crate) fn landlock_abi() -> u32 {
    const VERSION: libc::c_long = 1;
    // SAFETY: with this flag the kernel reads no attributes and only returns a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Changes the attributes of a mount, or of it and everything below it.
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    recursive: bool,
    attributes: MountAttributes,
) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, and `attributes` has the kernel's layout and outlives the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    check_ret(done).map(drop)
}

/// Blocks these signals and returns a signalfd that delivers them.
pub(crate) fn create_signalfd(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by sigemptyset before anything reads it, and outlives the calls.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        check_ret(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()).into())?;
        let fd =
            check_ret(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).into())?;
        Ok(OwnedFd::from_raw_fd(i32::try_from(fd).map_err(io::Error::other)?))
    }
}

/// Unblocks all signals. The signal mask is inherited, also through exec.
pub(crate) fn unblock_signals() -> io::Result<()> {
    // SAFETY: `set` is initialised by sigemptyset before it is read, and outlives the calls.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        check_ret(libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()).into()).map(drop)
    }
}

/// Reads the next pending signal, if any.
pub(crate) fn next_signal(descriptor: BorrowedFd<'_>) -> Option<i32> {
    const SIGNAL_BYTES: usize = size_of::<libc::signalfd_siginfo>();
    let mut info = [0_u8; SIGNAL_BYTES];
    let read = rustix::io::read(descriptor, &mut info).ok()?;
    let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
    (read == SIGNAL_BYTES).then(|| number.cast_signed())
}

/// The real, effective and saved user ids.
pub(crate) fn user_ids() -> [u32; 3] {
    let [mut real, mut effective, mut saved] = [0; 3];
    // SAFETY: the three numbers outlive the call, which cannot fail with valid pointers.
    unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) };
    [real, effective, saved]
}

/// The real, effective and saved group ids.
pub(crate) fn group_ids() -> [u32; 3] {
    let [mut real, mut effective, mut saved] = [0; 3];
    // SAFETY: the three numbers outlive the call, which cannot fail with valid pointers.
    unsafe { libc::getresgid(&raw mut real, &raw mut effective, &raw mut saved) };
    [real, effective, saved]
}

/// Lets the kernel reap the children of this process by itself, or restores the default.
pub(crate) fn set_child_autoreap(enabled: bool) -> io::Result<()> {
    let disposition = if enabled { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: no signal handler is installed.
    if unsafe { libc::signal(libc::SIGCHLD, disposition) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes the current cgroups the root of the cgroup view of this process and its children.
pub(crate) fn unshare_cgroup_namespace() -> io::Result<()> {
    // SAFETY: only the view of cgroups changes.
    check_ret(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }.into()).map(drop)
}

/// Closes all descriptors but the standard streams and `kept`.
///
/// Only for a process that was just cloned and does not return to the code that opened the others: their owners are in
/// stack frames that it never returns to.
pub(crate) fn close_fds_except(kept: &mut [RawFd]) -> io::Result<()> {
    kept.sort_unstable();
    let mut first = 3;
    for &kept in kept.iter().filter(|kept| **kept >= 3) {
        if kept > first {
            // SAFETY: the owners of these descriptors are never reached again, see above.
            check_ret(unsafe { libc::syscall(libc::SYS_close_range, first, kept - 1, 0) })?;
        }
        first = kept + 1;
    }
    // SAFETY: the owners of these descriptors are never reached again, see above.
    check_ret(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(drop)
}

/// Sets close-on-exec on every descriptor from `first` on.
pub(crate) fn set_cloexec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: no descriptor is closed by this call.
    let marked = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    check_ret(marked).map(drop)
}

/// Enables the loopback interface of the network namespace.
pub(crate) fn enable_loopback() -> io::Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `request` is valid when zeroed, has the layout that this ioctl reads, and outlives the call.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = libc::c_char::from_ne_bytes([*from]);
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        check_ret(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request).into()).map(drop)
    }
}

/// Takes the socket that the host half left for this process. A process that was started by hand has none.
pub(crate) fn take_control_socket() -> io::Result<OwnedFd> {
    // SAFETY: only tests and changes a flag of the descriptor number.
    check_ret(unsafe { libc::fcntl(CONTROL_FD, libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
    // SAFETY: the descriptor is open, as just checked, and this function is called once, at the start.
    Ok(unsafe { OwnedFd::from_raw_fd(CONTROL_FD) })
}

/// Lets a command inherit `control` as descriptor 3 and nothing else but its standard streams. Safe with many threads.
pub(crate) fn pass_control_socket(command: &mut Command, control: OwnedFd) {
    let pass = move || {
        // SAFETY: both system calls are async-signal-safe, so they are allowed between fork and exec; their results are
        // checked.
        unsafe {
            if control.as_raw_fd() == CONTROL_FD {
                check_ret(libc::fcntl(CONTROL_FD, libc::F_SETFD, 0).into())?;
            } else {
                check_ret(libc::dup2(control.as_raw_fd(), CONTROL_FD).into())?;
            }
        }
        match set_cloexec_from(CONTROL_FD + 1) {
            // A kernel without this flag has no usable user namespaces either; the entering half reports that.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
            done => done,
        }
    };
    // SAFETY: the closure only makes system calls; it does not allocate and takes no lock.
    unsafe { command.pre_exec(pass) };
}
