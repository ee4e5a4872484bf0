//! The process that launchers are forked from.
//!
//! Loading and setting up this program takes longer than the rest of a start. So one process stands ready behind that, with
//! nothing of anyone's: no variable, no descriptor but its socket, no order. For each launch it forks a launcher, which gets
//! its streams and the socket for its order. It forks one more when nobody asks, which makes namespaces and mounts ahead.

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

/// How long an fork_server may take to end when nobody needs it any more.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A process that stands ready. It ends when this is dropped, or when the daemon does.
#[derive(Debug)]
pub(super) struct ForkServer {
    process: std::process::Child,
    /// There until this is dropped.
    socket: Option<OwnedFd>,
}

impl ForkServer {
    #[expect(clippy::disallowed_methods, reason = "this is where sandboxes come from")]
    pub(super) fn start(program: &Path, args: &[OsString]) -> io::Result<Self> {
        // Messages keep their borders, so that one request is one launch, whoever asks at the same time.
        let (socket, peer) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .current_dir("/")
            // What a terminal sends to whoever started this is peer to pass on.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        sys::pass_control_socket(&mut command, peer);
        // With the command goes our copy of their end, so that we see when they are gone.
        Ok(Self { process: command.spawn()?, socket: Some(socket) })
    }

    /// Asks for a launcher with these streams. It speaks over `control`, and says first who it is.
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
        // It ends by itself, after what it made ahead, unless somebody has stopped it.
        drop(self.socket.take());
        let own = Pid::from_child(&self.process);
        if let Ok(pidfd) = rustix::process::pidfd_open(own, PidfdFlags::empty()) {
            let timeout = Timespec::try_from(EXIT_TIMEOUT).ok();
            let _ = rustix::event::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], timeout.as_ref());
        }
        // One that just ended needs no signal; killed, the wait ends.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
