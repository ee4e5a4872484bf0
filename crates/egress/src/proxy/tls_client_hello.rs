//! Parses the TLS ClientHello for its server name (SNI). Nothing is decrypted: the name is sent in the clear.
//!
//! It does not check what only matters to a server. rustls' `Acceptor` does, and refuses hellos that other servers accept;
//! and it is laxer about the name: an IP address counts as no name, and what follows the first name is ignored.

/// Maximum bytes of a ClientHello with its record headers: several times the largest that clients send.
pub(super) const MAX_HELLO_BYTES: usize = 16 << 10;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Header bytes of a record, and of a handshake message.
const RECORD_HEAD: usize = 5;
const MESSAGE_HEAD: usize = 4;

/// Maximum content bytes of a record.
const MAX_RECORD: usize = 1 << 14;

/// The TLS alert that rejects the server name: fatal, unrecognized_name.
pub(super) const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 1, 0, 2, 2, 112];

/// What the first bytes of a tunnel contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hello {
    /// An incomplete ClientHello: more bytes are needed.
    Unfinished,
    /// A ClientHello, with its server name if it has one.
    Client(Option<String>),
    /// Something else, or an ambiguous ClientHello.
    Other,
}

impl Hello {
    /// Parses the bytes received so far.
    pub(super) fn read(bytes: &[u8]) -> Self {
        match message(bytes) {
            Ok(Some(body)) => server_name(&body).map_or(Self::Other, Self::Client),
            Ok(None) if bytes.len() < MAX_HELLO_BYTES => Self::Unfinished,
            Ok(None) | Err(NotTls) => Self::Other,
        }
    }
}

struct NotTls;

/// Assembles the body of the ClientHello from its records; `None` while some are missing.
fn message(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, NotTls> {
    let mut message = Vec::new();
    loop {
        // Fail on the first wrong byte instead of waiting for a full header.
        for (at, is_right) in
            [(0, (|byte| byte == HANDSHAKE) as fn(u8) -> bool), (1, |byte| byte == 3), (2, |byte| byte <= 4)]
        {
            if bytes.get(at).is_some_and(|byte| !is_right(*byte)) {
                return Err(NotTls);
            }
        }
        let Some((head, rest)) = bytes.split_at_checked(RECORD_HEAD) else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        if length == 0 || length > MAX_RECORD {
            return Err(NotTls);
        }
        let here = rest.len().min(length);
        message.extend_from_slice(&rest[..here]);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(NotTls);
        }
        if let Some([_, high, middle, low]) = message.first_chunk::<MESSAGE_HEAD>() {
            let wanted =
                MESSAGE_HEAD + usize::from(*high) * 65_536 + usize::from(*middle) * 256 + usize::from(*low);
            if wanted > MAX_HELLO_BYTES {
                return Err(NotTls);
            }
            if message.len() >= wanted {
                // Extra bytes behind the ClientHello in its record are rejected.
                let is_alone = message.len() == wanted && here == length;
                message.drain(..MESSAGE_HEAD);
                return if is_alone { Ok(Some(message)) } else { Err(NotTls) };
            }
        }
        if here < length {
            return Ok(None);
        }
        bytes = &rest[length..];
    }
}

/// The server name of a ClientHello, if it has one. `None` if the message is malformed or ambiguous.
fn server_name(body: &[u8]) -> Option<Option<String>> {
    // Skips version and random, then session id, cipher suites and compression methods, each prefixed with its length.
    let mut rest = Reader(body.get(34..)?);
    rest.short()?;
    rest.long()?;
    rest.short()?;
    if rest.0.is_empty() {
        return Some(None);
    }
    let mut extensions = Reader(rest.long()?);
    if !rest.0.is_empty() {
        return None;
    }
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let content = extensions.long()?;
        if kind == SERVER_NAME {
            // With two extensions, or two names in one, servers differ in which they take.
            let mut list = Reader(content);
            let mut names = Reader(list.long()?);
            let is_host = names.byte()? == HOST_NAME;
            let host = names.long()?;
            if !is_host || !names.0.is_empty() || !list.0.is_empty() || name.is_some() {
                return None;
            }
            name = Some(String::from_utf8(host.to_vec()).ok().filter(|host| host.is_ascii())?);
        }
    }
    Some(name)
}

/// Reads fields from the front of a slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Bytes prefixed with a one-byte length.
    fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(length.into())
    }

    /// Bytes prefixed with a two-byte length.
    fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(length.into())
    }
}

#[cfg(test)]
#[path = "tls_client_hello_tests.rs"]
mod tests;
