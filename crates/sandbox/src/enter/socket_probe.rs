//! Detects whether a process of the host listens on a Unix socket in a folder that the sandbox sees.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Returns whether a socket has a listener. A stale socket never gets one again, and the program may want to replace
/// it.
///
/// Connects with a datagram socket, which no listener notices: connecting to a datagram socket sends nothing, and the
/// kernel rejects it for all other types.
pub(super) fn has_listener(folder: &OwnedFd, name: &[u8]) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = match rustix::fs::openat(folder, OsStr::from_bytes(name), flags, Mode::empty()) {
        Ok(held) => held,
        Err(Errno::NOENT) => return false,
        Err(_) => return true,
    };
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    !matches!(connected, Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::fs::CWD;

    use super::*;

    #[test]
    fn listener_is_detected_without_noticing() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let stream = UnixListener::bind(path("stream")).unwrap();
        let datagrams = UnixDatagram::bind(path("datagrams")).unwrap();
        drop(UnixListener::bind(path("left")).unwrap());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = rustix::fs::openat(CWD, folder.path(), flags, Mode::empty()).unwrap();
        let found = ["stream", "datagrams", "left", "gone"].map(|name| has_listener(&held, name.as_bytes()));
        assert_eq!(found, [true, true, false, false]);
        stream.set_nonblocking(true).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        assert_eq!(stream.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        assert_eq!(datagrams.recv(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}
