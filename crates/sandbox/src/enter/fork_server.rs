//! Stands ready, and forks a launcher for each request. See `host/usher.rs` for why.
//!
//! It takes no order and opens nothing; all it handles are descriptors that it passes on. What a launcher does, it does in
//! its own process. One launcher is forked before anybody asks, and does prewarmed of its order what needs none.

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

/// How long nobody must have asked before the next launcher is made prewarmed, so that it takes no processor from what is starting.
const IDLE_BEFORE_PREWARM: Duration = Duration::from_millis(5);

/// How long an usher without a host waits for the launcher that nobody will need.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a launcher waits to be needed.
#[derive(Debug)]
pub(super) struct LauncherSlot {
    socket: OwnedFd,
    pub(super) spec: LauncherSpec,
}

/// What a launcher is needed for: the socket to the host, and the streams of what it launches.
#[derive(Debug)]
pub(super) struct LaunchAssignment {
    pub(super) control: UnixStream,
    pub(super) streams: [OwnedFd; 3],
}

/// A launcher that waits, as the usher holds it. It ends by itself when this is dropped.
struct PrewarmedLauncher {
    socket: OwnedFd,
    pidfd: OwnedFd,
    spec: LauncherSpec,
}

impl PrewarmedLauncher {
    fn assign(&self, descriptors: &[OwnedFd; 4]) -> io::Result<()> {
        wire::send_with(&self.socket, &[0], &descriptors.each_ref().map(|descriptor| descriptor.as_fd()))
    }

    /// Sees it end. It is a child of this process, which is the one to bury it.
    fn dismiss(self) {
        drop(self.socket);
        is_ready_within(self.pidfd.as_fd(), EXIT_TIMEOUT);
    }
}

/// Who goes on after a fork.
enum ForkResult {
    Parent(PrewarmedLauncher),
    Child(LauncherSlot),
}

/// Serves until the host is gone, which is nothing. In each launcher it returns where that waits.
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
                // Whoever comes gets one that is made for them, or hears why not.
                Err(_) => {}
            }
        }
        let mut request = [0; ForkRequest::BYTES];
        let (length, descriptors) = wire::receive_with(&host, &mut request)?;
        if length == 0 {
            prewarmed.into_iter().for_each(PrewarmedLauncher::dismiss);
            return Ok(None);
        }
        // Not what the host sends: whoever it is sees that nobody answers.
        let (Ok(descriptors), Some(request)) =
            (<[OwnedFd; 4]>::try_from(descriptors), ForkRequest::from_bytes(request))
        else {
            continue;
        };
        prewarm = request.prewarm;
        let fitting = prewarmed.take_if(|launcher| launcher.spec == request.launcher);
        // One that is for somebody who will not come makes room.
        drop(prewarmed.take_if(|launcher| Some(launcher.spec) != request.prewarm));
        if fitting.is_some_and(|launcher| launcher.assign(&descriptors).is_ok()) {
            continue;
        }
        // One that cannot be made closes the socket without a word, which the host sees.
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

/// What a launcher leaves to its usher.
fn become_launcher(host: OwnedFd, slot: LauncherSlot) -> io::Result<Option<LauncherSlot>> {
    drop(host);
    sys::set_child_autoreap(false)?;
    Ok(Some(slot))
}

impl LauncherSlot {
    /// Waits to be needed, which may be never. Then it says who it is, before it says anything else. What was made prewarmed is thrown
    /// away as soon as something is mounted or unmounted on this machine: it holds what was mounted before.
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
