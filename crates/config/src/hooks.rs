//! The `hooks` section.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use serde::de::Deserializer;

use super::hook_spec::{HookIsolation, HookPoint, HookSpec, HookTransport};
use super::values::{Bounded, FromText, List, TextVisitor, Word, Words, shown};

/// Default timeout of a hook in milliseconds.
const DEFAULT_TIMEOUT: u64 = 5_000;

/// Longest argument in bytes.
const MAX_ARGUMENT_BYTES: usize = 4096;

impl Words for HookPoint {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("before_tool_call", Self::BeforeToolCall),
        ("after_tool_call", Self::AfterToolCall),
        ("tool_result_persist", Self::ToolResultPersist),
        ("message_received", Self::MessageReceived),
        ("gateway_start", Self::GatewayStart),
        ("before_agent_start", Self::BeforeAgentStart),
    ];
}

/// A hook after the checks that involve several members.
#[derive(Debug, Deserialize)]
#[serde(try_from = "RawHook")]
pub(super) struct OneHook(pub(super) HookSpec);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawHook {
    on: Word<HookPoint>,
    command: Option<List<Argument>>,
    url: Option<Local>,
    /// Whether the program runs in the daemon's sandbox.
    sandbox: Option<Word<SandboxSwitch>>,
    /// What the program may read there besides the system and itself.
    reads: Option<List<Argument>>,
    timeout_ms: Option<Bounded<1, 60_000>>,
}

/// The values of a hook's `sandbox` key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SandboxSwitch {
    On,
    Off,
}

impl Words for SandboxSwitch {
    const WORDS: &'static [(&'static str, Self)] = &[("on", Self::On), ("off", Self::Off)];
}

#[derive(Debug)]
struct Argument(String);

/// A URL on this machine.
#[derive(Debug)]
struct Local(Url);

impl TryFrom<RawHook> for OneHook {
    type Error = String;

    fn try_from(raw: RawHook) -> Result<Self, String> {
        let has_isolation = raw.sandbox.is_some() || raw.reads.is_some();
        let reads: Vec<PathBuf> = raw
            .reads
            .map(|reads| reads.0.into_iter().map(|path| path.0.into()).collect())
            .unwrap_or_default();
        if reads.iter().any(|path| !path.is_absolute()) {
            return Err("has a path in `reads` that is not absolute: begin it with a slash".to_owned());
        }
        if let Some(path) = reads.iter().find(|path| tribune_contract::is_system_path(path)) {
            return Err(format!(
                "has `{}` in `reads`, which belongs to the running system: name a folder outside /proc, /sys, /dev and /run",
                path.display()
            ));
        }
        let bounds = match raw.sandbox.map(|word| word.0) {
            Some(SandboxSwitch::Off) if !reads.is_empty() => {
                return Err(
                    "has `reads` and `sandbox: \"off\"`, without which it can read everything: remove one of them".to_owned()
                );
            }
            Some(SandboxSwitch::Off) => HookIsolation::None,
            Some(SandboxSwitch::On) | None => HookIsolation::Sandbox { reads },
        };
        let reach = match (raw.command, raw.url) {
            (Some(command), None) => {
                let command: Vec<String> = command.0.into_iter().map(|argument| argument.0).collect();
                if !command.first().is_some_and(|program| program.starts_with('/')) {
                    return Err("has a `command` that does not begin with an absolute path: write it like \
                                [\"/usr/local/bin/check\", \"--strict\"]"
                        .to_owned());
                }
                HookTransport::Command(command, bounds)
            }
            (None, Some(_)) if has_isolation => {
                return Err(
                    "has a `url` and `sandbox` or `reads`, which apply to programs only: remove them"
                        .to_owned(),
                );
            }
            (None, Some(url)) => HookTransport::Url(url.0),
            _ => return Err("needs either `command` or `url`: add exactly one of them".to_owned()),
        };
        let timeout = Duration::from_millis(raw.timeout_ms.map_or(DEFAULT_TIMEOUT, |bounded| bounded.0));
        Ok(Self(HookSpec { on: raw.on.0, reach, timeout }))
    }
}

impl FromText for Argument {
    fn from_text(text: &str) -> Result<Self, String> {
        if text.len() > MAX_ARGUMENT_BYTES || text.contains('\0') {
            return Err(format!("has more than {MAX_ARGUMENT_BYTES} bytes, or a zero byte: shorten it"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromText for Local {
    fn from_text(text: &str) -> Result<Self, String> {
        let is_local = |url: &Url| {
            let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let is_loopback = host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
            url.scheme() == "http" && is_loopback && url.username().is_empty() && url.password().is_none()
        };
        Url::parse(text).ok().filter(is_local).map(Self).ok_or_else(|| {
            format!(
                "is {}, which is not an address on this machine: write it like \"http://127.0.0.1:9000/hook\"",
                shown(text)
            )
        })
    }
}

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Local {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}
