//! The host that a URL leads to, and whether a text contains a link.

use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;

/// Bytes of a host name: the limit of DNS.
const MAX_HOST_BYTES: usize = 253;

/// Digits of a number of a phone with its country.
const MIN_PHONE_DIGITS: usize = 7;

/// Where a URL leads. The path and the query are not kept: they contain what people search and read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UrlTarget {
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl UrlTarget {
    /// Parses `scheme://host[:port]…`. `None` for every URL that parsers disagree about: with credentials,
    /// backslashes, spaces, control characters, a host outside ASCII, or a number that only some parsers take for
    /// an IP address.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let default_port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (v6, port) = v6.split_once(']')?;
                (Self::v6(v6)?, port)
            }
            None => {
                let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
                (Self::name(host)?, port)
            }
        };
        let port = match port {
            "" => default_port,
            port => Self::port(port.strip_prefix(':')?)?,
        };
        Some(Self { scheme, host, port })
    }

    fn port(text: &str) -> Option<u16> {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    }

    /// An IPv6 address in its canonical form; an IPv4-mapped one as its IPv4 address. `None` for the forms that
    /// lead to an IPv4 address through a gateway: the only reason to write one is to hide the target.
    fn v6(text: &str) -> Option<String> {
        let address: std::net::Ipv6Addr = text.parse().ok()?;
        if let Some(v4) = address.to_ipv4_mapped() {
            return Some(v4.to_string());
        }
        let hidden = match address.segments() {
            [0, 0, 0, 0, 0, 0, 0, 0 | 1] => false,
            [0, 0, 0, 0, 0 | 0xffff, 0, _, _] | [0x64, 0xff9b, ..] | [0x2002, ..] => true,
            _ => false,
        };
        (!hidden).then(|| address.to_string())
    }

    fn name(host: &str) -> Option<String> {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let labels = host.split('.').all(|label| !label.is_empty());
        if host.is_empty() || host.len() > MAX_HOST_BYTES || !labels || !host.bytes().all(word) {
            return None;
        }
        // `2130706433`, `0x7f.1` and `127.1` are addresses to some parsers and names to others.
        let last = host.rsplit('.').next().unwrap_or_default();
        let number = last.bytes().all(|byte| byte.is_ascii_digit())
            || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match host.parse::<std::net::Ipv4Addr>() {
            Ok(address) => Some(address.to_string()),
            Err(_) if number => None,
            Err(_) => Some(host),
        }
    }
}

/// Whether some reader could make a link of a part of `text`. Prefers false positives: only a text without any link
/// passes a rule that forbids links.
pub(crate) fn contains_link(text: &str) -> bool {
    let dot = |c: char| matches!(c, '.' | '\u{3002}' | '\u{FF0E}' | '\u{FF61}');
    let lower: String = text.nfkc().collect::<String>().to_lowercase();
    let marked = ["://", "www", "mailto:", "tel:", "](", "href", "data:", "javascript:"];
    if marked.iter().any(|mark| lower.contains(mark)) {
        return true;
    }
    let chars: Vec<char> = lower.chars().collect();
    let domain = |window: &[char]| match window {
        [before, middle, after, next] => {
            before.is_alphanumeric() && dot(*middle) && after.is_alphabetic() && next.is_alphanumeric()
        }
        _ => false,
    };
    chars.windows(4).any(domain) || lower.split(|c: char| !c.is_ascii_digit() && c != '.').any(is_v4)
}

/// Whether any text in a value, keys included, looks like an address: a link, a host, a mail address, a number of a phone.
pub(crate) fn contains_address(value: &Value) -> bool {
    let looks_like_one = |text: &str| {
        let digits = text.chars().filter(char::is_ascii_digit).count();
        let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        contains_link(text)
            || text.contains('@')
            || has_port
            || text.trim().parse::<std::net::IpAddr>().is_ok()
            || (text.trim_start().starts_with('+') && digits >= MIN_PHONE_DIGITS)
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => looks_like_one(text),
        Value::Array(items) => items.iter().any(contains_address),
        Value::Object(members) => {
            members.iter().any(|(key, member)| looks_like_one(key) || contains_address(member))
        }
    }
}

/// Four numbers with dots between them, perhaps followed by the full stop of the sentence.
fn is_v4(text: &str) -> bool {
    text.trim_end_matches('.').parse::<std::net::Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_to_one_host() {
        for (url, scheme, host, port) in [
            ("https://Example.ORG/a?b#c", "https", "example.org", 443),
            ("HTTP://example.org.:8080", "http", "example.org", 8080),
            ("https://[::1]:9/", "https", "::1", 9),
            ("https://[0:0::0:1]/", "https", "::1", 443),
            ("https://[::ffff:127.0.0.1]/", "https", "127.0.0.1", 443),
            ("https://[::FFFF:7f00:1]/", "https", "127.0.0.1", 443),
            ("https://example.org:0443/", "https", "example.org", 443),
            ("http://127.0.0.1?x", "http", "127.0.0.1", 80),
            ("https://xn--bcher-kva.example", "https", "xn--bcher-kva.example", 443),
        ] {
            let found = UrlTarget::parse(url).unwrap();
            assert_eq!(
                (found.scheme.as_str(), found.host.as_str(), found.port),
                (scheme, host, port),
                "{url}"
            );
        }
    }

    #[test]
    fn a_url_that_parsers_disagree_about_is_refused() {
        for url in [
            "",
            "example.org",
            "ftp://example.org",
            "https://",
            "https://user@example.org/",
            "https://a:b@c",
            "https://exa mple.org",
            "https://example.org\\@evil",
            "https://b\u{fc}cher.example",
            "https://a..b",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://127.1/",
            "https://0177.0.0.1/",
            "https://127.0.0.0x1",
            "https://[::127.0.0.1]/",
            "https://[64:ff9b::7f00:1]/",
            "https://[2002:7f00:1::]/",
            "https://[fe80::1%25eth0]/",
            "https://example.org../",
            "https://example.org%2e/",
            "https:///example.org",
            " https://example.org",
            "https://example.org:99999",
            "https://example.org:+80",
            "https://example.org:",
            "https://[::1",
            "https://\u{430}pple.com",
        ] {
            assert!(UrlTarget::parse(url).is_none(), "{url}");
        }
    }

    #[test]
    fn links_are_found_in_every_notation() {
        for text in [
            "see https://a.example",
            "visit example.com now",
            "WWW.x",
            "[here](x)",
            "evil\u{3002}com",
            "mailto:a@b",
            "<a HREF=x>",
            "a.b.co.uk",
            "evil\u{2024}com",
            "go to 192.0.2.7.",
        ] {
            assert!(contains_link(text), "{text}");
        }
        for address in
            ["bob@internal", "db:5432", "2001:db8::1", "+49 30 1234567", "see https://a.example", "a.example"]
        {
            assert!(contains_address(&serde_json::json!([1, { "a": [address] }])), "{address}");
            assert!(contains_address(&serde_json::json!({ address: null })), "{address}");
        }
        assert!(!contains_address(&serde_json::json!({ "text": "hello: there", "n": 7, "plus": "+1" })));
        for text in
            ["Thank you. We will reply.", "It costs 3.50 today", "", "Hello... there", "at 10:30 a.m. sharp"]
        {
            assert!(!contains_link(text), "{text}");
        }
    }
}
