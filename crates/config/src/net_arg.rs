//! The `--net` argument: `HOST[:PORT]`, optionally with the prefix `http://`, `https://` or `tcp://`.

use crate::egress_rules::{ConnectionKind, EgressRule};
use crate::url::HostPort;

/// The error for a text that is not a valid `--net` argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a host to connect to: write a host such as example.org or example.org:8443, or an address such as 127.0.0.1:8080; the prefix tcp:// allows any protocol in a tunnel and needs a port"
)]
pub struct NotAPlace(pub String);

/// Parses a text into egress rules. Without a scheme there are two: a tunnel with TLS, and plain HTTP.
pub fn parse_net(text: &str) -> Result<Vec<EgressRule>, NotAPlace> {
    let wrong = || NotAPlace(text.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect());
    let (speeches, rest): (&[ConnectionKind], &str) = match text.split_once("://") {
        None => (&[ConnectionKind::Https, ConnectionKind::Http], text),
        Some(("https", rest)) => (&[ConnectionKind::Https], rest),
        Some(("http", rest)) => (&[ConnectionKind::Http], rest),
        Some(("tcp", rest)) => (&[ConnectionKind::Tcp], rest),
        Some(_) => return Err(wrong()),
    };
    // A bare IPv6 address has no port: its last group cannot be told from one.
    let is_bare_v6 = !rest.starts_with('[') && rest.matches(':').count() > 1;
    let rest = if is_bare_v6 { format!("[{rest}]") } else { rest.to_owned() };
    let at: HostPort = rest.parse().map_err(|()| wrong())?;
    let place = |speech: &ConnectionKind| {
        let port = match speech {
            ConnectionKind::Https => Some(443),
            ConnectionKind::Http => Some(80),
            ConnectionKind::Tcp => None,
        };
        let at = match (at.has_port(), port) {
            (true, _) => at.clone(),
            (false, Some(port)) => format!("{at}:{port}").parse().map_err(|()| wrong())?,
            (false, None) => return Err(wrong()),
        };
        // `localhost` always means this machine, so the rule allows a private address.
        let private = rest.split(':').next() == Some("localhost");
        Ok(EgressRule { at, speech: *speech, methods: Vec::new(), paths: Vec::new(), private })
    };
    speeches.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_arguments_are_parsed() {
        for (text, expected) in [
            ("example.org", "example.org:443 Https, example.org:80 Http"),
            ("Example.org:8443", "example.org:8443 Https, example.org:8443 Http"),
            ("https://example.org", "example.org:443 Https"),
            ("http://example.org:8080", "example.org:8080 Http"),
            ("tcp://db.example.org:5432", "db.example.org:5432 Tcp"),
            ("127.0.0.1:8080", "127.0.0.1:8080 Https, 127.0.0.1:8080 Http"),
            ("localhost:1", "localhost:1 Https private, localhost:1 Http private"),
            ("[::1]:80", "[::1]:80 Https, [::1]:80 Http"),
            ("::1", "[::1]:443 Https, [::1]:80 Http"),
        ] {
            let places = parse_net(text).unwrap();
            let shown = places.iter().map(|place| {
                format!("{} {:?}{}", place.at, place.speech, if place.private { " private" } else { "" })
            });
            assert_eq!(shown.collect::<Vec<_>>().join(", "), expected, "{text}");
        }
        for text in
            ["", "*", "*.example.org", "ftp://example.org", "example.org/path", "a:0", "a:", "tcp://a", "a b"]
        {
            assert!(parse_net(text).is_err(), "{text}");
        }
    }
}
