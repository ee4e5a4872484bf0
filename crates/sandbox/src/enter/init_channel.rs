//! The channel from a launcher to process 1, which exists before there is a launch request.
//!
//! The sequence: the program's streams and the request, as the host sent it; if the launcher is root, the sources of
//! the mounts; the cgroups. A message is followed by as many descriptors as it announces, in groups that one byte
//! carries.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};
use tribune_contract::{LaunchRequest, LimitedBy};

use super::mount_sources::MountSources;
use crate::wire::{self, MAX_DESCRIPTORS};

/// One end of the channel.
#[derive(Debug)]
pub(super) struct InitChannel(UnixStream);

impl From<UnixStream> for InitChannel {
    fn from(socket: UnixStream) -> Self {
        Self(socket)
    }
}

/// The mechanism of the limits, and how many descriptors of cgroup files follow.
#[derive(Debug, Serialize, Deserialize)]
struct CgroupHeader {
    limited_by: LimitedBy,
    cgroup_fds: usize,
}

/// The launcher's side.
impl InitChannel {
    pub(super) fn send_request(&mut self, streams: &[OwnedFd; 3], request: &[u8]) -> io::Result<()> {
        self.send(streams)?;
        wire::write_bytes(&mut self.0, request)
    }

    pub(super) fn send_sources(&mut self, sources: &MountSources) -> io::Result<()> {
        wire::write(&mut self.0, &sources.layout())?;
        self.send(sources.mounts())
    }

    pub(super) fn send_cgroups(&mut self, limited_by: LimitedBy, cgroup_fds: &[File]) -> io::Result<()> {
        wire::write(&mut self.0, &CgroupHeader { limited_by, cgroup_fds: cgroup_fds.len() })?;
        self.send(cgroup_fds)
    }

    fn send<D: AsFd>(&self, descriptors: impl IntoIterator<Item = D>) -> io::Result<()> {
        let all: Vec<D> = descriptors.into_iter().collect();
        let borrowed: Vec<BorrowedFd<'_>> = all.iter().map(AsFd::as_fd).collect();
        borrowed.chunks(MAX_DESCRIPTORS).try_for_each(|some| wire::send_with(&self.0, &[0], some))
    }
}

/// Process 1's side.
impl InitChannel {
    /// The streams of the program, and the launch request.
    pub(super) fn receive_request(&mut self) -> io::Result<([OwnedFd; 3], LaunchRequest)> {
        let streams = self.receive(3)?.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok((streams, self.read()?))
    }

    pub(super) fn receive_sources(&mut self) -> io::Result<MountSources> {
        let layout: Vec<Vec<bool>> = self.read()?;
        let mounts = self.receive(layout.iter().map(Vec::len).sum())?;
        MountSources::from_layout(layout, mounts).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub(super) fn receive_cgroups(&mut self) -> io::Result<(LimitedBy, Vec<File>)> {
        let CgroupHeader { limited_by, cgroup_fds } = self.read()?;
        Ok((limited_by, self.receive(cgroup_fds)?.into_iter().map(File::from).collect()))
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
