//! The connection that a request head asks for.

use serde_json::json;
use tribune_constitution::{EGRESS, LISTED};
use tribune_runtime::ToolCall;

use super::authority::{Authority, Host};
use super::denial::Refusal;
use super::request_head::RequestHead;

const CONNECT: &str = "CONNECT";

/// A connection that a program in a sandbox requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConnectRequest {
    pub(super) authority: Authority,
    pub(super) method: String,
    /// With its query; `None` for a tunnel.
    pub(super) path: Option<String>,
}

impl ConnectRequest {
    /// Derives the connection from a request head.
    pub(super) fn of(head: &RequestHead) -> Result<Self, Refusal> {
        let (authority, path) = if head.method == CONNECT {
            if head.has_body {
                return Err(Refusal::TWO_LENGTHS);
            }
            if !head.behind.is_empty() {
                return Err(Refusal::EARLY_BYTES);
            }
            (Authority::parse(&head.target, None).map_err(|_| Refusal::NOT_A_PLACE)?, None)
        } else {
            let (authority, path) = absolute(&head.target)?;
            (authority, Some(path))
        };
        let default_port = path.is_some().then_some(80).or(Some(authority.port));
        if let Some(host) = &head.host {
            let named = Authority::parse(host, default_port).map_err(|_| Refusal::OTHER_HOST)?;
            if named != authority {
                return Err(Refusal::OTHER_HOST);
            }
        }
        Ok(Self { authority, method: head.method.clone(), path })
    }

    pub(super) const fn is_tunnel(&self) -> bool {
        self.path.is_none()
    }

    /// The server name that the TLS ClientHello must carry; `None` if the host is an address.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.authority.host {
            Host::Name(name) => Some(name),
            Host::Literal(_) | Host::Disguised(_) => None,
        }
    }

    /// The tool call that the constitution judges.
    pub(super) fn call(&self, is_listed: bool, number: u64) -> ToolCall {
        let scheme = if self.is_tunnel() { "https" } else { "http" };
        let path = self.path.as_deref().unwrap_or_default();
        let action = if is_listed { LISTED } else { "unlisted" };
        let input = json!({ "url": format!("{scheme}://{}{path}", self.authority), "method": self.method, "action": action });
        ToolCall { id: format!("egress-{number:016x}"), name: EGRESS.to_owned(), input }
    }
}

/// Splits `http://host[:port]/path` into authority and path.
fn absolute(target: &str) -> Result<(Authority, String), Refusal> {
    let (scheme, rest) = target.split_once("://").ok_or(Refusal::NOT_A_PLACE)?;
    if scheme.eq_ignore_ascii_case("https") {
        return Err(Refusal::NO_TLS_HERE);
    }
    if !scheme.eq_ignore_ascii_case("http") || !target.is_ascii() || target.contains('#') {
        return Err(Refusal::NOT_A_PLACE);
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = Authority::parse(authority, Some(80)).map_err(|_| Refusal::NOT_A_PLACE)?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((authority, path))
}
