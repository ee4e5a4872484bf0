//! Which addresses the web tools may connect to. Names are resolved here, and connections go to the checked addresses.

use std::net::{IpAddr, SocketAddr};

use tribune_config::egress_rules::EgressMode;
use tribune_config::url::{HostPort, SearchEndpoint, Target};
use tribune_egress::net;
use tribune_egress::net::{AddressClass, AddressScope};
use tribune_records::outcome::{ToolError, ToolErrorCode};

/// The egress rules. The default allows nothing.
#[derive(Debug, Clone, Default)]
pub struct Egress {
    mode: EgressMode,
    allow: Vec<HostPort>,
    deny: Vec<HostPort>,
}

impl Egress {
    /// An entry of `deny` is never reached, whatever `allow` contains. A name there covers the names under it as well, an
    /// address also the names that resolve to it.
    pub const fn new(mode: EgressMode, allow: Vec<HostPort>, deny: Vec<HostPort>) -> Self {
        Self { mode, allow, deny }
    }

    /// These rules, and access to the search engine that the operator configured.
    pub(crate) fn with(&self, endpoint: &SearchEndpoint) -> Self {
        let mut rules = self.clone();
        rules.allow.push(endpoint.host_port());
        rules
    }

    /// Resolves the addresses that may be connected to for `target`.
    pub(super) async fn check(&self, target: &Target) -> Result<Vec<SocketAddr>, ToolError> {
        let reach = self.name(target)?;
        let addresses = match target.literal() {
            Some(address) => vec![address],
            None => resolve(target).await?,
        };
        self.addresses(target, reach, &addresses)?;
        // Checked last, because it asks the kernel: a public address may be one of this host.
        if !reach.covers(AddressClass::Inside) && addresses.iter().any(|address| net::is_own(*address)) {
            return Err(astray(target));
        }
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, target.port())).collect())
    }

    /// Checks a name before it is resolved.
    fn name(&self, target: &Target) -> Result<AddressScope, ToolError> {
        let (host, port) = (target.host(), target.port());
        let is_denied = self.deny.iter().any(|denied| denied.covers(host, port));
        if is_denied {
            return Err(refused(format!("`{host}` is in `egress.deny` of this host: choose another source")));
        }
        let is_listed = self.allow.iter().any(|allowed| allowed.is(host, port));
        match (is_listed, self.mode) {
            (true, _) if target.literal().is_some() => Ok(AddressScope::Literal),
            (true, _) => Ok(AddressScope::Inside),
            (false, EgressMode::Public) => Ok(AddressScope::Public),
            (false, EgressMode::Allowlist) => Err(refused(format!(
                "`{host}:{port}` is not in `egress.allow` of this host, and nothing else may be reached: choose \
                 another source, or ask the operator"
            ))),
        }
    }

    /// Checks resolved addresses. A single disallowed address refuses all of them.
    fn addresses(&self, target: &Target, reach: AddressScope, addresses: &[IpAddr]) -> Result<(), ToolError> {
        let is_fine = |address: &IpAddr| {
            !self.deny.iter().any(|denied| denied.is_at(*address, target.port()))
                && reach.covers(AddressClass::of(*address))
        };
        if addresses.iter().all(is_fine) { Ok(()) } else { Err(astray(target)) }
    }
}

async fn resolve(target: &Target) -> Result<Vec<IpAddr>, ToolError> {
    net::resolve(target.host(), target.port()).await.map_err(|unresolved| {
        let sentence = format!("the name `{}` {unresolved}: check it, or try again later", target.host());
        ToolError::new(ToolErrorCode::Failed, sentence)
    })
}

fn astray(target: &Target) -> ToolError {
    refused(format!(
        "`{}` leads to an address that may not be reached from here: choose another source",
        target.host()
    ))
}

fn refused(sentence: String) -> ToolError {
    ToolError::new(ToolErrorCode::Refused, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(mode: EgressMode, allow: &str, deny: &str) -> Egress {
        let list = |text: &str| text.split_whitespace().map(|entry| entry.parse().unwrap()).collect();
        Egress::new(mode, list(allow), list(deny))
    }

    fn lets(rules: &Egress, url: &str, addresses: &str) -> bool {
        let target = Target::parse(url).unwrap();
        let addresses: Vec<IpAddr> = match target.literal() {
            Some(literal) => vec![literal],
            None => addresses.split_whitespace().map(|address| address.parse().unwrap()).collect(),
        };
        rules.name(&target).and_then(|reach| rules.addresses(&target, reach, &addresses)).is_ok()
    }

    #[test]
    fn the_default_allows_nothing() {
        for url in ["http://example.org/", "https://1.1.1.1/", "http://127.0.0.1/"] {
            assert!(!lets(&Egress::default(), url, "1.1.1.1"), "{url}");
        }
    }

    #[test]
    fn an_allowlist_allows_what_it_lists() {
        let rules = rules(EgressMode::Allowlist, "example.org:443 10.0.0.7:80 [::1]:81 169.254.1.1:80", "");
        for (url, addresses, expected) in [
            ("https://example.org/", "1.1.1.1", true),
            ("https://EXAMPLE.org:443/", "1.1.1.1 2a00::1", true),
            // The operator's own hosts have private addresses; cloud metadata services have no name.
            ("https://example.org/", "10.0.0.1", true),
            ("https://example.org/", "169.254.169.254", false),
            ("https://example.org/", "1.1.1.1 0.0.0.0", false),
            ("https://example.org/", "::ffff:7f00:1", false),
            ("http://example.org/", "1.1.1.1", false),
            ("https://example.org:8443/", "1.1.1.1", false),
            ("https://www.example.org/", "1.1.1.1", false),
            ("https://example.org.evil.example/", "1.1.1.1", false),
            ("http://10.0.0.7/", "", true),
            ("http://10.0.0.8/", "", false),
            ("http://[::1]:81/", "", true),
            ("http://169.254.1.1/", "", true),
        ] {
            assert_eq!(lets(&rules, url, addresses), expected, "{url} {addresses}");
        }
    }

    #[test]
    fn public_mode_allows_public_addresses() {
        let rules = rules(EgressMode::Public, "127.0.0.1:8888", "evil.example example.org:80 9.9.9.9");
        for (url, addresses, expected) in [
            ("http://example.com/", "1.1.1.1", true),
            ("http://example.com/", "1.1.1.1 10.0.0.1", false),
            ("http://localhost/", "127.0.0.1", false),
            ("http://1.1.1.1/", "", true),
            ("http://127.0.0.1/", "", false),
            ("http://127.0.0.1:8888/", "", true),
            ("http://[::1]/", "", false),
            ("http://[::ffff:7f00:1]/", "", false),
            ("http://[64:ff9b::7f00:1]/", "", false),
            ("http://[2002:7f00:1::]/", "", false),
            ("http://evil.example/", "1.1.1.1", false),
            ("http://a.b.evil.example/", "1.1.1.1", false),
            ("http://notevil.example/", "1.1.1.1", true),
            ("http://example.org/", "1.1.1.1", false),
            ("https://example.org/", "1.1.1.1", true),
            ("http://9.9.9.9/", "", false),
            ("http://nine.example/", "9.9.9.9", false),
        ] {
            assert_eq!(lets(&rules, url, addresses), expected, "{url} {addresses}");
        }
    }

    #[test]
    fn deny_takes_precedence_over_allow() {
        let both = rules(EgressMode::Public, "example.org:443", "example.org");
        assert!(!lets(&both, "https://example.org/", "1.1.1.1"));
    }
}
