//! The few calls that have no safe words: the only place with `unsafe` in the tree.
//!
//! Each function here is safe to call from a process with one thread, which the entering half is; those that the host half
//! uses, with its many threads, say so.
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

/// Where the entering half finds the socket to the host half.
pub(crate) const CONTROL_FD: RawFd = 3;

/// Who goes on after a clone.
#[derive(Debug)]
pub(crate) enum CloneResult {
    Parent { child: Pid, pidfd: OwnedFd },
    Child,
}

/// The kernel's `struct clone_args`, version 0, which is all that is used of it.
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

/// Forks, with new namespaces if `flags` has any. The child has a copy of everything, as after `fork`.
pub(crate) fn clone_process(flags: u64) -> io::Result<CloneResult> {
    let mut pidfd: RawFd = -1;
    let mut args = CloneArgs {
        flags: flags | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    // SAFETY: without CLONE_VM and with no stack of its own the child goes on with a copy of this stack. The process has one
    // thread, so no lock of the allocator is held by anyone else. `args` outlives the call, and `pidfd` is written by it.
    let pid = check_ret(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<CloneArgs>()) })?;
    match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        None => Ok(CloneResult::Child),
        // SAFETY: the kernel opened it for this call, and nobody else knows its number.
        Some(child) => Ok(CloneResult::Parent { child, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
    }
}

/// Bytes of the stack of a process that is about to become another program. Only what is used of it costs anything.
const STACK_BYTES: usize = 1 << 20;

/// Starts a process that runs `exec_program` in this one's memory, and waits until it has become another program or has
/// ended. Nothing is copied for it, which for a process that lives for a moment is most of its cost. Everything else is its
/// own: descriptors, folder, credentials, handlers.
pub(crate) fn clone_vfork<F: FnMut()>(mut exec_program: F) -> io::Result<Pid> {
    extern "C" fn run<F: FnMut()>(closure: *mut libc::c_void) -> libc::c_int {
        // SAFETY: it is the closure of the caller, who waits and so keeps it.
        unsafe { (*closure.cast::<F>())() };
        1
    }
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is new memory that nothing else uses, grows down from its end, and is given back after the child's use
    // of it: with CLONE_VFORK this thread, the only one, goes on when the child uses this memory no longer, the closure included.
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

/// Ends this process at once: what is set up in it is a copy, and nobody needs it taken down.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: it is a system call that does not return. Nothing is buffered in this process.
    unsafe { libc::_exit(code) }
}

/// Leaves the session keyring for a new, nameless one.
pub(crate) fn join_new_session_keyring() -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: the name is a null pointer, which asks for a nameless keyring; nothing is read or written.
    check_ret(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) }).map(drop)
}

/// The version of Landlock that the kernel has; zero if it has none or it is off.
pub(crate) fn landlock_abi() -> u32 {
    const VERSION: libc::c_long = 1;
    // SAFETY: with this flag the kernel takes no attributes, and makes nothing but a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Changes a mount, or it and all below it.
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

/// Keeps these signals from interrupting anything, and makes them readable.
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

/// Lets all signals through again. Which are held back is inherited, also by another program.
pub(crate) fn unblock_signals() -> io::Result<()> {
    // SAFETY: `set` is initialised by sigemptyset before it is read, and outlives the calls.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        check_ret(libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()).into()).map(drop)
    }
}

/// The next signal that came, if any.
pub(crate) fn next_signal(descriptor: BorrowedFd<'_>) -> Option<i32> {
    const SIGNAL_BYTES: usize = size_of::<libc::signalfd_siginfo>();
    let mut info = [0_u8; SIGNAL_BYTES];
    let read = rustix::io::read(descriptor, &mut info).ok()?;
    let number = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
    (read == SIGNAL_BYTES).then(|| number.cast_signed())
}

/// Real, effective and saved.
pub(crate) fn user_ids() -> [u32; 3] {
    let [mut real, mut effective, mut saved] = [0; 3];
    // SAFETY: three numbers that outlive the call, which cannot fail with such.
    unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) };
    [real, effective, saved]
}

/// Real, effective and saved.
pub(crate) fn group_ids() -> [u32; 3] {
    let [mut real, mut effective, mut saved] = [0; 3];
    // SAFETY: three numbers that outlive the call, which cannot fail with such.
    unsafe { libc::getresgid(&raw mut real, &raw mut effective, &raw mut saved) };
    [real, effective, saved]
}

/// Has the kernel bury the children of this process, which nobody waits for; or not, which is how programs start.
pub(crate) fn set_child_autoreap(enabled: bool) -> io::Result<()> {
    let disposition = if enabled { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: no function of ours is installed.
    if unsafe { libc::signal(libc::SIGCHLD, disposition) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes the cgroups that this process is in the root of what it and its children see of them.
pub(crate) fn unshare_cgroup_namespace() -> io::Result<()> {
    // SAFETY: nothing but the view of cgroups changes.
    check_ret(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }.into()).map(drop)
}

/// Closes everything but the standard streams and these.
///
/// In a process that was just cloned, and that does not go back to whoever opened the others: their owners are in frames that it
/// never returns to.
pub(crate) fn close_fds_except(kept: &mut [RawFd]) -> io::Result<()> {
    kept.sort_unstable();
    let mut first = 3;
    for &kept in kept.iter().filter(|kept| **kept >= 3) {
        if kept > first {
            // SAFETY: see above.
            check_ret(unsafe { libc::syscall(libc::SYS_close_range, first, kept - 1, 0) })?;
        }
        first = kept + 1;
    }
    // SAFETY: see above.
    check_ret(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(drop)
}

/// Lets every descriptor from `first` on end with this program.
pub(crate) fn set_cloexec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: no descriptor is closed now.
    let marked = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    check_ret(marked).map(drop)
}

/// Turns the loopback interface of the network namespace on.
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

/// The socket that the host half left for this process. Whoever starts the program by hand has none.
pub(crate) fn take_control_socket() -> io::Result<OwnedFd> {
    // SAFETY: only asks about the number.
    check_ret(unsafe { libc::fcntl(CONTROL_FD, libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
    // SAFETY: it is open, as was just seen, and this is called once, first of all.
    Ok(unsafe { OwnedFd::from_raw_fd(CONTROL_FD) })
}

/// Has a command inherit `control` as its descriptor 3, and nothing else but its standard streams. For many threads.
pub(crate) fn pass_control_socket(command: &mut Command, control: OwnedFd) {
    let pass = move || {
        // SAFETY: both are system calls, which may be made between fork and exec; what they return is checked.
        unsafe {
            if control.as_raw_fd() == CONTROL_FD {
                check_ret(libc::fcntl(CONTROL_FD, libc::F_SETFD, 0).into())?;
            } else {
                check_ret(libc::dup2(control.as_raw_fd(), CONTROL_FD).into())?;
            }
        }
        match set_cloexec_from(CONTROL_FD + 1) {
            // A kernel that does not know the flag has no user namespaces worth having either; the entering half says so.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
            done => done,
        }
    };
    // SAFETY: the closure makes system calls alone; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(pass) };
}
