//! Stands ready, and forks a launcher for each request. See `host/usher.rs` for why.
//!
//! It takes no order and opens nothing; all it handles are descriptors that it passes on. What a launcher does, it does in
//! its own process. One launcher is forked before anybody asks, and does ahead of its order what needs none.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::PidfdFlags;

use crate::sys::{self, Cloned};
use crate::wire::{self, Request};

/// How long nobody must have asked before the next launcher is made ahead, so that it takes no processor from what is starting.
const PAUSE: Duration = Duration::from_millis(5);

/// Where a launcher waits to be needed.
#[derive(Debug)]
pub(super) struct Post {
    door: OwnedFd,
    /// Whom it becomes, if it is root.
    pub(super) user: Option<(u32, u32)>,
}

/// What a launcher is needed for: the socket to the host, and the streams of what it launches.
#[derive(Debug)]
pub(super) struct Needed {
    pub(super) control: UnixStream,
    pub(super) streams: [OwnedFd; 3],
}

/// A launcher that waits, as the usher holds it. It ends by itself when this is dropped.
struct Waiting {
    door: OwnedFd,
    user: Option<(u32, u32)>,
}

impl Waiting {
    fn take(&self, descriptors: &[OwnedFd; 4]) -> io::Result<()> {
        wire::send_with(&self.door, &[0], &descriptors.each_ref().map(|descriptor| descriptor.as_fd()))
    }
}

/// Who goes on after a fork.
enum Forked {
    Usher(Waiting),
    Launcher(Post),
}

/// Serves until the host is gone, which is nothing. In each launcher it returns where that waits.
pub(super) fn serve() -> io::Result<Option<Post>> {
    let host = sys::inherited_control()?;
    sys::bury_children(true)?;
    let mut ahead: Option<Waiting> = None;
    let mut next = None;
    loop {
        if let Some(user) = next.take_if(|_| ahead.is_none())
            && !is_asked_within(host.as_fd(), PAUSE)
        {
            match fork(user) {
                Ok(Forked::Launcher(post)) => return launcher(host, post),
                Ok(Forked::Usher(waiting)) => ahead = Some(waiting),
                // Whoever comes gets one that is made for them, or hears why not.
                Err(_) => {}
            }
        }
        let mut request = [0; Request::BYTES];
        let (length, descriptors) = wire::receive_with(&host, &mut request)?;
        if length == 0 {
            return Ok(None);
        }
        // Not what the host sends: whoever it is sees that nobody answers.
        let Ok(descriptors) = <[OwnedFd; 4]>::try_from(descriptors) else { continue };
        let request = Request::from_bytes(request);
        next = Some(request.next);
        let fitting = ahead.take_if(|waiting| waiting.user == request.becomes);
        // One that is for somebody who will not come makes room.
        drop(ahead.take_if(|waiting| waiting.user != request.next));
        if fitting.is_some_and(|waiting| waiting.take(&descriptors).is_ok()) {
            continue;
        }
        // One that cannot be made closes the socket without a word, which the host sees.
        match fork(request.becomes) {
            Ok(Forked::Launcher(post)) => {
                drop(descriptors);
                return launcher(host, post);
            }
            Ok(Forked::Usher(waiting)) => drop(waiting.take(&descriptors)),
            Err(_) => {}
        }
    }
}

fn is_asked_within(host: BorrowedFd<'_>, pause: Duration) -> bool {
    let timeout = Timespec::try_from(pause).ok();
    let mut polled = [PollFd::from_borrowed_fd(host, PollFlags::IN)];
    rustix::event::poll(&mut polled, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

fn fork(user: Option<(u32, u32)>) -> io::Result<Forked> {
    let (door, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok(match sys::clone(0)? {
        Cloned::Child => Forked::Launcher(Post { door: theirs, user }),
        Cloned::Parent { .. } => Forked::Usher(Waiting { door, user }),
    })
}

/// What a launcher leaves to its usher.
fn launcher(host: OwnedFd, post: Post) -> io::Result<Option<Post>> {
    drop(host);
    sys::bury_children(false)?;
    Ok(Some(post))
}

impl Post {
    /// Waits to be needed, which may be never. Then it says who it is, before it says anything else.
    pub(super) fn wait(self) -> io::Result<Option<Needed>> {
        let (_, descriptors) = wire::receive_with(&self.door, &mut [0])?;
        let Ok([control, streams @ ..]) = <[OwnedFd; 4]>::try_from(descriptors) else { return Ok(None) };
        let own = rustix::process::getpid();
        let pidfd = rustix::process::pidfd_open(own, PidfdFlags::empty())?;
        wire::send_with(&control, &own.as_raw_nonzero().get().to_le_bytes(), &[pidfd.as_fd()])?;
        Ok(Some(Needed { control: control.into(), streams }))
    }
}
