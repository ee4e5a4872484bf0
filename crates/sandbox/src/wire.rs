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
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - LENGTH_BYTES;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the launch profile is too long"));
    }
    bytes[..LENGTH_BYTES].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    to.write_all(&bytes)
}

/// The next message, or nothing if the other side is gone.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
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
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Descriptors in one message: a socket and three streams.
const MAX_DESCRIPTORS: usize = 4;

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
