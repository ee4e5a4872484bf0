//! The daemon's configuration: `config.json5`, parsed once and valid before the first port is bound.
//!
//! Parsing has two passes. `first_pass` checks syntax, duplicate keys and secrets without knowing what the keys mean.
//! `raw` then deserializes the keys; each value validates itself during deserialization, so that every error has a line
//! and a column. The result is a [`Config`], which the rest of the daemon uses without further checks.
//!
//! The file holds no secrets, and no key is ignored: an unknown key is an error, because it is most likely a mistake.

pub mod edit;
mod egress;
mod error;
mod first_pass;
mod hooks;
pub mod models;
mod raw;
mod spend;
mod values;

pub mod egress_rules;
pub mod hook_spec;
pub mod net_arg;
#[cfg(test)]
mod tests;
pub mod url;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

pub use error::ConfigError;
pub use models::{ModelsConfig, ProviderConfig, StartupValidation, Timeouts, is_variable};
pub use spend::{AtLimit, SpendConfig, SpendLimits};
pub use values::{Anonymous, LogLevel, Sandbox};

use raw::RawConfig;
use tribune_constitution::json5;
use tribune_runtime::AgentId;

use crate::egress_rules::{EgressMode, EgressRule, UnlistedPolicy};
use crate::hook_spec::HookSpec;
use crate::url::{HostPort, SearchEndpoint};

/// Largest configuration file in bytes. The example, which has every key with a comment, is far smaller.
pub(crate) const MAX_CONFIG_BYTES: usize = 256 * 1024;

/// Every key at its default, with a comment on its purpose.
pub const EXAMPLE: &str = include_str!("example.json5");

/// A valid configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub gateway: GatewayConfig,
    pub sessions: SessionsConfig,
    pub transcript: TranscriptConfig,
    pub log: LogConfig,
    pub redact: RedactConfig,
    pub sandbox: Sandbox,
    pub workspaces: WorkspacesConfig,
    pub egress: EgressConfig,
    pub web_search: WebSearchConfig,
    pub hooks: Vec<HookSpec>,
    pub models: ModelsConfig,
    pub spend: SpendConfig,
    pub canary: CanaryConfig,
    pub cli_agents: CliAgentsConfig,
}

/// Where the gateway listens and which callers it accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    // INVARIANT: a loopback address.
    pub address: SocketAddr,
    /// `Host` headers accepted besides the loopback names, in lowercase.
    pub hosts: Vec<String>,
    /// `Origin` headers accepted besides the gateway's own, in lowercase and without a default port.
    pub origins: Vec<String>,
    pub anonymous: Anonymous,
    pub max_connections: usize,
    pub max_message_bytes: usize,
    /// A connection is closed after this long without traffic.
    pub idle: Duration,
    /// Time that turns have to reach a safe point when the daemon stops.
    pub drain: Duration,
}

/// Lifetime of sessions, and their limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsConfig {
    /// A session is closed after this long without a turn.
    pub ttl: Duration,
    /// Length of the turn queue of one session.
    pub queue: usize,
    pub max_open: usize,
    /// A turn that runs longer than this is cancelled.
    pub turn: Duration,
}

/// Limits of the workspaces that sandboxes see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspacesConfig {
    /// Bytes that the changes of one run or command may use on disk.
    pub max_bytes: u64,
    /// Patterns of names that are hidden from agents and runs.
    pub hide: Vec<String>,
}

/// Plain-text transcripts of conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptConfig {
    pub enabled: bool,
    /// Limit for the file of one session.
    pub max_bytes: u64,
    /// Limit for the file of one session.
    pub max_turns: u64,
}

/// The daemon's own log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub level: LogLevel,
    /// Size at which a file is rotated.
    pub max_bytes: u64,
    /// Number of files kept.
    pub files: usize,
}

/// What is redacted from everything that is written or sent. Secrets always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedactConfig {
    pub emails: bool,
    pub phones: bool,
}

/// Where tools and agents may connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressConfig {
    pub mode: EgressMode,
    // INVARIANT: each entry has a port.
    pub allow: Vec<HostPort>,
    pub deny: Vec<HostPort>,
    /// What the programs in the sandboxes of each agent may connect to.
    pub agents: BTreeMap<AgentId, Vec<EgressRule>>,
    pub unlisted: UnlistedPolicy,
}

/// Canary tests: probes that check whether a backend obeys the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryConfig {
    /// Interval between tests; `None` switches them off, also before the first use of an agent.
    pub every: Option<Duration>,
    /// Profiles whose agents run although they cannot be tested.
    pub untried: Vec<String>,
}

/// CLI agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliAgentsConfig {
    /// Process limit. Each CLI agent is a process tree that uses hundreds of megabytes.
    pub max_running: usize,
}

/// The web search endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSearchConfig {
    pub endpoint: Option<SearchEndpoint>,
}

impl Config {
    /// Loads the file at `path`. A missing file gives the defaults.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        match read_text(path)? {
            Some(text) => Self::parse(&path.to_string_lossy(), &text),
            None => Ok(Self::default()),
        }
    }

    /// Parses a configuration. Error messages call it `file_name`.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ConfigError> {
        parse_as::<RawConfig>(file_name, text).map(Self::from)
    }
}

/// Reads a text file that a person writes; `None` if it does not exist.
pub fn read_text(path: &Path) -> Result<Option<String>, ConfigError> {
    let mut bytes = Vec::new();
    let read = |bytes: &mut Vec<u8>| -> io::Result<()> {
        File::open(path)?.take(MAX_CONFIG_BYTES as u64 + 1).read_to_end(bytes)?;
        Ok(())
    };
    match read(&mut bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ConfigError::Io { path: path.to_owned(), error }),
    }
    let name = path.to_string_lossy();
    if bytes.len() > MAX_CONFIG_BYTES {
        return Err(ConfigError::TooLarge { file: name.into_owned() });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => Err(error::not_utf8(&name, &error.as_bytes()[..error.utf8_error().valid_up_to()])),
    }
}

/// Parses any JSON5 text that a person writes. Rejects duplicate keys, secrets and, if `T` denies them, unknown keys; every
/// error has a line and a column.
pub fn parse_as<T: serde::de::DeserializeOwned>(file_name: &str, text: &str) -> Result<T, ConfigError> {
    if text.len() > MAX_CONFIG_BYTES {
        return Err(ConfigError::TooLarge { file: file_name.to_owned() });
    }
    first_pass::check(file_name, text)?;
    json5::deserialize(text).map_err(|found| error::in_value(file_name, &found))
}

impl Default for Config {
    fn default() -> Self {
        RawConfig::default().into()
    }
}
