//! Egress rules of the operator: for the programs in the sandboxes of each agent, and for the web tools.

use crate::url::HostPort;

/// The kind of connection that a rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionKind {
    /// CONNECT that carries TLS, with the rule's host as server name.
    Https,
    /// Plain HTTP, whose methods and paths are checked.
    Http,
    /// CONNECT that carries any protocol.
    Tcp,
}

/// A host and port that may be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRule {
    // INVARIANT: has a port.
    pub at: HostPort,
    pub speech: ConnectionKind,
    /// Allowed methods of plain HTTP; empty: all.
    pub methods: Vec<String>,
    /// Allowed path prefixes of plain HTTP; empty: all.
    pub paths: Vec<String>,
    /// Whether the name may resolve to a private address.
    pub private: bool,
}

/// How a connection to an unlisted host is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnlistedPolicy {
    #[default]
    Deny,
    /// The connection waits until a person decides.
    Ask,
}

/// What may be reached besides the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EgressMode {
    /// Nothing.
    #[default]
    Allowlist,
    /// Everything on the public internet.
    Public,
}
