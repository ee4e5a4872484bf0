//! Relays: loopback ports that are forwarded to Unix sockets of the host. Only bytes pass, no descriptors.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags};

/// Buffer size per direction.
const BUFFER_BYTES: usize = 64 * 1024;

/// Maximum number of open connections over all ports. More wait in the backlog.
const MAX_CONNECTIONS: usize = 256;

/// A listening port and its target.
#[derive(Debug)]
pub(super) struct Port {
    listener: TcpListener,
    socket: PathBuf,
}

impl Port {
    pub(super) fn listen(port: u16, socket: PathBuf) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, socket })
    }
}

/// All ports and their connections.
#[derive(Debug)]
pub(super) struct Relays {
    ports: Vec<Port>,
    connections: Vec<RelayConnection>,
}

impl Relays {
    pub(super) const fn new(ports: Vec<Port>) -> Self {
        Self { ports, connections: Vec::new() }
    }

    /// Waits until one of `others` is readable or bytes were relayed. Returns which of `others` are ready.
    pub(super) fn wait(&mut self, others: &[BorrowedFd<'_>]) -> io::Result<Vec<bool>> {
        let mut polled: Vec<PollFd<'_>> =
            others.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let accepts = self.connections.len() < MAX_CONNECTIONS;
        let accepting = if accepts { PollFlags::IN } else { PollFlags::empty() };
        polled.extend(self.ports.iter().map(|port| PollFd::new(&port.listener, accepting)));
        for connection in &self.connections {
            polled.extend(connection.polled());
        }
        match rustix::event::poll(&mut polled, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(vec![false; others.len()]),
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(polled);

        let (ready_others, rest) = ready.split_at(others.len());
        let (ready_ports, ready_connections) = rest.split_at(self.ports.len());
        let mut index = 0;
        self.connections.retain_mut(|connection| {
            let is_ready = ready_connections[index] || ready_connections[index + 1];
            index += 2;
            !is_ready || connection.transfer()
        });
        for (port, is_ready) in self.ports.iter().zip(ready_ports) {
            if *is_ready && self.connections.len() < MAX_CONNECTIONS {
                // If the host's socket refuses, only this connection ends.
                self.connections.extend(accept(port).ok());
            }
        }
        Ok(ready_others.to_vec())
    }
}

fn accept(port: &Port) -> io::Result<RelayConnection> {
    let (inner, _) = port.listener.accept()?;
    inner.set_nonblocking(true)?;
    inner.set_nodelay(true)?;
    let outer = UnixStream::connect(&port.socket)?;
    outer.set_nonblocking(true)?;
    Ok(RelayConnection { inner, outer, out: Direction::default(), back: Direction::default() })
}

#[derive(Debug)]
struct RelayConnection {
    inner: TcpStream,
    outer: UnixStream,
    out: Direction,
    back: Direction,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Direction {
    pending: Vec<u8>,
    /// How much of `pending` has been written.
    written: usize,
    /// The reader has reached the end of the stream.
    is_at_eof: bool,
    /// The end was passed on to the writer.
    is_shut_down: bool,
}

impl RelayConnection {
    fn polled(&self) -> [PollFd<'_>; 2] {
        let flags = |reads: &Direction, writes: &Direction| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads.has_room());
            flags.set(PollFlags::OUT, writes.has_pending());
            flags
        };
        let inner = flags(&self.out, &self.back);
        let outer = flags(&self.back, &self.out);
        [
            PollFd::from_borrowed_fd(self.inner.as_fd(), inner),
            PollFd::from_borrowed_fd(self.outer.as_fd(), outer),
        ]
    }

    /// Moves bytes in both directions. Returns whether the connection stays open.
    fn transfer(&mut self) -> bool {
        let carried = (|| -> io::Result<()> {
            self.out.fill(&mut (&self.inner))?;
            self.out.drain(&mut (&self.outer))?;
            if self.out.should_shut_down() {
                self.outer.shutdown(Shutdown::Write)?;
            }
            self.back.fill(&mut (&self.outer))?;
            self.back.drain(&mut (&self.inner))?;
            if self.back.should_shut_down() {
                self.inner.shutdown(Shutdown::Write)?;
            }
            Ok(())
        })();
        carried.is_ok() && !(self.out.is_shut_down && self.back.is_shut_down)
    }
}

impl Direction {
    const fn has_pending(&self) -> bool {
        self.written < self.pending.len()
    }

    const fn has_room(&self) -> bool {
        !self.is_at_eof && self.pending.len() < BUFFER_BYTES
    }

    fn fill(&mut self, from: &mut impl io::Read) -> io::Result<()> {
        if !self.has_room() {
            return Ok(());
        }
        let held = self.pending.len();
        self.pending.resize(BUFFER_BYTES, 0);
        let read = from.read(&mut self.pending[held..]);
        self.pending.truncate(held + read.as_ref().map_or(0, |bytes| *bytes));
        match read {
            Ok(0) => self.is_at_eof = true,
            Ok(_) => {}
            Err(error) if is_retryable(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn drain(&mut self, to: &mut impl io::Write) -> io::Result<()> {
        while self.has_pending() {
            match to.write(&self.pending[self.written..]) {
                Ok(wrote) => self.written += wrote,
                Err(error) if is_retryable(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.pending.clear();
        self.written = 0;
        Ok(())
    }

    /// Returns once whether the end of the stream must be passed on now.
    fn should_shut_down(&mut self) -> bool {
        let ends = self.is_at_eof && !self.has_pending() && !self.is_shut_down;
        self.is_shut_down |= ends;
        ends
    }
}

fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
