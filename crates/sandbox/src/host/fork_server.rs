//! The fork server: the process that launchers are forked from.
//!
//! Loading and initialising this program takes longer than the rest of a launch, so one process does it once and waits.
//! It holds nothing of any caller: no environment, no descriptor but its socket, no launch request. For each launch it
//! forks a launcher, which receives the program's streams and the socket for its request. When it is idle it forks one
//! launcher in advance, which prepares namespaces and mounts (see `enter/prewarm.rs`).

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};

use crate::wire::ForkRequest;
use crate::{sys, wire};

/// How long the fork server may take to exit when it is no longer used.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A running fork server. It exits when this is dropped, or when the daemon does.
#[derive(Debug)]
pub(super) struct ForkServer {
    process: std::process::Child,
    /// Always present until the drop.
    socket: Option<OwnedFd>,
}

impl ForkServer {
    #[expect(
        clippy::disallowed_methods,
        reason = "starts the fork server, from which every sandbox is forked"
    )]
    pub(super) fn start(program: &Path, args: &[OsString]) -> io::Result<Self> {
        // SEQPACKET keeps message boundaries, so one request is one launch, even with concurrent callers.
        let (socket, peer) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .current_dir("/")
            // Signals of the terminal go to the parent, which forwards them where needed.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        sys::pass_control_socket(&mut command, peer);
        // The drop of the command closes our copy of the peer socket, so the end of the server is visible.
        Ok(Self { process: command.spawn()?, socket: Some(socket) })
    }

    /// Requests a launcher with these streams. It uses `control` and sends its identity first.
    pub(super) fn request(
        &self,
        request: ForkRequest,
        control: &OwnedFd,
        streams: &[OwnedFd; 3],
    ) -> io::Result<()> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let [stdin, stdout, stderr] = streams.each_ref().map(|stream| stream.as_fd());
        wire::send_with(socket, &request.to_bytes(), &[control.as_fd(), stdin, stdout, stderr])
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // It exits by itself after its prewarmed launcher, unless it is stopped by a signal.
        drop(self.socket.take());
        let own = Pid::from_child(&self.process);
        if let Ok(pidfd) = rustix::process::pidfd_open(own, PidfdFlags::empty()) {
            let timeout = Timespec::try_from(EXIT_TIMEOUT).ok();
            let _ = rustix::event::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], timeout.as_ref());
        }
        // ESRCH: it has just exited. After the kill the wait returns.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
