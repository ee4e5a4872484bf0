//! Raw system calls.

use std::ffi::CString;
use std::io;
use std::path::Path;

/// Makes a system call and checks its result.
pub(crate) fn call(number: libc::c_long, args: &[usize]) -> io::Result<usize> {
    let arg = |index: usize| args.get(index).copied().unwrap_or(0);
    // SAFETY: the probes pass numbers, and addresses of values that outlive the call.
    let returned = unsafe { libc::syscall(number, arg(0), arg(1), arg(2), arg(3), arg(4), arg(5)) };
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

pub(crate) fn address<T>(of: &T) -> usize {
    std::ptr::from_ref(of) as usize
}

pub(crate) fn path(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_encoded_bytes()).unwrap()
}

/// Runs a function in a forked child. Returns its exit code, or 256 plus its signal.
pub(crate) fn in_child(act: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: the child of this single-threaded program continues on a copy of everything and never returns from here.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = act();
            // SAFETY: ends the child without the parent's cleanup.
            unsafe { libc::_exit(code) }
        }
        pid => wait(pid),
    }
}

/// Starts a child that sleeps until it is killed.
pub(crate) fn sleeper() -> io::Result<i32> {
    // SAFETY: as in `in_child`; the child makes no call but this one.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => loop {
                libc::pause();
            },
            pid => Ok(pid),
        }
    }
}

/// Kills and reaps a child.
pub(crate) fn end(pid: i32) {
    // SAFETY: only a number is passed.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let _ = wait(pid);
}

fn wait(pid: i32) -> io::Result<i32> {
    let mut status = 0;
    // SAFETY: `status` is written by the call and outlives it.
    if unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 256 + libc::WTERMSIG(status) })
}

/// Opens a descriptor that child programs inherit unless it is closed.
pub(crate) fn leak_descriptor() {
    let leaked =
        rustix::fs::open("/dev/full", rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty()).unwrap();
    std::mem::forget(leaked);
}

/// Ignores a signal.
pub(crate) fn ignore(signal: i32) {
    // SAFETY: SIG_IGN runs no code.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Adds an address to the loopback interface, as `lo:<index>`.
pub(crate) fn loopback_address(index: u8, address: [u8; 4]) -> io::Result<()> {
    // SAFETY: the request is valid when zeroed, and laid out as these ioctls read it.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        let name = if index == 0 { "lo".to_owned() } else { format!("lo:{index}") };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let mut inet: libc::sockaddr_in = std::mem::zeroed();
        inet.sin_family = libc::AF_INET as u16;
        inet.sin_addr.s_addr = u32::from_ne_bytes(address);
        std::ptr::copy_nonoverlapping(
            (&raw const inet).cast::<u8>(),
            (&raw mut request.ifr_ifru).cast::<u8>(),
            size_of::<libc::sockaddr_in>(),
        );
        let mut done = libc::ioctl(socket, libc::SIOCSIFADDR, &raw const request);
        if done == 0 {
            request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
            done = libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request);
        }
        let error = io::Error::last_os_error();
        libc::close(socket);
        if done == 0 { Ok(()) } else { Err(error) }
    }
}

/// Enters a new, empty network namespace and a private mount namespace.
pub(crate) fn leave_network() -> io::Result<()> {
    // SAFETY: only flags are passed.
    if unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    rustix::mount::mount_change(
        "/",
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC,
    )?;
    Ok(())
}

/// Switches to another user for good.
pub(crate) fn become_user(id: u32) -> io::Result<()> {
    // SAFETY: only numbers are passed; the process has one thread.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null())
            | libc::setresgid(id, id, id)
            | libc::setresuid(id, id, id)
            | libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
