//! Why a connection is denied: one code for programs and one sentence for people. Neither reveals the address of a name.

use std::borrow::Cow;

use serde_json::json;

/// A denied connection, as the client sees it.
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
        "the request is malformed or ambiguous: send a plain HTTP/1.1 request",
    );
    pub(super) const TWO_LENGTHS: Self = Self::fixed(
        400,
        "two_lengths",
        "the request states its length in more than one way: send one Content-Length",
    );
    pub(super) const LARGE_HEAD: Self =
        Self::fixed(431, "head_too_large", "the request head is too large: send fewer or shorter headers");
    pub(super) const SLOW_HEAD: Self =
        Self::fixed(408, "timed_out", "the request head did not arrive in time: send it at once");
    pub(super) const NOT_A_PLACE: Self = Self::fixed(
        400,
        "bad_authority",
        "the request has no valid destination: use CONNECT host:port, or an absolute http:// URL",
    );
    pub(super) const NO_TLS_HERE: Self =
        Self::fixed(400, "use_connect", "https URLs need CONNECT: set HTTPS_PROXY instead of HTTP_PROXY");
    pub(super) const OTHER_HOST: Self = Self::fixed(
        400,
        "host_mismatch",
        "the Host header differs from the host of the request: send the same host in both",
    );
    pub(super) const EARLY_BYTES: Self = Self::fixed(
        400,
        "early_bytes",
        "bytes arrived with CONNECT or before its response: wait for the 200",
    );
    pub(super) const BUSY: Self =
        Self::fixed(503, "too_many_connections", "this session has too many open connections: close some");

    const fn fixed(status: u16, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message: Cow::Borrowed(message) }
    }

    pub(super) fn denied(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status: 403, code, message: message.into() }
    }

    pub(super) fn failed(status: u16, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into() }
    }

    /// The JSON body of the response.
    pub(super) fn body(&self) -> String {
        json!({ "error": { "code": self.code, "message": self.message } }).to_string()
    }

    /// The complete HTTP response. The connection closes after it.
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
