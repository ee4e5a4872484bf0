//! Stands ready, and forks a launcher for each request. See `host/usher.rs` for why.
//!
//! It takes no order and opens nothing; all it handles are descriptors that it passes on. What a launcher does, it does in
//! its own process.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::process::PidfdFlags;

use crate::sys::{self, Cloned};
use crate::wire;

/// Serves until the host is gone, which is nothing. In each launcher it returns the socket to the host.
pub(super) fn serve() -> io::Result<Option<UnixStream>> {
    let host = sys::inherited_control()?;
    loop {
        let (length, descriptors) = wire::receive_with(&host, &mut [0])?;
        if length == 0 {
            return Ok(None);
        }
        // Not what the host sends: whoever it is sees that nobody answers.
        let Ok([control, streams @ ..]) = <[OwnedFd; 4]>::try_from(descriptors) else { continue };
        // One that cannot be made closes the socket without a word, which the host sees.
        if let Ok(Cloned::Child) = sys::clone_sibling() {
            drop(host);
            let [stdin, stdout, stderr] = streams;
            rustix::stdio::dup2_stdin(stdin)?;
            rustix::stdio::dup2_stdout(stdout)?;
            rustix::stdio::dup2_stderr(stderr)?;
            present(&control)?;
            return Ok(Some(control.into()));
        }
    }
}

/// Says who this process is, before it says anything else.
fn present(control: &OwnedFd) -> io::Result<()> {
    let own = rustix::process::getpid();
    let pidfd = rustix::process::pidfd_open(own, PidfdFlags::empty())?;
    wire::send_with(control, &own.as_raw_nonzero().get().to_le_bytes(), &[pidfd.as_fd()])
}
