//! A hook: a program or a local address that is called at a point of an agent's work.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;

/// When a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPoint {
    /// May object, or narrow the parameters.
    BeforeToolCall,
    /// Is told.
    AfterToolCall,
    /// Is told.
    ToolResultPersist,
    /// May lower the trust.
    MessageReceived,
    /// Is told.
    GatewayStart,
    /// May refuse the turn.
    BeforeAgentStart,
}

/// One hook, as the configuration names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSpec {
    pub on: HookPoint,
    pub reach: HookTransport,
    /// How long it may take.
    pub timeout: Duration,
}

/// Where a hook is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookTransport {
    /// A program with its arguments.
    // INVARIANT: at least one, and the first is an absolute path.
    Command(Vec<String>, HookIsolation),
    // INVARIANT: a loopback address.
    Url(Url),
}

/// What a program is held by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookIsolation {
    /// The daemon's sandbox, if it has one. `reads` are paths that it sees beside the system and itself.
    Sandbox { reads: Vec<PathBuf> },
    /// Nothing: the operator says so.
    None,
}

impl HookTransport {
    /// What rules and logs call it.
    pub fn name(&self) -> String {
        match self {
            Self::Command(command, _) => {
                let program = command.first().map(Path::new).and_then(Path::file_name);
                program.unwrap_or_default().to_string_lossy().into_owned()
            }
            Self::Url(url) => {
                let port = url.port_or_known_default().unwrap_or_default();
                format!("{}:{port}", url.host_str().unwrap_or_default())
            }
        }
    }
}
