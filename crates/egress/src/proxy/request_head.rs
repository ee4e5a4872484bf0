//! The head of a request, parsed strictly and within bounds. Everything that two parsers could read differently is rejected
//! (request smuggling): folded lines, bare line feeds, two lengths, a length together with a transfer encoding, a space after a
//! header name.

use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use super::denial::Refusal;

/// Maximum bytes of a head.
pub(super) const MAX_HEAD_BYTES: usize = 16 << 10;

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 100;

/// Maximum bytes of a method.
const MAX_METHOD_BYTES: usize = 24;

/// An unambiguous request head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestHead {
    pub(super) method: String,
    pub(super) target: String,
    /// The only `Host` header, if there is one.
    pub(super) host: Option<String>,
    /// Whether the head announces a body.
    pub(super) has_body: bool,
    /// The raw head, up to and including the empty line.
    pub(super) bytes: Vec<u8>,
    /// Bytes that arrived together with the head but are not part of it.
    pub(super) behind: Vec<u8>,
}

impl RequestHead {
    /// Reads a head. `None` if the client disconnected without sending anything.
    pub(super) async fn read(stream: &mut UnixStream, limit: Duration) -> Result<Option<Self>, Refusal> {
        let reading = tokio::time::timeout(limit, Self::read_raw(stream)).await;
        match reading.map_err(|_| Refusal::SLOW_HEAD)?? {
            Some((bytes, behind)) => Self::parse(bytes, behind).map(Some),
            None => Ok(None),
        }
    }

    /// Reads the bytes up to the empty line; also returns the bytes behind it.
    async fn read_raw(stream: &mut UnixStream) -> Result<Option<(Vec<u8>, Vec<u8>)>, Refusal> {
        let mut bytes = Vec::new();
        let mut scanned = 0;
        loop {
            let mut piece = [0; 4096];
            let read = stream.read(&mut piece).await.unwrap_or_default();
            if read == 0 {
                return if bytes.is_empty() { Ok(None) } else { Err(Refusal::BROKEN_HEAD) };
            }
            bytes.extend_from_slice(&piece[..read]);
            while let Some(at) = memchr::memchr(b'\n', &bytes[scanned..]).map(|at| scanned + at) {
                scanned = at + 1;
                if at > MAX_HEAD_BYTES {
                    break;
                }
                if at == 0 || bytes[at - 1] != b'\r' {
                    return Err(Refusal::BROKEN_HEAD);
                }
                if bytes[..at].ends_with(b"\r\n\r") {
                    let behind = bytes.split_off(at + 1);
                    return Ok(Some((bytes, behind)));
                }
            }
            if bytes.len() > MAX_HEAD_BYTES {
                return Err(Refusal::LARGE_HEAD);
            }
        }
    }

    fn parse(bytes: Vec<u8>, behind: Vec<u8>) -> Result<Self, Refusal> {
        let text = std::str::from_utf8(&bytes).map_err(|_| Refusal::BROKEN_HEAD)?;
        let mut lines = text.strip_suffix("\r\n\r\n").ok_or(Refusal::BROKEN_HEAD)?.split("\r\n");
        let (method, target, version) = request_line(lines.next().unwrap_or_default())?;
        let mut found = FramingHeaders::default();
        for (number, line) in lines.enumerate() {
            if number == MAX_HEADERS {
                return Err(Refusal::LARGE_HEAD);
            }
            found.take(line)?;
        }
        if found.length.is_some() && found.is_chunked {
            return Err(Refusal::TWO_LENGTHS);
        }
        let is_old = version == "HTTP/1.0";
        if is_old && found.is_chunked || !is_old && found.host.is_none() {
            return Err(Refusal::BROKEN_HEAD);
        }
        let has_body = found.is_chunked || found.length.is_some();
        let (method, target, host) = (method.to_owned(), target.to_owned(), found.host);
        Ok(Self { method, target, host, has_body, bytes, behind })
    }
}

fn request_line(line: &str) -> Result<(&str, &str, &str), Refusal> {
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refusal::BROKEN_HEAD);
    };
    let is_method = (1..=MAX_METHOD_BYTES).contains(&method.len())
        && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    let is_target = !target.is_empty() && !target.chars().any(|c| c.is_control() || c.is_whitespace());
    if is_method && is_target && matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        Ok((method, target, version))
    } else {
        Err(Refusal::BROKEN_HEAD)
    }
}

/// The headers that decide the length and the host of a request.
#[derive(Debug, Default)]
struct FramingHeaders {
    host: Option<String>,
    length: Option<u64>,
    is_chunked: bool,
}

impl FramingHeaders {
    fn take(&mut self, line: &str) -> Result<(), Refusal> {
        let (name, value) = line.split_once(':').ok_or(Refusal::BROKEN_HEAD)?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_value = |c: char| c == '\t' || !c.is_control();
        // A folded line starts with a space, which is not allowed in a name.
        if name.is_empty() || !name.bytes().all(is_token) || !value.chars().all(is_value) {
            return Err(Refusal::BROKEN_HEAD);
        }
        let value = value.trim_matches([' ', '\t']);
        if name.eq_ignore_ascii_case("host") {
            return once(&mut self.host, value.to_owned());
        }
        if name.eq_ignore_ascii_case("content-length") {
            let is_number =
                (1..=18).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit());
            let length = value.parse().ok().filter(|_| is_number).ok_or(Refusal::TWO_LENGTHS)?;
            return once(&mut self.length, length).map_err(|_| Refusal::TWO_LENGTHS);
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            if self.is_chunked || !value.eq_ignore_ascii_case("chunked") {
                return Err(Refusal::TWO_LENGTHS);
            }
            self.is_chunked = true;
        }
        Ok(())
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Refusal> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::BROKEN_HEAD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RequestHead, &'static str> {
        RequestHead::parse(text.as_bytes().to_vec(), Vec::new()).map_err(|refusal| refusal.code)
    }

    #[test]
    fn a_plain_head_is_parsed() {
        let head = parse("GET http://a.example/x HTTP/1.1\r\nHost: a.example \r\nContent-Length: 3\r\n\r\n")
            .unwrap();
        assert_eq!((head.method.as_str(), head.target.as_str()), ("GET", "http://a.example/x"));
        assert_eq!((head.host.as_deref(), head.has_body), (Some("a.example"), true));
        assert!(!parse("CONNECT a.example:443 HTTP/1.0\r\n\r\n").unwrap().has_body);
        assert!(
            parse("POST http://a/ HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\n\r\n")
                .unwrap()
                .has_body
        );
    }

    #[test]
    fn ambiguous_heads_are_rejected() {
        let lengths = [
            "content-length: 1\r\ncontent-length: 1",
            "content-length: 1\r\nContent-Length: 2",
            "content-length: 1, 1",
            "content-length: +1",
            "content-length: -1",
            "content-length: 0x1",
            "content-length:",
            "content-length: 99999999999999999999",
            "content-length: 1\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 1",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked, identity",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: xchunked",
            "transfer-encoding: \u{b}chunked",
        ];
        for headers in lengths {
            let refused = parse(&format!("POST http://a/ HTTP/1.1\r\nhost: a\r\n{headers}\r\n\r\n"));
            assert!(matches!(refused, Err("two_lengths" | "bad_request")), "{headers}: {refused:?}");
        }
        for headers in [
            "host: b",
            " folded: x",
            "\tfolded: x",
            "x: a\r\n b",
            "x : a",
            "content-length : 1",
            "x\ty: a",
            ": a",
            "x",
            "x: a\u{0}b",
            "x: a\rb",
            "x: a\nb",
            "x(y): a",
            "é: a",
        ] {
            let text = format!("POST http://a/ HTTP/1.1\r\nhost: a\r\n{headers}\r\n\r\n");
            assert_eq!(parse(&text), Err("bad_request"), "{headers:?}");
        }
        for line in [
            "GET  http://a/ HTTP/1.1",
            "GET http://a/  HTTP/1.1",
            " GET http://a/ HTTP/1.1",
            "get http://a/ HTTP/1.1",
            "GET http://a/ HTTP/1.1 ",
            "GET http://a/ HTTP/2.0",
            "GET http://a/ http/1.1",
            "GET http://a/",
            "GET http://a/\u{b}x HTTP/1.1",
            "GET http://a/\u{a0}x HTTP/1.1",
            "GET\thttp://a/ HTTP/1.1",
            "G\u{0}T http://a/ HTTP/1.1",
            "",
        ] {
            assert_eq!(parse(&format!("{line}\r\nhost: a\r\n\r\n")), Err("bad_request"), "{line:?}");
        }
        assert_eq!(parse("GET http://a/ HTTP/1.1\r\n\r\n"), Err("bad_request"), "no host");
        let many: String = (0..=MAX_HEADERS).map(|n| format!("x{n}: y\r\n")).collect();
        assert_eq!(parse(&format!("GET http://a/ HTTP/1.1\r\n{many}\r\n")), Err("head_too_large"));
    }
}
