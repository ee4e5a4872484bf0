//! The operator's settings of the law: `policy/law.json5`. Without the file every setting has its default.
//!
//! No key is ignored, and every name of a tool or class must exist: an unknown word is an error that the operator
//! should see before the setting is needed.

mod exception;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use exception::{Exception, RateLimit};

use crate::json5::{self, MAX_ERRORS, ReadFailure, Repairs, TextError};
use crate::manifest::Risk;
use crate::suggest_name::suggestion;
use crate::text::sanitize;

/// The file of the settings in a home, also in messages.
pub const SETTINGS_FILE: &str = "policy/law.json5";

/// Bytes of the settings. All keys, each with a comment, take a hundredth of this.
pub const MAX_SETTINGS_BYTES: usize = 256 * 1024;

/// Exceptions of one law: every call of a tool checks all of its exceptions.
pub const MAX_EXCEPTIONS: usize = 64;

/// The class of a channel that `channels.classes` does not name.
pub const UNCLASSIFIED: &str = "unclassified";

/// Every tool, in an allowlist.
pub const ANY_TOOL: &str = "*";

/// How the law enforces its decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnforcementMode {
    /// Decisions are enforced.
    #[default]
    Enforce,
    /// Decisions are recorded, and the call is allowed.
    Audit,
    /// Only the floor decides: the mandate, the hooks and the stop switch.
    Off,
}

impl EnforcementMode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Audit => "audit",
            Self::Off => "off",
        }
    }
}

/// The decision about a call of a main session whose input has too little trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BelowTrust {
    /// A person may allow that one call.
    #[default]
    Ask,
    Deny,
}

/// The checked settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    pub mode: EnforcementMode,
    /// The modes of single tools.
    pub overrides: BTreeMap<String, EnforcementMode>,
    /// Whether tools without a manifest may be called.
    pub default_allow: bool,
    pub below_trust: BelowTrust,
    pub channels: ChannelSettings,
    /// For each class of channels, the highest risk that its sessions may take. Empty: any.
    pub risk_allow: BTreeMap<String, Risk>,
    pub exceptions: Vec<Exception>,
    pub approvals: ApprovalSettings,
}

/// The classes of channels, and the tools that each may call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ChannelSettings {
    /// The class of each channel, such as `telegram: "external"`.
    pub classes: BTreeMap<String, String>,
    /// For each class, the tools that its sessions may call; absent: every class may call every tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<BTreeMap<String, BTreeSet<String>>>,
}

/// Who approves, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ApprovalSettings {
    /// The time after which a pending request is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_minutes: Option<u64>,
    /// For each tool, or `*` for all others, the roles that may approve it.
    pub roles: BTreeMap<String, BTreeSet<String>>,
    /// The tools whose calls two people must approve.
    pub two_person: BTreeSet<String>,
}

/// A value of the settings that is wrong.
#[derive(Debug)]
struct SettingFault {
    /// The path of the value. The faults of an exception begin without the path of the exception.
    path: String,
    /// The rest of a sentence that begins with the path.
    message: String,
}

impl ApprovalSettings {
    /// The longest that a request may be pending: a month.
    const MAX_EXPIRES_MINUTES: u64 = 43_200;

    /// The roles that may approve a call of `tool`; empty: every approver.
    pub fn roles_for(&self, tool: &str) -> BTreeSet<&str> {
        let roles = self.roles.get(tool).or_else(|| self.roles.get(ANY_TOOL));
        roles.into_iter().flatten().map(String::as_str).collect()
    }
}

impl Settings {
    /// Reads the settings; `tools` are the tools that exist. The error holds everything that is wrong, in the order of the
    /// text.
    pub fn parse(text: &str, tools: &BTreeSet<&str>) -> Result<Self, Vec<TextError>> {
        let read: Result<Self, _> = json5::read(SETTINGS_FILE, text, MAX_SETTINGS_BYTES);
        let (faults, mut errors) = match &read {
            Ok(settings) => (settings.faults(tools, &Repairs::default()), Vec::new()),
            Err(ReadFailure { errors, repaired }) => {
                let faults = repaired.as_ref().map(|(settings, repairs)| settings.faults(tools, repairs));
                (faults.unwrap_or_default(), errors.clone())
            }
        };
        let error =
            |fault: SettingFault| json5::error_at_path(SETTINGS_FILE, text, &fault.path, fault.message);
        errors.extend(faults.into_iter().take(MAX_ERRORS).map(error));
        errors.sort_by_key(|error| (error.line, error.column));
        match read {
            Ok(settings) if errors.is_empty() => Ok(settings),
            _ => Err(errors),
        }
    }

    /// The mode of a tool.
    pub fn mode_of(&self, tool: &str) -> EnforcementMode {
        self.overrides.get(tool).copied().unwrap_or(self.mode)
    }

    /// The class of a channel.
    pub fn class_of(&self, channel: &str) -> &str {
        self.channels.classes.get(channel).map_or(UNCLASSIFIED, String::as_str)
    }

    /// The exceptions for a tool. The facts must count their uses.
    pub fn exceptions_for(&self, tool: &str) -> impl Iterator<Item = &Exception> {
        self.exceptions.iter().filter(move |exception| exception.tool == tool)
    }

    /// Names that do not exist and values out of their bounds. Values that a repair affects are not reported.
    fn faults(&self, tools: &BTreeSet<&str>, repairs: &Repairs) -> Vec<SettingFault> {
        let tool = |path: String, name: &str| {
            let is_repaired = name.is_empty() && repairs.affect(&path);
            let names: Vec<&str> = tools.iter().copied().collect();
            let message =
                || format!("names no tool (`{}`): {}", sanitize(name), suggestion(name, &names, "tools"));
            (!tools.contains(name) && !is_repaired).then(|| SettingFault { path, message: message() })
        };
        let mut classes: BTreeSet<&str> = self.channels.classes.values().map(String::as_str).collect();
        classes.insert(UNCLASSIFIED);
        let class = |path: String, name: &str| {
            let names: Vec<&str> = classes.iter().copied().collect();
            let message =
                || format!("names no class of `channels.classes`: {}", suggestion(name, &names, "classes"));
            let are_known = !repairs.affect("channels.classes");
            (!classes.contains(name) && are_known).then(|| SettingFault { path, message: message() })
        };
        let mut faults = Vec::new();
        faults.extend(self.overrides.keys().filter_map(|name| tool(format!("overrides.{name}"), name)));
        for (name, listed) in self.channels.allow.iter().flatten() {
            let path = || format!("channels.allow.{name}");
            faults.extend(class(path(), name));
            faults.extend(listed.iter().filter(|own| *own != ANY_TOOL).filter_map(|own| tool(path(), own)));
        }
        faults.extend(self.risk_allow.keys().filter_map(|name| class(format!("riskAllow.{name}"), name)));
        faults.extend(self.exception_faults(tool, repairs));
        if let Some(minutes) = self.approvals.expires_minutes
            && !(1..=ApprovalSettings::MAX_EXPIRES_MINUTES).contains(&minutes)
        {
            let message = format!(
                "is {minutes}: use a whole number from 1 to {}",
                ApprovalSettings::MAX_EXPIRES_MINUTES
            );
            faults.push(SettingFault { path: "approvals.expiresMinutes".to_owned(), message });
        }
        let roles = self.approvals.roles.keys().filter(|name| *name != ANY_TOOL);
        faults.extend(roles.filter_map(|name| tool(format!("approvals.roles.{name}"), name)));
        let two = self.approvals.two_person.iter();
        faults.extend(two.filter_map(|name| tool("approvals.twoPerson".to_owned(), name)));
        faults
    }

    fn exception_faults(
        &self,
        tool: impl Fn(String, &str) -> Option<SettingFault>,
        repairs: &Repairs,
    ) -> Vec<SettingFault> {
        let mut faults = Vec::new();
        if self.exceptions.len() > MAX_EXCEPTIONS {
            let message = format!("has more than {MAX_EXCEPTIONS} entries: remove some");
            faults.push(SettingFault { path: "exceptions".to_owned(), message });
        }
        let mut ids = BTreeSet::new();
        for (index, exception) in self.exceptions.iter().enumerate().take(MAX_EXCEPTIONS) {
            let at = |key: &str| format!("exceptions[{index}].{key}");
            faults.extend(tool(at("tool"), &exception.tool));
            let mut own = exception.faults();
            if !ids.insert(exception.id.as_str()) {
                let message = format!("is given twice (`{}`): rename one of them", exception.id);
                own.push(SettingFault { path: "id".to_owned(), message });
            }
            own.retain(|fault| {
                // If the templates were repaired, it is unknown whether the text has any.
                let depends_on = if fault.path == "minInputTrust" { "templates" } else { &fault.path };
                !repairs.affect(&at(&fault.path)) && !repairs.affect(&at(depends_on))
            });
            let placed = |fault: SettingFault| SettingFault { path: at(&fault.path), ..fault };
            faults.extend(own.into_iter().map(placed));
        }
        faults
    }
}

#[cfg(test)]
mod tests;
