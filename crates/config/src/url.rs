//! URLs, hosts and ports as people and models write them, parsed strictly.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use reqwest::Url;
use tribune_records::outcome::{ToolError, ToolErrorCode};
use tribune_records::text::shown;

/// Longest URL in bytes.
const MAX_URL_BYTES: usize = 4096;

/// An `http` or `https` URL whose host is written exactly as it is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    /// In lowercase; an IPv6 address without its brackets.
    host: String,
    port: u16,
}

/// A host with an optional port: `example.org`, `example.org:443`, `[::1]:8080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

/// The URL of a SearXNG server, such as `http://127.0.0.1:8888/search`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchEndpoint(Target);

impl Target {
    /// Parses a URL. Rejects one whose host the URL parser would rewrite, because other software may read it differently.
    pub fn parse(text: &str) -> Result<Self, ToolError> {
        let refused = |why: &str| {
            let sentence = format!("`{}` {why}", shown(text));
            ToolError::new(ToolErrorCode::InvalidInput, sentence)
        };
        if text.len() > MAX_URL_BYTES {
            return Err(refused("is too long: shorten it"));
        }
        let url = Url::parse(text)
            .map_err(|_| refused("is not a URL: write it like `https://example.org/page`"))?;
        let target = Self::new(url)?;
        // Other software may read differently what the parser normalizes: numeric addresses, escapes, backslashes, spaces.
        let plain = format!("{}://{}", target.url.scheme(), target.url.host_str().unwrap_or_default());
        let rest = text.get(..plain.len()).filter(|begin| begin.eq_ignore_ascii_case(&plain));
        match rest.map(|_| text.as_bytes().get(plain.len())) {
            Some(None | Some(b':' | b'/' | b'?' | b'#')) => Ok(target),
            _ => Err(refused(&format!("does not name its host in plain form: write `{plain}`"))),
        }
    }

    /// Checks a URL that is parsed already, such as a redirect target.
    pub fn new(mut url: Url) -> Result<Self, ToolError> {
        let refused = |why: &str| Err(ToolError::new(ToolErrorCode::Refused, why.to_owned()));
        if !matches!(url.scheme(), "http" | "https") {
            return refused("only `http` and `https` URLs are supported: choose another");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refused("a URL with a user name or password is not supported: remove them");
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return refused("the URL has no host: write it like `https://example.org/page`");
        };
        if host.ends_with('.') {
            return refused("the host ends with a dot: remove the dot");
        }
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte)) {
            return refused("the host contains invalid characters: check the URL");
        }
        // Fragments are not sent to servers.
        url.set_fragment(None);
        Ok(Self { url, host, port })
    }

    pub const fn url(&self) -> &Url {
        &self.url
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The host as an IP address; `None` if it is a name.
    pub fn literal(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// A copy with these query parameters appended.
    pub fn with_query(&self, pairs: &[(&str, &str)]) -> Self {
        let mut target = self.clone();
        target.url.query_pairs_mut().extend_pairs(pairs);
        target
    }
}

impl FromStr for HostPort {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let target = Target::parse(&format!("http://{text}")).map_err(|_| ())?;
        let bare = target.url.path() == "/" && !text.contains(['/', '?', '#', '\\']);
        let port = text.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        if !bare || port == Some(0) || text.ends_with(':') {
            return Err(());
        }
        Ok(Self { host: target.host, port })
    }
}

impl HostPort {
    /// Whether both host and port are equal.
    pub fn is(&self, host: &str, port: u16) -> bool {
        self.host == host && self.port == Some(port)
    }

    /// Whether this entry matches the host itself or a parent domain of it. Without a port it matches every port.
    pub fn covers(&self, host: &str, port: u16) -> bool {
        let under = || host.strip_suffix(&self.host).is_some_and(|rest| rest.ends_with('.'));
        (host == self.host || under()) && self.port.is_none_or(|own| own == port)
    }

    /// Whether this entry is the IP address itself. Without a port it matches every port.
    pub fn is_at(&self, address: IpAddr, port: u16) -> bool {
        self.host == address.to_string() && self.port.is_none_or(|own| own == port)
    }

    /// Whether a port is given.
    pub(crate) const fn has_port(&self) -> bool {
        self.port.is_some()
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}{}{}", brackets.0, self.host, brackets.1)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl FromStr for SearchEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Target::parse(text).map(Self).map_err(|refused| refused.sentence)
    }
}

impl SearchEndpoint {
    pub const fn target(&self) -> &Target {
        &self.0
    }

    pub fn host_port(&self) -> HostPort {
        HostPort { host: self.0.host.clone(), port: Some(self.0.port) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_rejected_if_its_host_would_be_rewritten() {
        for (text, host, port) in [
            ("http://Example.org", "example.org", 80),
            ("https://example.org/a?b=c#d", "example.org", 443),
            ("HTTP://127.0.0.1:8080/", "127.0.0.1", 8080),
            ("http://[::1]:1/", "::1", 1),
            ("https://xn--bcher-kva.example?x", "xn--bcher-kva.example", 443),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!((target.host(), target.port()), (host, port), "{text}");
            assert_eq!(target.url().fragment(), None);
        }
        for text in [
            "",
            "example.org",
            "/x",
            "http://",
            "http:///",
            "http:example.org",
            "http:/example.org",
            "http:\\\\example.org",
            "http://example.org\\@a/",
            "http://user@example.org/",
            "http://:pw@example.org/",
            "http://127.0.0.1@example.org/",
            "http://@example.org/",
            "http://example.org./",
            "http://localhost./",
            "http://127.0.0.1./",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://0/",
            "http://%31%32%37.0.0.1/",
            "http://①②⑦.0.0.1/",
            "http://bücher.example/",
            "http://ex\tample.org/",
            " http://example.org/",
            "http://[::ffff:127.0.0.1]/",
            "http://[0:0:0:0:0:0:0:1]/",
            "http://[fe80::1%25eth0]/",
            "http://*/",
            "http://a!b.example/",
            "http://256.1.1.1/",
            "http://1.2.3.4.5/",
            "http://example.org:99999/",
            "ftp://example.org/",
            "file:///etc/passwd",
            "data:text/plain,x",
            "gopher://example.org/",
            "unix:/run/x",
        ] {
            assert!(Target::parse(text).is_err(), "{text}: {:?}", Target::parse(text));
        }
        assert!(Target::parse(&format!("http://a/{}", "x".repeat(MAX_URL_BYTES))).is_err());
        // The canonical form of the same address is accepted.
        assert_eq!(Target::parse("http://[::ffff:7f00:1]/").unwrap().host(), "::ffff:7f00:1");
    }

    #[test]
    fn hosts_are_parsed_and_printed() {
        for (text, host, port) in [
            ("Example.org", "example.org", None),
            ("example.org:443", "example.org", Some(443)),
            ("example.org:80", "example.org", Some(80)),
            ("[::1]:8080", "::1", Some(8080)),
            ("10.0.0.1", "10.0.0.1", None),
        ] {
            let read: HostPort = text.parse().unwrap();
            assert_eq!((read.host.as_str(), read.port), (host, port));
            assert_eq!(read.to_string(), text.to_ascii_lowercase());
        }
        for text in [
            "", ":80", "a:", "a:0", "a:x", "a/b", "a?", "http://a", "u@a", "*", "*.a", "a b", "10.1:80",
            "a.:1",
        ] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }
}
