//! The egress allowlist: for each agent, the destinations that programs in its sandboxes may connect to, and how.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tribune_config::egress_rules::{ConnectionKind, EgressRule, UnlistedPolicy};
use tribune_config::url::HostPort;
use tribune_constitution::Labels;
use tribune_runtime::AgentId;

use super::authority::Host;
use super::connect_request::ConnectRequest;
use crate::net::{AddressClass, AddressScope};

/// The egress rules of the configuration.
#[derive(Debug, Clone, Default)]
pub struct EgressRules {
    pub agents: BTreeMap<AgentId, Vec<EgressRule>>,
    /// Destinations that are never reached, even if they are listed.
    pub deny: Vec<HostPort>,
    pub unlisted: UnlistedPolicy,
}

/// What one session may reach in addition to its agent's allowlist, for as long as its sockets are open. Only an operator adds
/// destinations to it.
#[derive(Debug, Clone, Default)]
pub struct AllowedEgress {
    pub rules: Vec<EgressRule>,
    /// Overrides the configured policy for unlisted destinations.
    pub unlisted: Option<UnlistedPolicy>,
    /// Labels of the data in the sandbox that the ledger does not record yet. The labels of what a command reads reach its session
    /// only when the command ends, and by then it could have sent the data.
    pub carries: Option<Labels>,
}

/// The verdict of the allowlist on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EgressVerdict {
    /// Listed, with the addresses it may resolve to and the kind of connection.
    Listed(AddressScope, ConnectionKind),
    /// Not listed; a person may be asked.
    Unlisted,
    /// Denied: by which rule, and why.
    No(&'static str, String),
}

impl EgressRules {
    /// Checks a connection against the rules, before any name is resolved.
    pub(super) fn check(
        &self,
        agent: &AgentId,
        allowed: &AllowedEgress,
        wanted: &ConnectRequest,
    ) -> EgressVerdict {
        let (host, port) = (&wanted.authority.host, wanted.authority.port);
        let name = match host {
            Host::Name(name) => name.clone(),
            Host::Literal(address) => address.to_string(),
            Host::Disguised(_) => {
                let what = "the host is an address that is not written as one: write a name that the operator listed";
                return EgressVerdict::No("egress.literal", what.to_owned());
            }
        };
        if self.deny.iter().any(|denied| denied.covers(&name, port)) {
            return EgressVerdict::No(
                "egress.denied",
                format!("`{name}` is in egress.deny: use another place"),
            );
        }
        let listed = self.agents.get(agent).into_iter().flatten().chain(&allowed.rules);
        let at_address: Vec<&EgressRule> = listed.filter(|place| place.at.is(&name, port)).collect();
        let mut fitting = at_address.iter().filter(|place| speaks(place, wanted)).peekable();
        if fitting.peek().is_none() {
            let unlisted = allowed.unlisted.unwrap_or(self.unlisted);
            return unlisted_verdict(unlisted, agent, wanted, !at_address.is_empty());
        }
        match fitting.find(|place| lets(place, wanted)) {
            Some(place) => {
                let scope = match host {
                    Host::Literal(_) => AddressScope::Literal,
                    Host::Name(_) | Host::Disguised(_) if place.private => AddressScope::Inside,
                    Host::Name(_) | Host::Disguised(_) => AddressScope::Public,
                };
                EgressVerdict::Listed(scope, place.speech)
            }
            None => {
                let what = format!("{} of this path is not listed for `{name}:{port}`", wanted.method);
                EgressVerdict::No(
                    "egress.request",
                    format!("{what}: an operator can add it to egress.agents.{agent}"),
                )
            }
        }
    }

    /// Whether a resolved address may be connected to. `is_own` recognizes this machine's own addresses.
    pub(super) fn allows_address(
        &self,
        scope: AddressScope,
        address: IpAddr,
        port: u16,
        is_own: impl Fn(IpAddr) -> bool,
    ) -> bool {
        !self.deny.iter().any(|denied| denied.is_at(address, port))
            && scope.covers(AddressClass::of(address))
            && (scope.covers(AddressClass::Inside) || !is_own(address))
    }
}

/// The verdict on a destination that is not listed, or not listed for this kind of request (`is_known`).
fn unlisted_verdict(
    unlisted: UnlistedPolicy,
    agent: &AgentId,
    wanted: &ConnectRequest,
    is_known: bool,
) -> EgressVerdict {
    let place = &wanted.authority;
    if let Host::Literal(_) = place.host {
        let what = format!("`{place}` is an address, and not listed as such");
        return EgressVerdict::No("egress.literal", format!("{what}: use a name, or ask the operator"));
    }
    match unlisted {
        UnlistedPolicy::Ask => EgressVerdict::Unlisted,
        UnlistedPolicy::Deny => {
            let how = if is_known { " for this kind of request" } else { "" };
            let what = format!("`{place}` is not listed for `{agent}`{how}");
            EgressVerdict::No(
                "egress.unlisted",
                format!("{what}: an operator can add it to egress.agents.{agent}"),
            )
        }
    }
}

/// Whether the rule covers this kind of request (tunnel or plain HTTP).
fn speaks(place: &EgressRule, wanted: &ConnectRequest) -> bool {
    match place.speech {
        ConnectionKind::Https | ConnectionKind::Tcp => wanted.is_tunnel(),
        ConnectionKind::Http => !wanted.is_tunnel(),
    }
}

/// Whether the rule covers this method and path.
fn lets(rule: &EgressRule, wanted: &ConnectRequest) -> bool {
    let Some(path) = &wanted.path else { return true };
    let is_method = rule.methods.is_empty() || rule.methods.contains(&wanted.method);
    let is_path = rule.paths.is_empty() || rule.paths.iter().any(|prefix| is_at_or_below(path, prefix));
    is_method && is_path
}

/// Whether a path equals the prefix or lies below it. A path that a server might normalize into another one never matches.
fn is_at_or_below(path: &str, prefix: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_plain =
        !path.contains(['%', '\\', ';']) && !path.split('/').any(|part| part == "." || part == "..");
    let is_plain = is_plain && !path.contains("//");
    is_plain
        && path
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_matches_its_prefix() {
        for (path, prefix, expected) in [
            ("/v1/a", "/v1/", true),
            ("/v1/a?x=%2e", "/v1/", true),
            ("/v1", "/v1", true),
            ("/v1/a", "/v1", true),
            ("/v1", "/v1/", false),
            ("/v10", "/v1", false),
            ("/v1/../admin", "/v1/", false),
            ("/v1/./a", "/v1/", false),
            ("/v1/%2e%2e/admin", "/v1/", false),
            ("/v1/..%2fadmin", "/v1/", false),
            ("/v1//admin", "/v1/", false),
            ("/v1/;/admin", "/v1/", false),
            ("/v1/a\\..\\b", "/v1/", false),
            ("/x", "/", true),
        ] {
            assert_eq!(is_at_or_below(path, prefix), expected, "{path} {prefix}");
        }
    }
}
