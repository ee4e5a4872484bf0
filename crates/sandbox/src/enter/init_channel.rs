//! What a launcher tells its process 1, which was there before its order.
//!
//! In this sequence: the program's streams and the order, as the host sent it; if the launcher is root, what it has taken hold of to
//! be mounted; what holds the limits. A message is followed by the descriptors that it counts, some of them with one byte.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};
use tribune_contract::{LimitedBy, LaunchRequest};

use super::mount_sources::Sources;
use crate::wire::{self, MAX_DESCRIPTORS};

/// One end of it.
#[derive(Debug)]
pub(super) struct Seam(UnixStream);

impl From<UnixStream> for Seam {
    fn from(socket: UnixStream) -> Self {
        Self(socket)
    }
}

/// What holds the limits, and how many descriptors follow that take a process in.
#[derive(Debug, Serialize, Deserialize)]
struct Bounds {
    limited_by: LimitedBy,
    doors: usize,
}

/// The launcher's side.
impl Seam {
    pub(super) fn tell_order(&mut self, streams: &[OwnedFd; 3], order: &[u8]) -> io::Result<()> {
        self.send(streams)?;
        wire::write_bytes(&mut self.0, order)
    }

    pub(super) fn tell_sources(&mut self, sources: &Sources) -> io::Result<()> {
        wire::write(&mut self.0, &sources.shape())?;
        self.send(sources.mounts())
    }

    pub(super) fn tell_bounds(&mut self, limited_by: LimitedBy, doors: &[File]) -> io::Result<()> {
        wire::write(&mut self.0, &Bounds { limited_by, doors: doors.len() })?;
        self.send(doors)
    }

    fn send<D: AsFd>(&self, descriptors: impl IntoIterator<Item = D>) -> io::Result<()> {
        let all: Vec<D> = descriptors.into_iter().collect();
        let borrowed: Vec<BorrowedFd<'_>> = all.iter().map(AsFd::as_fd).collect();
        borrowed.chunks(MAX_DESCRIPTORS).try_for_each(|some| wire::send_with(&self.0, &[0], some))
    }
}

/// Process 1's side.
impl Seam {
    /// The streams of its program, and its order.
    pub(super) fn order(&mut self) -> io::Result<([OwnedFd; 3], LaunchRequest)> {
        let streams = self.receive(3)?.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok((streams, self.read()?))
    }

    pub(super) fn sources(&mut self) -> io::Result<Sources> {
        let shape: Vec<Vec<bool>> = self.read()?;
        let mounts = self.receive(shape.iter().map(Vec::len).sum())?;
        Sources::shaped(shape, mounts).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub(super) fn bounds(&mut self) -> io::Result<(LimitedBy, Vec<File>)> {
        let Bounds { limited_by, doors } = self.read()?;
        Ok((limited_by, self.receive(doors)?.into_iter().map(File::from).collect()))
    }

    fn read<T: serde::de::DeserializeOwned>(&mut self) -> io::Result<T> {
        wire::read(&mut self.0)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn receive(&self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            let (length, some) = wire::receive_with(&self.0, &mut [0])?;
            if length == 0 || some.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            all.extend(some);
        }
        Ok(all)
    }
}
