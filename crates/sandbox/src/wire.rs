//! Messages between the two halves, and between process 1 and its launcher: a length and JSON. Descriptors go by themselves.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tribune_contract::{MAX_PROFILE_BYTES, Mode};

/// Bytes before a message that say its length.
const LENGTH_BYTES: usize = 4;

/// Bytes of a message: a profile, and room for what goes with it.
const MAX_MESSAGE_BYTES: usize = MAX_PROFILE_BYTES + 64 * 1024;

pub(crate) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut framed = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut framed, message)?;
    send(to, framed)
}

/// Writes a message that [`read_bytes`] read.
pub(crate) fn write_bytes(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let mut framed = vec![0; LENGTH_BYTES];
    framed.extend_from_slice(message);
    send(to, framed)
}

fn send(to: &mut impl Write, mut framed: Vec<u8>) -> io::Result<()> {
    let length = framed.len() - LENGTH_BYTES;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the launch profile is too long"));
    }
    framed[..LENGTH_BYTES].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    to.write_all(&framed)
}

/// The prewarm message, or nothing if the other side is gone.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    read_bytes(from)?.map(|bytes| Ok(serde_json::from_slice(&bytes)?)).transpose()
}

/// The prewarm message as it is.
pub(crate) fn read_bytes(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; LENGTH_BYTES];
    match from.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

/// Descriptors in one message. Most profiles name fewer folders; the kernel takes 253.
pub(crate) const MAX_DESCRIPTORS: usize = 32;

/// What the usher is asked: for a launcher, and whether to make another ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForkRequest {
    pub(crate) launcher: LauncherSpec,
    pub(crate) prewarm: Option<LauncherSpec>,
}

/// What a launcher is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LauncherSpec {
    pub(crate) mode: Mode,
    /// The user and group that it becomes, if it is root.
    pub(crate) becomes: Option<(u32, u32)>,
}

impl LauncherSpec {
    const BYTES: usize = 9;

    /// Nobody becomes root, so zeros stand for nobody.
    fn to_bytes(self) -> [u8; Self::BYTES] {
        let (uid, gid) = self.becomes.unwrap_or_default();
        let mut bytes = [0; Self::BYTES];
        bytes[0] = match self.mode {
            Mode::Full => 1,
            Mode::Landlock => 2,
        };
        bytes[1..5].copy_from_slice(&uid.to_le_bytes());
        bytes[5..].copy_from_slice(&gid.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let [mode, u0, u1, u2, u3, g0, g1, g2, g3] = bytes;
        let mode = match mode {
            1 => Mode::Full,
            2 => Mode::Landlock,
            _ => return None,
        };
        let (uid, gid) = (u32::from_le_bytes([u0, u1, u2, u3]), u32::from_le_bytes([g0, g1, g2, g3]));
        Some(Self { mode, becomes: (uid != 0 && gid != 0).then_some((uid, gid)) })
    }
}

impl ForkRequest {
    pub(crate) const BYTES: usize = 2 * LauncherSpec::BYTES;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..LauncherSpec::BYTES].copy_from_slice(&self.launcher.to_bytes());
        if let Some(prewarm) = self.prewarm {
            bytes[LauncherSpec::BYTES..].copy_from_slice(&prewarm.to_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let (launcher, prewarm) = bytes.split_at(LauncherSpec::BYTES);
        let launcher = LauncherSpec::from_bytes(launcher.try_into().ok()?)?;
        Some(Self { launcher, prewarm: LauncherSpec::from_bytes(prewarm.try_into().ok()?) })
    }
}

/// Sends descriptors, and a few bytes to carry them.
pub(crate) fn send_with(to: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(to, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The prewarm descriptors, and how many of the bytes came. None and nothing if the other side is gone.
pub(crate) fn receive_with(from: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let slices = &mut [IoSliceMut::new(bytes)];
        match rustix::net::recvmsg(&from, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    Ok((received.bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let nobody = LauncherSpec { mode: Mode::Landlock, becomes: None };
        let somebody = LauncherSpec { mode: Mode::Full, becomes: Some((0x7000_1001, u32::MAX)) };
        for (launcher, prewarm) in [(nobody, None), (somebody, Some(nobody)), (nobody, Some(somebody))] {
            let request = ForkRequest { launcher, prewarm };
            assert_eq!(ForkRequest::from_bytes(request.to_bytes()), Some(request));
        }
        assert_eq!(ForkRequest::from_bytes([0; ForkRequest::BYTES]), None);
    }
}
