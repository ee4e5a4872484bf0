//! The keys as they are in the file, each with its default and its bounds.

use std::time::Duration;

use serde::Deserialize;

use super::egress::Agents;
use super::hooks::OneHook;
use super::models::RawModels;
use super::spend::RawSpend;
use super::values::{
    Address, AllowedHost, Anonymous, Bounded, DeniedHost, Endpoint, Every, HiddenName, Host, List, LogLevel,
    Origin, ProfileName, Sandbox, Word,
};
use super::{
    CanaryConfig, CliAgentsConfig, Config, EgressConfig, GatewayConfig, LogConfig, RedactConfig,
    SessionsConfig, TranscriptConfig, WebSearchConfig, WorkspacesConfig,
};
use crate::egress_rules::{EgressMode, UnlistedPolicy};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawConfig {
    gateway: RawGateway,
    sessions: RawSessions,
    transcript: RawTranscript,
    log: RawLog,
    redact: RawRedact,
    sandbox: Word<Sandbox>,
    workspaces: RawWorkspaces,
    egress: RawEgress,
    web_search: RawWebSearch,
    hooks: List<OneHook>,
    models: RawModels,
    spend: RawSpend,
    canary: RawCanary,
    cli_agents: RawCliAgents,
}

impl Default for RawConfig {
    fn default() -> Self {
        Self {
            gateway: RawGateway::default(),
            sessions: RawSessions::default(),
            transcript: RawTranscript::default(),
            log: RawLog::default(),
            redact: RawRedact::default(),
            sandbox: Word(Sandbox::Full),
            workspaces: RawWorkspaces::default(),
            egress: RawEgress::default(),
            web_search: RawWebSearch::default(),
            hooks: List::default(),
            models: RawModels::default(),
            spend: RawSpend::default(),
            canary: RawCanary::default(),
            cli_agents: RawCliAgents::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawGateway {
    address: Address,
    hosts: List<Host>,
    origins: List<Origin>,
    anonymous: Word<Anonymous>,
    max_connections: Bounded<1, 65_536>,
    max_message_bytes: Bounded<KIB, { 64 * MIB }>,
    idle_seconds: Bounded<5, 86_400>,
    drain_seconds: Bounded<0, 600>,
}

impl Default for RawGateway {
    fn default() -> Self {
        Self {
            address: Address::default(),
            hosts: List::default(),
            origins: List::default(),
            anonymous: Word(Anonymous::Deny),
            max_connections: Bounded(4096),
            max_message_bytes: Bounded(8 * MIB),
            idle_seconds: Bounded(300),
            drain_seconds: Bounded(10),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawSessions {
    ttl_minutes: Bounded<1, 43_200>,
    queue: Bounded<1, 1024>,
    max_open: Bounded<1, 1_000_000>,
    turn_minutes: Bounded<1, 1440>,
}

impl Default for RawSessions {
    fn default() -> Self {
        Self {
            ttl_minutes: Bounded(30),
            queue: Bounded(8),
            max_open: Bounded(20_000),
            turn_minutes: Bounded(60),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawTranscript {
    enabled: bool,
    max_bytes: Bounded<KIB, GIB>,
    max_turns: Bounded<1, 1_000_000>,
}

impl Default for RawTranscript {
    fn default() -> Self {
        Self { enabled: true, max_bytes: Bounded(MIB), max_turns: Bounded(1000) }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawLog {
    level: Word<LogLevel>,
    max_bytes: Bounded<{ 64 * KIB }, GIB>,
    files: Bounded<1, 100>,
}

impl Default for RawLog {
    fn default() -> Self {
        Self { level: Word(LogLevel::Info), max_bytes: Bounded(8 * MIB), files: Bounded(4) }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawRedact {
    emails: bool,
    phones: bool,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawWorkspaces {
    max_bytes: Bounded<MIB, { 1024 * GIB }>,
    hide: List<HiddenName>,
}

impl Default for RawWorkspaces {
    fn default() -> Self {
        Self { max_bytes: Bounded(4 * GIB), hide: List::default() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawEgress {
    mode: Word<EgressMode>,
    allow: List<AllowedHost>,
    deny: List<DeniedHost>,
    agents: Agents,
    unlisted: Word<UnlistedPolicy>,
}

impl Default for RawEgress {
    fn default() -> Self {
        Self {
            mode: Word(EgressMode::Allowlist),
            allow: List::default(),
            deny: List::default(),
            agents: Agents::default(),
            unlisted: Word(UnlistedPolicy::Deny),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawWebSearch {
    endpoint: Option<Endpoint>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawCanary {
    every: Every,
    untried: List<ProfileName>,
}

impl Default for RawCanary {
    fn default() -> Self {
        Self { every: Every(Some(Duration::from_hours(12))), untried: List::default() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawCliAgents {
    max_running: Bounded<1, 4096>,
}

impl Default for RawCliAgents {
    fn default() -> Self {
        Self { max_running: Bounded(32) }
    }
}

impl From<RawConfig> for Config {
    fn from(raw: RawConfig) -> Self {
        let RawConfig {
            gateway,
            sessions,
            transcript,
            log,
            redact,
            sandbox,
            workspaces,
            egress,
            web_search,
            hooks,
            models,
            spend,
            canary,
            cli_agents,
        } = raw;
        Self {
            gateway: GatewayConfig {
                address: gateway.address.0,
                hosts: gateway.hosts.0.into_iter().map(|host| host.0).collect(),
                origins: gateway.origins.0.into_iter().map(|origin| origin.0).collect(),
                anonymous: gateway.anonymous.0,
                max_connections: gateway.max_connections.count(),
                max_message_bytes: gateway.max_message_bytes.count(),
                idle: Duration::from_secs(gateway.idle_seconds.0),
                drain: Duration::from_secs(gateway.drain_seconds.0),
            },
            sessions: SessionsConfig {
                ttl: Duration::from_secs(60 * sessions.ttl_minutes.0),
                queue: sessions.queue.count(),
                max_open: sessions.max_open.count(),
                turn: Duration::from_secs(60 * sessions.turn_minutes.0),
            },
            transcript: TranscriptConfig {
                enabled: transcript.enabled,
                max_bytes: transcript.max_bytes.0,
                max_turns: transcript.max_turns.0,
            },
            log: LogConfig { level: log.level.0, max_bytes: log.max_bytes.0, files: log.files.count() },
            redact: RedactConfig { emails: redact.emails, phones: redact.phones },
            sandbox: sandbox.0,
            workspaces: WorkspacesConfig {
                max_bytes: workspaces.max_bytes.0,
                hide: workspaces.hide.0.into_iter().map(|name| name.0).collect(),
            },
            egress: EgressConfig {
                mode: egress.mode.0,
                allow: egress.allow.0.into_iter().map(|host| host.0).collect(),
                deny: egress.deny.0.into_iter().map(|host| host.0).collect(),
                agents: egress.agents.0,
                unlisted: egress.unlisted.0,
            },
            web_search: WebSearchConfig { endpoint: web_search.endpoint.map(|endpoint| endpoint.0) },
            hooks: hooks.0.into_iter().map(|hook| hook.0).collect(),
            models: models.into(),
            spend: spend.into(),
            canary: CanaryConfig {
                every: canary.every.0,
                untried: canary.untried.0.into_iter().map(|name| name.0).collect(),
            },
            cli_agents: CliAgentsConfig { max_running: cli_agents.max_running.count() },
        }
    }
}
