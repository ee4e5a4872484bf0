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
use tribune_contract::MAX_PROFILE_BYTES;

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

/// The next message, or nothing if the other side is gone.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    read_bytes(from)?.map(|bytes| Ok(serde_json::from_slice(&bytes)?)).transpose()
}

/// The next message as it is.
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

/// What the usher is asked: for a launcher, and what the next one will be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// The user and group that this one becomes, if it is root.
    pub(crate) becomes: Option<(u32, u32)>,
    /// Whom the next one becomes, most likely.
    pub(crate) next: Option<(u32, u32)>,
}

impl Request {
    pub(crate) const BYTES: usize = 16;

    /// Nobody is root, so zeros stand for nobody.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let ((uid, gid), (next_uid, next_gid)) =
            (self.becomes.unwrap_or_default(), self.next.unwrap_or_default());
        let mut bytes = [0; Self::BYTES];
        for (place, number) in bytes.chunks_exact_mut(4).zip([uid, gid, next_uid, next_gid]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let mut numbers = [0; 4];
        for (number, place) in numbers.iter_mut().zip(bytes.chunks_exact(4)) {
            *number = place.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        }
        let [uid, gid, next_uid, next_gid] = numbers;
        let somebody = |uid, gid| (uid != 0 && gid != 0).then_some((uid, gid));
        Self { becomes: somebody(uid, gid), next: somebody(next_uid, next_gid) }
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

/// The next descriptors, and how many of the bytes came. None and nothing if the other side is gone.
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
        let next = Some((0x7000_1001, 4242));
        for request in [Request { becomes: None, next: None }, Request { becomes: Some((1, u32::MAX)), next }]
        {
            assert_eq!(Request::from_bytes(request.to_bytes()), request);
        }
    }
}
