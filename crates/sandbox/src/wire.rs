//! Framing and descriptor passing for the messages between the halves, and between a launcher and process 1. A message
//! is a length and JSON; descriptors are sent separately (SCM_RIGHTS).

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tribune_contract::{MAX_PROFILE_BYTES, SandboxMode, UserIds};

/// Size of the length prefix in bytes.
const LENGTH_BYTES: usize = 4;

/// Maximum size of a message: a profile, and room for what is around it.
const MAX_MESSAGE_BYTES: usize = MAX_PROFILE_BYTES + 64 * 1024;

pub(crate) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut framed = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut framed, message)?;
    send(to, framed)
}

/// Writes a message that [`read_bytes`] returned, without parsing it.
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

/// Reads the next message. Returns `None` at the end of the stream.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    read_bytes(from)?.map(|bytes| Ok(serde_json::from_slice(&bytes)?)).transpose()
}

/// Reads the next message without parsing it.
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

/// Descriptors per message. Most profiles name fewer folders; the kernel allows 253.
pub(crate) const MAX_DESCRIPTORS: usize = 32;

/// A request to the fork server: which launcher to fork now, and which one to prewarm next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForkRequest {
    pub(crate) launcher: LauncherSpec,
    pub(crate) prewarm: Option<LauncherSpec>,
}

/// The kind of launch that a launcher is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LauncherSpec {
    pub(crate) mode: SandboxMode,
    /// The user that it switches to, if it runs as root.
    pub(crate) switch_to: Option<UserIds>,
}

impl LauncherSpec {
    const BYTES: usize = 9;

    /// A launcher never switches to root, so zeros encode `None`.
    fn to_bytes(self) -> [u8; Self::BYTES] {
        let (uid, gid) = self.switch_to.map_or((0, 0), Into::into);
        let mut bytes = [0; Self::BYTES];
        bytes[0] = match self.mode {
            SandboxMode::Full => 1,
            SandboxMode::Landlock => 2,
        };
        bytes[1..5].copy_from_slice(&uid.to_le_bytes());
        bytes[5..].copy_from_slice(&gid.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let [mode, u0, u1, u2, u3, g0, g1, g2, g3] = bytes;
        let mode = match mode {
            1 => SandboxMode::Full,
            2 => SandboxMode::Landlock,
            _ => return None,
        };
        let (uid, gid) = (u32::from_le_bytes([u0, u1, u2, u3]), u32::from_le_bytes([g0, g1, g2, g3]));
        Some(Self { mode, switch_to: (uid != 0 && gid != 0).then_some(UserIds { uid, gid }) })
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

/// Sends descriptors together with a few bytes that carry them.
pub(crate) fn send_with(to: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(to, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives descriptors. Returns the number of bytes received; zero bytes and no descriptors at the end of the stream.
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
    fn fork_request_survives_a_round_trip() {
        let without_user = LauncherSpec { mode: SandboxMode::Landlock, switch_to: None };
        let with_user = LauncherSpec {
            mode: SandboxMode::Full,
            switch_to: Some(UserIds { uid: 0x7000_1001, gid: u32::MAX }),
        };
        for (launcher, prewarm) in
            [(without_user, None), (with_user, Some(without_user)), (without_user, Some(with_user))]
        {
            let request = ForkRequest { launcher, prewarm };
            assert_eq!(ForkRequest::from_bytes(request.to_bytes()), Some(request));
        }
        assert_eq!(ForkRequest::from_bytes([0; ForkRequest::BYTES]), None);
    }
}
