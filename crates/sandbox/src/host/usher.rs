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

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::users;
use crate::wire::Request;
use crate::{sys, wire};

/// A process that stands ready. It ends when this is dropped, or when the daemon does.
#[derive(Debug)]
pub(super) struct Usher {
    process: std::process::Child,
    socket: OwnedFd,
    /// The user of nobody else that the launcher will become which is made ahead.
    promised: Option<u32>,
}

/// Whom a launcher becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Becomes {
    /// Nobody else: it is an ordinary user.
    Itself,
    /// A user that nothing else has.
    Fresh,
    This(u32, u32),
}

impl Usher {
    #[expect(clippy::disallowed_methods, reason = "this is where sandboxes come from")]
    pub(super) fn start(program: &Path, args: &[OsString]) -> io::Result<Self> {
        // Messages keep their borders, so that one request is one launch, whoever asks at the same time.
        let (socket, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .current_dir("/")
            // What a terminal sends to whoever started this is theirs to pass on.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        sys::pass_control(&mut command, theirs);
        // With the command goes our copy of their end, so that we see when they are gone.
        Ok(Self { process: command.spawn()?, socket, promised: None })
    }

    /// Asks for a launcher with these streams. It speaks over `control`, and says first who it is. Returns whom it becomes, if it
    /// is root.
    pub(super) fn ask(
        &mut self,
        becomes: Becomes,
        control: &OwnedFd,
        streams: &[OwnedFd; 3],
    ) -> io::Result<Option<(u32, u32)>> {
        let promised = self.promised.take();
        let request = match becomes {
            Becomes::Itself => Request { becomes: None, next: None },
            Becomes::This(uid, gid) => Request { becomes: Some((uid, gid)), next: Some((uid, gid)) },
            Becomes::Fresh => {
                let (own, next) = (promised.unwrap_or_else(users::next), users::next());
                self.promised = Some(next);
                Request { becomes: Some((own, own)), next: Some((next, next)) }
            }
        };
        let [stdin, stdout, stderr] = streams.each_ref().map(|stream| stream.as_fd());
        wire::send_with(&self.socket, &request.to_bytes(), &[control.as_fd(), stdin, stdout, stderr])?;
        Ok(request.becomes)
    }
}

impl Drop for Usher {
    fn drop(&mut self) {
        // One that just ended needs no signal; killed, the wait ends.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
