//! Why a connection is not made, in one word for programs and one sentence for people. Neither tells an address that a name
//! led to.

use std::borrow::Cow;

use serde_json::json;

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: Cow<'static, str>,
}

impl Refusal {
    pub(super) const BROKEN_HEAD: Self = Self::fixed(
        400,
        "bad_request",
        "the request can be read in more than one way, or in none: write it plainly",
    );
    pub(super) const TWO_LENGTHS: Self = Self::fixed(
        400,
        "two_lengths",
        "the request says in more than one way how long it is: send one Content-Length",
    );
    pub(super) const LARGE_HEAD: Self = Self::fixed(
        431,
        "head_too_large",
        "the head of the request is too large: send fewer or shorter headers",
    );
    pub(super) const SLOW_HEAD: Self =
        Self::fixed(408, "timed_out", "the head of the request did not arrive in time: send it at once");
    pub(super) const NOT_A_PLACE: Self = Self::fixed(
        400,
        "bad_authority",
        "the request does not say plainly where to: use CONNECT host:port, or a whole http:// address",
    );
    pub(super) const NO_TLS_HERE: Self = Self::fixed(
        400,
        "use_connect",
        "https addresses are reached with CONNECT: set HTTPS_PROXY in place of HTTP_PROXY",
    );
    pub(super) const OTHER_HOST: Self = Self::fixed(
        400,
        "host_mismatch",
        "the Host header names another host than the request: send the same in both",
    );
    pub(super) const EARLY_BYTES: Self =
        Self::fixed(400, "early_bytes", "bytes came with CONNECT or before its answer: wait for the 200");
    pub(super) const BUSY: Self =
        Self::fixed(503, "too_many_connections", "too many connections of this session are open: close some");

    const fn fixed(status: u16, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message: Cow::Borrowed(message) }
    }

    pub(super) fn denied(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status: 403, code, message: message.into() }
    }

    pub(super) fn failed(status: u16, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into() }
    }

    /// For whoever reads programs' messages.
    pub(super) fn body(&self) -> String {
        json!({ "error": { "code": self.code, "message": self.message } }).to_string()
    }

    /// The whole answer. The connection ends with it.
    pub(super) fn response(&self) -> Vec<u8> {
        let phrase = match self.status {
            400 => "Bad Request",
            403 => "Forbidden",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            502 => "Bad Gateway",
            503 => "Service Unavailable",
            504 => "Gateway Timeout",
            _ => "Internal Server Error",
        };
        let body = self.body();
        format!(
            "HTTP/1.1 {} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.status,
            body.len()
        )
        .into_bytes()
    }
}
