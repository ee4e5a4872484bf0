//! What the operator lists for each agent: the places that programs in its boxes may connect to, and how.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tribune_config::egress_rules::{ConnectionKind, EgressRule, UnlistedPolicy};
use tribune_config::url::HostPort;
use tribune_constitution::Labels;
use tribune_runtime::AgentId;

use super::authority::Host;
use super::connect_request::ConnectRequest;
use crate::net::{AddressClass, AddressScope};

/// The lists of a house.
#[derive(Debug, Clone, Default)]
pub struct EgressRules {
    pub agents: BTreeMap<AgentId, Vec<EgressRule>>,
    /// What is never reached, whatever is listed.
    pub deny: Vec<HostPort>,
    pub unlisted: UnlistedPolicy,
}

/// What one session has beside the lists of its agent, for as long as its sockets are open. Only an operator gives one places.
#[derive(Debug, Clone, Default)]
pub struct AllowedEgress {
    pub places: Vec<EgressRule>,
    /// What becomes of other places, if not what the house says.
    pub unlisted: Option<UnlistedPolicy>,
    /// The labels of what is in the box, where the log does not have them yet: what a command reads is its session's only when
    /// the command is over, and by then it could be gone.
    pub carries: Option<Labels>,
}

/// What the lists say of a wanted connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EgressVerdict {
    /// It is listed, may lead this far, and is spoken to like this.
    Listed(AddressScope, ConnectionKind),
    /// A person may be asked.
    Unlisted,
    /// It is not to be made: by which rule, and why.
    No(&'static str, String),
}

impl EgressRules {
    /// What the lists say, before anyone is asked about a name.
    pub(super) fn look(
        &self,
        agent: &AgentId,
        outlets: &AllowedEgress,
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
        let listed = self.agents.get(agent).into_iter().flatten().chain(&outlets.places);
        let here: Vec<&EgressRule> = listed.filter(|place| place.at.is(&name, port)).collect();
        let mut spoken = here.iter().filter(|place| speaks(place, wanted)).peekable();
        if spoken.peek().is_none() {
            let unlisted = outlets.unlisted.unwrap_or(self.unlisted);
            return unlisted_said(unlisted, agent, wanted, !here.is_empty());
        }
        match spoken.find(|place| lets(place, wanted)) {
            Some(place) => {
                let reach = match host {
                    Host::Literal(_) => AddressScope::Literal,
                    Host::Name(_) | Host::Disguised(_) if place.private => AddressScope::Inside,
                    Host::Name(_) | Host::Disguised(_) => AddressScope::Public,
                };
                EgressVerdict::Listed(reach, place.speech)
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

    /// Whether an address that a name led to may be connected to. `is_own` tells this machine's own addresses.
    pub(super) fn lets(
        &self,
        reach: AddressScope,
        address: IpAddr,
        port: u16,
        is_own: impl Fn(IpAddr) -> bool,
    ) -> bool {
        !self.deny.iter().any(|denied| denied.is_at(address, port))
            && reach.covers(AddressClass::of(address))
            && (reach.covers(AddressClass::Inside) || !is_own(address))
    }
}

/// What this says of a connection to a place that is on no list, or not for this kind of request.
fn unlisted_said(
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

/// Whether the place is spoken to in this way.
fn speaks(place: &EgressRule, wanted: &ConnectRequest) -> bool {
    match place.speech {
        ConnectionKind::Https | ConnectionKind::Tcp => wanted.is_tunnel(),
        ConnectionKind::Http => !wanted.is_tunnel(),
    }
}

/// Whether exactly this may be asked there.
fn lets(rule: &EgressRule, wanted: &ConnectRequest) -> bool {
    let Some(path) = &wanted.path else { return true };
    let is_method = rule.methods.is_empty() || rule.methods.contains(&wanted.method);
    let is_path = rule.paths.is_empty() || rule.paths.iter().any(|beginning| begins(path, beginning));
    is_method && is_path
}

/// Whether a path is the beginning itself or lies below it. One that a server might clean up into another is below nothing.
fn begins(path: &str, beginning: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_plain =
        !path.contains(['%', '\\', ';']) && !path.split('/').any(|part| part == "." || part == "..");
    let is_plain = is_plain && !path.contains("//");
    is_plain
        && path
            .strip_prefix(beginning)
            .is_some_and(|rest| rest.is_empty() || beginning.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_its_beginning() {
        for (path, beginning, expected) in [
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
            assert_eq!(begins(path, beginning), expected, "{path} {beginning}");
        }
    }
}
