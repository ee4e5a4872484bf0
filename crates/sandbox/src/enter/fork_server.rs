//! The loop of the fork server, which forks a launcher for each request. `host/fork_server.rs` says why.
//!
//! It reads no launch request and opens nothing; it only passes descriptors on. A launcher works in its own process.
//! One launcher is forked in advance and prewarms what does not depend on a request.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::PidfdFlags;

use super::prewarm::PrewarmedInit;
use crate::sys::{self, CloneResult};
use crate::wire::{self, ForkRequest, LauncherSpec};

/// How long there must be no request before the next launcher is prewarmed, so that it takes no CPU time from a start.
const IDLE_BEFORE_PREWARM: Duration = Duration::from_millis(5);

/// How long the fork server waits for its prewarmed launcher to exit when the host is gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The waiting side of a launcher: where it receives its assignment.
#[derive(Debug)]
pub(super) struct LauncherSlot {
    socket: OwnedFd,
    pub(super) spec: LauncherSpec,
}

/// A launch for a launcher: the socket to the host, and the streams of the program.
#[derive(Debug)]
pub(super) struct LaunchAssignment {
    pub(super) control: UnixStream,
    pub(super) streams: [OwnedFd; 3],
}

/// A forked launcher, as the fork server holds it. It exits by itself when this is dropped.
struct PrewarmedLauncher {
    socket: OwnedFd,
    pidfd: OwnedFd,
    spec: LauncherSpec,
}

impl PrewarmedLauncher {
    fn assign(&self, descriptors: &[OwnedFd; 4]) -> io::Result<()> {
        wire::send_with(&self.socket, &[0], &descriptors.each_ref().map(|descriptor| descriptor.as_fd()))
    }

    /// Waits for its exit, so that the kernel can reap it as a child of this process.
    fn dismiss(self) {
        drop(self.socket);
        is_ready_within(self.pidfd.as_fd(), EXIT_TIMEOUT);
    }
}

/// Which side of a fork this is.
enum ForkResult {
    Parent(PrewarmedLauncher),
    Child(LauncherSlot),
}

/// Serves requests until the host is gone, then returns `None`. In every forked launcher it returns its slot.
pub(super) fn serve() -> io::Result<Option<LauncherSlot>> {
    let host = sys::take_control_socket()?;
    sys::set_child_autoreap(true)?;
    let mut prewarmed: Option<PrewarmedLauncher> = None;
    let mut prewarm = None;
    loop {
        if let Some(spec) = prewarm.take_if(|_| prewarmed.is_none())
            && !is_ready_within(host.as_fd(), IDLE_BEFORE_PREWARM)
        {
            match fork(spec) {
                Ok(ForkResult::Child(slot)) => return become_launcher(host, slot),
                Ok(ForkResult::Parent(launcher)) => prewarmed = Some(launcher),
                // The next request forks again, or reports the failure.
                Err(_) => {}
            }
        }
        let mut request = [0; ForkRequest::BYTES];
        let (length, descriptors) = wire::receive_with(&host, &mut request)?;
        if length == 0 {
            prewarmed.into_iter().for_each(PrewarmedLauncher::dismiss);
            return Ok(None);
        }
        // An invalid message gets no answer, which closes its socket.
        let (Ok(descriptors), Some(request)) =
            (<[OwnedFd; 4]>::try_from(descriptors), ForkRequest::from_bytes(request))
        else {
            continue;
        };
        prewarm = request.prewarm;
        let fitting = prewarmed.take_if(|launcher| launcher.spec == request.launcher);
        // A launcher that no coming request fits is dropped.
        drop(prewarmed.take_if(|launcher| Some(launcher.spec) != request.prewarm));
        if fitting.is_some_and(|launcher| launcher.assign(&descriptors).is_ok()) {
            continue;
        }
        // On failure the socket of the request is closed, which the host notices.
        match fork(request.launcher) {
            Ok(ForkResult::Child(slot)) => {
                drop(descriptors);
                return become_launcher(host, slot);
            }
            Ok(ForkResult::Parent(launcher)) => drop(launcher.assign(&descriptors)),
            Err(_) => {}
        }
    }
}

fn is_ready_within(descriptor: BorrowedFd<'_>, pause: Duration) -> bool {
    let timeout = Timespec::try_from(pause).ok();
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    rustix::event::poll(&mut polled, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

fn fork(spec: LauncherSpec) -> io::Result<ForkResult> {
    let (socket, peer) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok(match sys::clone_process(0)? {
        CloneResult::Child => ForkResult::Child(LauncherSlot { socket: peer, spec }),
        CloneResult::Parent { pidfd, .. } => ForkResult::Parent(PrewarmedLauncher { socket, pidfd, spec }),
    })
}

/// Drops what belongs to the fork server.
fn become_launcher(host: OwnedFd, slot: LauncherSlot) -> io::Result<Option<LauncherSlot>> {
    drop(host);
    sys::set_child_autoreap(false)?;
    Ok(Some(slot))
}

impl LauncherSlot {
    /// Waits for an assignment, which may never come, and then sends this launcher's identity as its first message. The
    /// prewarmed process 1 is discarded as soon as something is mounted or unmounted on the host, because it holds the
    /// old mounts.
    pub(super) fn wait_for_assignment(
        self,
        prewarmed: &mut Option<PrewarmedInit>,
    ) -> io::Result<Option<LaunchAssignment>> {
        while let Some(init) = prewarmed {
            let mut polled = [
                PollFd::new(&self.socket, PollFlags::IN),
                PollFd::from_borrowed_fd(init.mount_watch_fd(), PollFlags::PRI),
            ];
            match rustix::event::poll(&mut polled, None) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            let [socket, mounts] = polled.each_ref().map(|polled| !polled.revents().is_empty());
            if mounts {
                *prewarmed = None;
            }
            if socket {
                break;
            }
        }
        let (_, descriptors) = wire::receive_with(&self.socket, &mut [0])?;
        let Ok([control, streams @ ..]) = <[OwnedFd; 4]>::try_from(descriptors) else { return Ok(None) };
        let own = rustix::process::getpid();
        let pidfd = rustix::process::pidfd_open(own, PidfdFlags::empty())?;
        wire::send_with(&control, &own.as_raw_nonzero().get().to_le_bytes(), &[pidfd.as_fd()])?;
        Ok(Some(LaunchAssignment { control: control.into(), streams }))
    }
}
