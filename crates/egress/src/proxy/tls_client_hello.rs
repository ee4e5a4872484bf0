//! The first words of TLS, as far as they say for whom they are. Nothing is decrypted: the name stands in the clear.

/// Bytes of a ClientHello with everything around it: several times the largest that clients send.
pub(super) const MAX_HELLO_BYTES: usize = 16 << 10;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Bytes before the content of a record, and before that of a handshake message.
const RECORD_HEAD: usize = 5;
const MESSAGE_HEAD: usize = 4;

/// The most that a record may hold.
const MAX_RECORD: usize = 1 << 14;

/// What tells a client that its name is not known here: fatal, unrecognized_name.
pub(super) const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 1, 0, 2, 2, 112];

/// What the first bytes of a tunnel are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hello {
    /// More of them are needed.
    Unfinished,
    /// A ClientHello, for this name if it says one.
    Client(Option<String>),
    /// Something else, or a ClientHello that is not plain.
    Other,
}

impl Hello {
    /// Reads what came so far.
    pub(super) fn read(bytes: &[u8]) -> Self {
        match message(bytes) {
            Ok(Some(body)) => server_name(&body).map_or(Self::Other, Self::Client),
            Ok(None) if bytes.len() < MAX_HELLO_BYTES => Self::Unfinished,
            Ok(None) | Err(NotTls) => Self::Other,
        }
    }
}

struct NotTls;

/// The body of the ClientHello, put together from its records; none while some are missing.
fn message(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, NotTls> {
    let mut message = Vec::new();
    loop {
        // As soon as one byte is wrong, waiting for more is of no use.
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
                // What is behind a ClientHello in its own record is not one.
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

/// The name that a ClientHello is for. `None` if it cannot be read to its end.
fn server_name(body: &[u8]) -> Option<Option<String>> {
    // Version and random, then the session, the ciphers and the compressions, each with its length before it.
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
            // Two of them, or two names in one, would be for the server to choose from.
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

/// Takes pieces off the front.
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

    /// Bytes with a length of one byte before them.
    fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.take(length.into())
    }

    /// Bytes with a length of two bytes before them.
    fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(length.into())
    }
}

#[cfg(test)]
#[path = "tls_client_hello_tests.rs"]
mod tests;
