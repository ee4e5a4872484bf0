//! The specification of a hook: a program or a local URL that is called at a certain point of an agent's work.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;

/// When a hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPoint {
    /// May object, or narrow the parameters.
    BeforeToolCall,
    /// Notification only.
    AfterToolCall,
    /// Notification only.
    ToolResultPersist,
    /// May lower the trust level.
    MessageReceived,
    /// Notification only.
    GatewayStart,
    /// May reject the turn.
    BeforeAgentStart,
}

/// One hook of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSpec {
    pub on: HookPoint,
    pub reach: HookTransport,
    /// Longest time for one call.
    pub timeout: Duration,
}

/// How a hook is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookTransport {
    /// A program with its arguments.
    // INVARIANT: not empty, and the first element is an absolute path.
    Command(Vec<String>, HookIsolation),
    // INVARIANT: a loopback address.
    Url(Url),
}

/// The isolation of a hook program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookIsolation {
    /// The daemon's sandbox, if it has one. `reads` are the paths that the program may read besides the system and itself.
    Sandbox { reads: Vec<PathBuf> },
    /// None, because the operator configured it so.
    None,
}

impl HookTransport {
    /// The name of the hook in rules and logs: the file name of the program, or host and port.
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
