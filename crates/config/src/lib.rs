//! The daemon's configuration: `config.json5`, read once and valid before the first port is bound.
//!
//! A text goes through two readings. [`walk`] looks at it without knowing what the keys mean: syntax, duplicates,
//! secrets. [`raw`] then reads the keys, and its values check themselves where they stand, so that every refusal has a
//! line and a column. What comes out is a [`Config`], which the rest of the daemon believes without asking.
//!
//! No secret has a place here, and no key is ignored: a word that means nothing is a mistake someone should hear about.

pub mod edit;
mod egress;
mod error;
mod hooks;
mod json5_validate;
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
use tribune_runtime::AgentId;

use crate::egress_rules::{EgressMode, EgressRule, UnlistedPolicy};
use crate::hook_spec::HookSpec;
use crate::url::{HostPort, SearchEndpoint};

/// Bytes of a configuration file. Every key with a comment takes a hundredth of this.
pub const MAX_CONFIG_BYTES: usize = 256 * 1024;

/// Every key at its default, with what it is for.
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

/// Where and to whom the gateway listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    // INVARIANT: a loopback address.
    pub address: SocketAddr,
    /// `Host` headers that are accepted beside the loopback names, in lowercase.
    pub hosts: Vec<String>,
    /// `Origin` headers that are accepted beside the gateway's own, in lowercase and without a default port.
    pub origins: Vec<String>,
    pub anonymous: Anonymous,
    pub max_connections: usize,
    pub max_message_bytes: usize,
    /// A connection that says nothing for this long is closed.
    pub idle: Duration,
    /// Turns have this long to reach a safe point when the daemon stops.
    pub drain: Duration,
}

/// How long sessions live and how much they may pile up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsConfig {
    /// A session without a turn for this long is closed.
    pub ttl: Duration,
    /// Turns that may wait in one session.
    pub queue: usize,
    pub max_open: usize,
    /// A turn that runs for longer is cancelled.
    pub turn: Duration,
}

/// What boxes may do to the folders they work in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspacesConfig {
    /// Bytes that the changes of one run or command may take on disk.
    pub max_bytes: u64,
    /// Patterns of names that agents and runs do not see.
    pub hide: Vec<String>,
}

/// What is kept of conversations in plain files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptConfig {
    pub enabled: bool,
    /// Of one session's file.
    pub max_bytes: u64,
    /// Of one session's file.
    pub max_turns: u64,
}

/// What the daemon says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub level: LogLevel,
    /// Of one file, before the next is begun.
    pub max_bytes: u64,
    /// Files that are kept.
    pub files: usize,
}

/// What is taken out of everything that is written or sent, beside secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedactConfig {
    pub emails: bool,
    pub phones: bool,
}

/// Where the tools may connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressConfig {
    pub mode: EgressMode,
    // INVARIANT: each with a port.
    pub allow: Vec<HostPort>,
    pub deny: Vec<HostPort>,
    /// What the programs of an agent may connect to from its boxes.
    pub agents: BTreeMap<AgentId, Vec<EgressRule>>,
    pub unlisted: UnlistedPolicy,
}

/// Whether backends are made to show that the gate holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryConfig {
    /// How often; `None`: never, not even before an agent is first used.
    pub every: Option<Duration>,
    /// Profiles whose agents are run though they could not be tried.
    pub untried: Vec<String>,
}

/// Agents of other makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliAgentsConfig {
    /// How many run at once. Each is a tree of processes with hundreds of megabytes.
    pub max_running: usize,
}

/// How the web is searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSearchConfig {
    pub endpoint: Option<SearchEndpoint>,
}

impl Config {
    /// Reads the file at `path`; without one, everything has its default.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        match read_text(path)? {
            Some(text) => Self::parse(&path.to_string_lossy(), &text),
            None => Ok(Self::default()),
        }
    }

    /// Reads a configuration; `file_name` is what messages call it.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, ConfigError> {
        parse_as::<RawConfig>(file_name, text).map(Self::from)
    }
}

/// The text of a file that a person writes, if there is one.
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

/// Reads any text that a person writes: no key twice, no secret, no key that means nothing, and every refusal has its place.
pub fn parse_as<T: serde::de::DeserializeOwned>(file_name: &str, text: &str) -> Result<T, ConfigError> {
    if text.len() > MAX_CONFIG_BYTES {
        return Err(ConfigError::TooLarge { file: file_name.to_owned() });
    }
    json5::from_str::<json5_validate::Walked>(text).map_err(|found| error::in_walk(file_name, &found))?;
    if let Some((position, what)) = json5_validate::in_comments(text) {
        return Err(error::at(file_name, Some(position), what));
    }
    let mut deserializer = json5::Deserializer::from_str(text);
    serde_path_to_error::deserialize::<_, T>(&mut deserializer)
        .map_err(|found| error::in_value(file_name, &found))
}

impl Default for Config {
    fn default() -> Self {
        RawConfig::default().into()
    }
}
