//! The authority (`host:port`) of a request from a sandbox, parsed once and strictly: a normalized name, or an address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use reqwest::Url;

/// Maximum bytes of a name: the DNS bound plus a trailing dot.
const MAX_HOST_BYTES: usize = 254;

/// Maximum bytes of one label of a name.
const MAX_LABEL_BYTES: usize = 63;

/// The destination of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Authority {
    pub(super) host: Host,
    pub(super) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    /// In lowercase ASCII, without a trailing dot.
    Name(String),
    Literal(IpAddr),
    /// An address in an unusual spelling (hexadecimal, octal, short, with a trailing dot): some parsers read a number or a name
    /// where others read this address.
    Disguised(IpAddr),
}

/// The text is not a valid authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoAuthority;

impl Authority {
    /// Parses `host:port`. `default_port` applies where the port may be omitted.
    pub(super) fn parse(text: &str, default_port: Option<u16>) -> Result<Self, NoAuthority> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']').ok_or(NoAuthority)?;
                let address: Ipv6Addr = address.parse().map_err(|_| NoAuthority)?;
                (Host::Literal(address.into()), port)
            }
            None => {
                let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (Host::parse(host)?, port)
            }
        };
        let port = match port.strip_prefix(':') {
            Some(port) => Self::port(port)?,
            None if port.is_empty() => default_port.ok_or(NoAuthority)?,
            None => return Err(NoAuthority),
        };
        Ok(Self { host, port })
    }

    fn port(text: &str) -> Result<u16, NoAuthority> {
        let is_plain = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|port| is_plain && *port != 0).ok_or(NoAuthority)
    }
}

impl Host {
    fn parse(text: &str) -> Result<Self, NoAuthority> {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c) || !c.is_ascii();
        if text.len() > MAX_HOST_BYTES || !text.chars().all(is_letter) {
            return Err(NoAuthority);
        }
        let bare = text.strip_suffix('.').unwrap_or(text);
        // The URL parser handles names beyond ASCII, and every spelling of an IPv4 address.
        let url = Url::parse(&format!("http://{bare}/")).map_err(|_| NoAuthority)?;
        let host = url.host_str().ok_or(NoAuthority)?;
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(if host == text { Self::Literal(address) } else { Self::Disguised(address) });
        }
        let is_label = |label: &str| (1..=MAX_LABEL_BYTES).contains(&label.len());
        let is_name = host.len() < MAX_HOST_BYTES
            && host.split('.').all(is_label)
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if is_name { Ok(Self::Name(host.to_owned())) } else { Err(NoAuthority) }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Literal(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Literal(address) | Self::Disguised(address) => write!(f, "{address}"),
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        let authority = Authority::parse(text, None).ok()?;
        let kind = match authority.host {
            Host::Name(_) => "name",
            Host::Literal(_) => "literal",
            Host::Disguised(_) => "disguised",
        };
        Some(format!("{kind} {authority}"))
    }

    #[test]
    fn names_are_normalized() {
        for (text, expected) in [
            ("example.org:443", "name example.org:443"),
            ("EXAMPLE.Org.:443", "name example.org:443"),
            ("bücher.example:443", "name xn--bcher-kva.example:443"),
            ("BÜCHER.example:443", "name xn--bcher-kva.example:443"),
            ("example\u{3002}org:443", "name example.org:443"),
            ("_dmarc.a-b.example:1", "name _dmarc.a-b.example:1"),
            ("localhost:80", "name localhost:80"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn every_spelling_of_an_address_is_recognized() {
        for text in [
            "127.0.0.1:80",
            "[::1]:80",
            "[0:0:0:0:0:0:0:1]:80",
            "[::ffff:127.0.0.1]:80",
            "[64:ff9b::7f00:1]:80",
        ] {
            assert!(shown(text).unwrap().starts_with("literal "), "{text}");
        }
        for text in [
            "2130706433:80",
            "0x7f000001:80",
            "0x7f.1:80",
            "0177.0.0.1:80",
            "017700000001:80",
            "127.1:80",
            "127.0.1:80",
            "127.0.0.1.:80",
            "0X7F.0.0.1:80",
            "0:80",
            "①②⑦.0.0.1:80",
            "127\u{3002}0\u{3002}0\u{3002}1:80",
            "１２７.0.0.1:80",
        ] {
            assert!(shown(text).unwrap_or_default().starts_with("disguised "), "{text}: {:?}", shown(text));
        }
    }

    #[test]
    fn ambiguous_authorities_are_rejected() {
        for text in [
            "",
            ":443",
            "example.org",
            "example.org:",
            "example.org:0",
            "example.org:+443",
            "example.org:0x1bb",
            "example.org:000443",
            "example.org:65536",
            "example.org:443:443",
            "user@example.org:443",
            "example.org@evil.example:443",
            "example.org/:443",
            "example.org\\evil:443",
            "exam ple.org:443",
            "example.org%2e:443",
            "%31%32%37.0.0.1:80",
            "example..org:443",
            ".example.org:443",
            "example.org..:443",
            "*.example.org:443",
            "example.org#:443",
            "example.org?:443",
            "[::1:80",
            "::1:80",
            "[::1]80",
            "[::1%25lo]:80",
            "[fe80::1%lo]:80",
            "[127.0.0.1]:80",
            "256.1.1.1:80",
            "1.2.3.4.5:80",
            "a\u{0}b:80",
            "a\u{ad}\u{200d}\u{301}:80\r",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
        assert_eq!(shown(&format!("{}.example:1", "a".repeat(64))), None);
        assert_eq!(shown(&format!("{}:1", "a.".repeat(130))), None);
    }
}
