//! What the operator lists as reachable: for the programs in the sandboxes of each agent, and for the web tools.

use crate::url::HostPort;

/// How a place is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionKind {
    /// CONNECT, with TLS inside whose name is the place's.
    Https,
    /// Plain HTTP, whose methods and paths are looked at.
    Http,
    /// CONNECT, with anything inside.
    Tcp,
}

/// A place that may be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRule {
    // INVARIANT: with a port.
    pub at: HostPort,
    pub speech: ConnectionKind,
    /// The methods of plain HTTP; empty: all.
    pub methods: Vec<String>,
    /// Beginnings of the paths of plain HTTP; empty: all.
    pub paths: Vec<String>,
    /// Whether the name may lead into the own network.
    pub private: bool,
}

/// What becomes of a connection to a place that is not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnlistedPolicy {
    #[default]
    Deny,
    /// A person is asked, and the connection waits.
    Ask,
}

/// What may be reached beside the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EgressMode {
    /// Nothing.
    #[default]
    Allowlist,
    /// Whatever is on the public internet.
    Public,
}
