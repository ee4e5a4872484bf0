//! Describes how a CLI agent is run: its program, its settings, and its protocol.
//!
//! A profile is data. The built-in ones are the texts in [`BUILT_IN`]; users may write others. This module defines what
//! a profile may hold ([`Profile`]) and fills in the values of a session ([`ProfileContext`]); it reads no file and
//! starts nothing.
//!
//! Every profile must do three things: make the agent ask before each call (`system`, `files` and `environment` carry
//! the settings for that), hide from it files in which others could give it settings (`hide`, `keep`), and lead it to
//! its model through the session's own port with a placeholder for a key.

mod fill;
mod parts;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use fill::{FilledProfile, ProfileContext};
pub(crate) use parts::{Capabilities, FileContent, Quirk};
pub use parts::{ExactVersion, HomePath, ModelApi, NpmPackage, ProfileTemplate, Protocol};

use parts::{
    EnvironmentVariables, HidePatterns, InstructionFiles, KeptPaths, OwnerCommands, ProfileFiles, ProfileId,
    ProgramCommand, QuirkSet, ReadFolders,
};

/// The built-in profiles, each with its text.
pub const BUILT_IN: [(&str, &str); 6] = [
    ("claude", include_str!("built_in/claude.json5")),
    ("claude-code", include_str!("built_in/claude-code.json5")),
    ("codex", include_str!("built_in/codex.json5")),
    ("gemini", include_str!("built_in/gemini.json5")),
    ("opencode", include_str!("built_in/opencode.json5")),
    ("generic", include_str!("built_in/generic.json5")),
];

/// The profile to copy for a new one. It has no program of its own.
pub const GENERIC: &str = "generic";

/// A CLI agent that speaks a protocol over its standard streams.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Profile {
    id: ProfileId,
    /// Its name for people.
    title: String,
    /// The package of its program; without one, the program is there already.
    install: Option<NpmPackage>,
    command: ProgramCommand,
    /// Arguments that make it resume a conversation, where the protocol cannot.
    #[serde(default)]
    resume: Vec<ProfileTemplate>,
    #[serde(default)]
    protocol: Protocol,
    #[serde(default)]
    environment: EnvironmentVariables,
    /// Files that are written into the session's own home folder before each start.
    #[serde(default)]
    files: ProfileFiles,
    /// The same beneath `/etc`, where nothing can be changed from inside: programs take an administrator's settings
    /// from there, above those of a person or a project.
    #[serde(default)]
    system: ProfileFiles,
    /// Additions to files of `system` for each MCP server that the host runs for the session: lines at the end, or
    /// members and items.
    #[serde(default)]
    per_server: ProfileFiles,
    /// Paths of the home folder that outlive its process: what it needs to resume a conversation, and no settings.
    #[serde(default)]
    keep: KeptPaths,
    /// Names in the workspace that it would load settings from or open unasked: settings, hooks, servers, instructions.
    /// They are hidden from it.
    #[serde(default)]
    hide: HidePatterns,
    /// Files at the root of the workspace with instructions for agents. The host reads the first that exists, if the
    /// law allows it, and sends its text to the agent.
    #[serde(default)]
    instructions: InstructionFiles,
    /// Commands behind a `/` that the owner may use. Any other text that begins so is escaped.
    #[serde(default)]
    commands: OwnerCommands,
    /// Folders of this machine that it reads, beside `/usr` and its program's.
    #[serde(default)]
    folders: ReadFolders,
    /// The API through which it asks its model; without it, it has no model of this instance.
    model: Option<ModelApi>,
    /// The client capabilities that it is offered.
    #[serde(default)]
    capabilities: Capabilities,
    /// The mode that each session is set to.
    mode: Option<String>,
    #[serde(default)]
    quirks: QuirkSet,
}

impl Profile {
    pub fn id(&self) -> &str {
        &self.id.0
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    pub const fn install(&self) -> Option<&NpmPackage> {
        self.install.as_ref()
    }

    /// Program and arguments. Never empty.
    pub fn command(&self) -> &[ProfileTemplate] {
        &self.command.0
    }

    /// Arguments to resume a conversation, behind the others. Empty if the protocol resumes.
    pub fn resume(&self) -> &[ProfileTemplate] {
        &self.resume
    }

    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Environment variables, beside those of every sandbox.
    pub(crate) const fn environment(&self) -> &BTreeMap<String, ProfileTemplate> {
        &self.environment.0
    }

    pub(crate) const fn files(&self) -> &BTreeMap<HomePath, FileContent> {
        &self.files.0
    }

    /// Paths beneath `/etc`.
    pub(crate) const fn system(&self) -> &BTreeMap<HomePath, FileContent> {
        &self.system.0
    }

    /// Paths beneath `/etc`, each of a file that is in [`Self::system`].
    pub(crate) const fn per_server(&self) -> &BTreeMap<HomePath, FileContent> {
        &self.per_server.0
    }

    /// Paths beneath the home folder.
    pub fn keep(&self) -> &[HomePath] {
        &self.keep.0
    }

    /// Patterns of the sandbox's hide rules.
    pub fn hide(&self) -> &[String] {
        &self.hide.0
    }

    /// Names at the root of the workspace, in the order of preference.
    pub fn instructions(&self) -> &[String] {
        &self.instructions.0
    }

    /// Whether this command behind a `/` only affects the owner's conversation.
    pub(crate) fn takes_command(&self, word: &str) -> bool {
        self.commands.0.iter().any(|known| known == word)
    }

    /// Absolute paths.
    pub fn folders(&self) -> &[String] {
        &self.folders.0
    }

    pub const fn model(&self) -> Option<ModelApi> {
        self.model
    }

    pub(crate) const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    pub(crate) fn mode(&self) -> Option<&str> {
        self.mode.as_deref()
    }

    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        self.quirks.0.contains(&quirk)
    }
}
