//! A tool's manifest: what the tool can do, how much trust its input needs, and how much its output has.
//!
//! The built-in manifests are part of the kernel. An operator can add manifests for other tools, and can make a
//! built-in one stricter but not looser.

mod builtin_manifests;
pub(crate) mod tool_groups;

use serde::{Deserialize, Serialize};

use crate::json5::{self, TextError};
use crate::provenance::ArgumentUse;
use crate::text::sanitize;
use crate::trust::Trust;

/// Bytes of a manifest file: seven short keys and room for comments.
pub const MAX_MANIFEST_BYTES: usize = 16 * 1024;

/// Manifests of one law: more tools than a model can be told about.
pub const MAX_MANIFESTS: usize = 512;

/// Bytes of a tool's id: the limit of model providers for the names of tools.
pub const MAX_ID_BYTES: usize = 64;

/// Bytes of a tool's display name.
const MAX_NAME_BYTES: usize = 128;

/// Something that a tool can do to the world or learn from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Capability {
    #[serde(rename = "fs:read")]
    FsRead,
    #[serde(rename = "fs:write")]
    FsWrite,
    #[serde(rename = "proc:exec")]
    ProcExec,
    #[serde(rename = "net:http")]
    NetHttp,
    #[serde(rename = "net:https")]
    NetHttps,
    #[serde(rename = "message:send")]
    MessageSend,
    #[serde(rename = "message:mail")]
    MessageMail,
    #[serde(rename = "memory:read")]
    MemoryRead,
    #[serde(rename = "memory:write")]
    MemoryWrite,
    #[serde(rename = "agent:spawn")]
    AgentSpawn,
    #[serde(rename = "system:admin")]
    SystemAdmin,
    #[serde(rename = "system:schedule")]
    SystemSchedule,
    #[serde(rename = "device:control")]
    DeviceControl,
}

impl Capability {
    /// Whether its arguments are instructions.
    const fn takes_orders(self) -> bool {
        match self {
            Self::ProcExec
            | Self::AgentSpawn
            | Self::SystemAdmin
            | Self::SystemSchedule
            | Self::DeviceControl => true,
            Self::FsRead
            | Self::FsWrite
            | Self::NetHttp
            | Self::NetHttps
            | Self::MessageSend
            | Self::MessageMail
            | Self::MemoryRead
            | Self::MemoryWrite => false,
        }
    }

    /// Whether data can leave through it. A written file is a way out only outside the workspace, which depends on
    /// the call.
    const fn is_way_out(self) -> bool {
        match self {
            Self::ProcExec
            | Self::NetHttp
            | Self::NetHttps
            | Self::MessageSend
            | Self::MessageMail
            | Self::AgentSpawn
            | Self::SystemAdmin
            | Self::SystemSchedule
            | Self::DeviceControl => true,
            Self::FsRead | Self::FsWrite | Self::MemoryRead | Self::MemoryWrite => false,
        }
    }

    const fn reads_private(self) -> bool {
        match self {
            Self::FsRead | Self::ProcExec | Self::MemoryRead | Self::DeviceControl => true,
            Self::FsWrite
            | Self::NetHttp
            | Self::NetHttps
            | Self::MessageSend
            | Self::MessageMail
            | Self::MemoryWrite
            | Self::AgentSpawn
            | Self::SystemAdmin
            | Self::SystemSchedule => false,
        }
    }
}

/// How much damage a wrong call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    Low,
    Medium,
    High,
    Critical,
}

impl Risk {
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// What a call leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolEffect {
    /// Nothing.
    ReadOnly,
    /// Something inside of this instance that can be undone.
    DraftOnly,
    /// Something outside, or something that cannot be undone: a person approves it.
    #[default]
    SideEffect,
}

impl ToolEffect {
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::DraftOnly, Self::SideEffect];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::DraftOnly => "draft_only",
            Self::SideEffect => "side_effect",
        }
    }
}

/// What is known of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ToolManifest {
    /// The tool's name in calls and mandates.
    pub id: String,
    /// The tool's name for people.
    pub name: String,
    pub capabilities: Vec<Capability>,
    pub risk_level: Risk,
    /// The least trust of the input that may call it without a person.
    pub min_input_trust: Trust,
    /// The highest trust of its output.
    pub output_trust: Trust,
    /// If the manifest does not say, the strictest.
    #[serde(default)]
    pub effect: ToolEffect,
}

impl ToolManifest {
    /// Parses the manifest of the tool `id`; `file` is its name in messages. The error holds every key that cannot
    /// be read, or else the first value that is not allowed.
    pub fn parse(file: &str, id: &str, text: &str) -> Result<Self, Vec<TextError>> {
        let read: Result<Self, _> = json5::read(file, text, MAX_MANIFEST_BYTES);
        let manifest = read.map_err(|failure| failure.errors)?;
        let refused =
            |path: &str, message: String| Err(vec![json5::error_at_path(file, text, path, message)]);
        if !is_tool_name(&manifest.id) {
            return refused(
                "id",
                format!(
                    "is `{}`, which cannot name a tool: use letters, digits, `_` and `-`, at most {MAX_ID_BYTES}",
                    sanitize(&manifest.id)
                ),
            );
        }
        if tool_groups::is_group(&manifest.id) {
            return refused("id", "is the name of a group of tools in rules: choose another".to_owned());
        }
        if manifest.id != id {
            return refused(
                "id",
                format!(
                    "is `{}`, but the file is named for `{}`: rename one of them",
                    manifest.id,
                    sanitize(id)
                ),
            );
        }
        let name = manifest.name.trim();
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
            return refused(
                "name",
                format!("is not a display name: write one line of at most {MAX_NAME_BYTES} bytes"),
            );
        }
        if let Some(own) = Self::built_in(id)
            && let Some((path, bound)) = manifest.looser_than(&own)
        {
            return refused(
                path,
                format!(
                    "is looser than the built-in manifest of `{id}`, which has {bound}: keep it at least as strict"
                ),
            );
        }
        Ok(manifest)
    }

    /// Whether data can leave through a call. `outside`: the call names a path outside the workspace.
    pub fn is_way_out(&self, outside: bool) -> bool {
        self.capabilities
            .iter()
            .any(|capability| capability.is_way_out() || (outside && *capability == Capability::FsWrite))
    }

    /// How the tool uses its arguments.
    pub fn argument_use(&self) -> ArgumentUse {
        if self.capabilities.iter().any(|capability| capability.takes_orders()) {
            ArgumentUse::Instructions
        } else {
            ArgumentUse::Names
        }
    }

    /// Whether the output may contain private data.
    pub fn reads_private(&self) -> bool {
        self.capabilities.iter().any(|capability| capability.reads_private())
    }

    /// The first key in which this manifest is looser than `bound`, with the value that `bound` has.
    fn looser_than(&self, bound: &Self) -> Option<(&'static str, String)> {
        let all = bound.capabilities.iter().all(|capability| self.capabilities.contains(capability));
        let capabilities = || {
            let listed = serde_json::to_string(&bound.capabilities).unwrap_or_default();
            ("capabilities", listed)
        };
        if !all {
            return Some(capabilities());
        }
        if self.risk_level < bound.risk_level {
            return Some(("riskLevel", format!("`{}`", bound.risk_level.as_str())));
        }
        if self.min_input_trust < bound.min_input_trust {
            return Some(("minInputTrust", format!("`{}`", bound.min_input_trust.as_str())));
        }
        if self.output_trust > bound.output_trust {
            return Some(("outputTrust", format!("`{}`", bound.output_trust.as_str())));
        }
        (self.effect < bound.effect).then(|| ("effect", format!("`{}`", bound.effect.as_str())))
    }
}

pub(crate) fn is_tool_name(name: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_ID_BYTES).contains(&name.len()) && name.bytes().all(word)
}

#[cfg(test)]
mod tests;
