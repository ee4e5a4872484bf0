//! Refuses a bare line feed in the head of a request. The HTTP parser takes one for the end of a line, other programs do not, and
//! what two programs read differently is a way to smuggle a request past one of them.
//!
//! The guard follows the framing of a connection: heads, and bodies of a known length. It overwrites a bare line feed with a NUL,
//! which the parser answers with 400. What follows a head with `Transfer-Encoding` or `Upgrade` is not looked at: the listener
//! ends such a connection after its response, or it is no longer HTTP.

/// Longest beginning of a line that is kept: enough for a header that says where the body ends.
const KEPT_BYTES: usize = 256;

/// The position in the bytes of a client.
#[derive(Debug, Default)]
pub(super) struct HeadGuard {
    phase: Phase,
    /// The beginning of the present line.
    line: Vec<u8>,
    is_cut: bool,
    last_byte: u8,
    /// Whether the request line was read.
    is_begun: bool,
    body: u64,
    is_last: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Head,
    /// Bytes of the body that are left.
    Body(u64),
    /// The rest is not followed.
    Rest,
}

impl HeadGuard {
    /// Follows bytes as they arrive, and overwrites what must be refused.
    pub(super) fn follow(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() {
            match self.phase {
                Phase::Rest => return,
                Phase::Body(left) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    at += here;
                    let left = left - here as u64;
                    self.phase = if left == 0 { Phase::Head } else { Phase::Body(left) };
                }
                Phase::Head => {
                    let end = bytes[at..].iter().position(|byte| *byte == b'\n').map(|end| at + end);
                    self.keep(&bytes[at..end.unwrap_or(bytes.len())]);
                    let Some(end) = end else { return };
                    if !self.end_line() {
                        bytes[end] = 0;
                        self.phase = Phase::Rest;
                    }
                    at = end + 1;
                }
            }
        }
    }

    fn keep(&mut self, part: &[u8]) {
        self.last_byte = part.last().copied().unwrap_or(self.last_byte);
        let free = KEPT_BYTES.saturating_sub(self.line.len()).min(part.len());
        self.line.extend_from_slice(&part[..free]);
        self.is_cut |= free < part.len();
    }

    /// A line feed arrived. Returns whether the line can be accepted.
    fn end_line(&mut self) -> bool {
        let (line, is_cut) = (std::mem::take(&mut self.line), std::mem::take(&mut self.is_cut));
        if std::mem::take(&mut self.last_byte) != b'\r' {
            return false;
        }
        let line = if is_cut { &line[..] } else { &line[..line.len() - 1] };
        match (line.is_empty(), self.is_begun) {
            // Empty lines before the request line are skipped by the parser.
            (true, false) => true,
            (true, true) => {
                let (body, is_last) = (std::mem::take(&mut self.body), std::mem::take(&mut self.is_last));
                self.is_begun = false;
                self.phase = match (is_last, body) {
                    (true, _) => Phase::Rest,
                    (false, 0) => Phase::Head,
                    (false, body) => Phase::Body(body),
                };
                true
            }
            (false, false) => {
                self.is_begun = true;
                true
            }
            (false, true) => self.header(line, is_cut),
        }
    }

    /// Reads a header that says where the body ends.
    fn header(&mut self, line: &[u8], is_cut: bool) -> bool {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return true };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"transfer-encoding") || name.eq_ignore_ascii_case(b"upgrade") {
            self.is_last = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let digits = std::str::from_utf8(value).ok().filter(|_| !is_cut);
            let Some(length) = digits.and_then(|digits| digits.parse().ok()) else { return false };
            self.body = length;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes as the parser gets them, read in pieces of `piece` bytes.
    fn followed(text: &str, piece: usize) -> String {
        let (mut guard, mut bytes) = (HeadGuard::default(), text.as_bytes().to_vec());
        bytes.chunks_mut(piece).for_each(|part| guard.follow(part));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn bare_line_feed_in_a_head_is_overwritten_however_it_arrives() {
        let next = "GET /next HTTP/1.1\r\nHost: x\r\n\r\n";
        for text in [
            "GET / HTTP/1.1\nHost: x\r\n\r\n".to_owned(),
            "\nGET / HTTP/1.1\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: x\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: x\r\n\n".to_owned(),
            format!("GET / HTTP/1.1\r\nX: {}\n\r\n", "x".repeat(1_000)),
            format!("{next}GET / HTTP/1.1\nHost: x\r\n\r\n"),
            "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\na\nbGET / HTTP/1.1\nHost: x\r\n\r\n".to_owned(),
            "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n".to_owned(),
            format!("POST / HTTP/1.1\r\nContent-Length: {}3\r\n\r\nabc", "0".repeat(1_000)),
        ] {
            for piece in [1, 2, 3, 7, 64, 10_000] {
                assert_eq!(followed(&text, piece).matches('\0').count(), 1, "{text:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn bodies_and_valid_heads_stay_as_they_are() {
        let head = "POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n";
        for text in [
            format!("\r\n\r\n{head}a\nb\n\n{head}\n\n\n\n\nGET / HTTP/1.1\r\n\r\n"),
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\n\n\r\n0\r\n\r\n".to_owned(),
            "GET /rpc HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\u{1}\n\n".to_owned(),
            format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1_000)),
        ] {
            for piece in [1, 2, 3, 7, 64, 10_000] {
                assert_eq!(followed(&text, piece), text, "in pieces of {piece}");
            }
        }
    }
}
