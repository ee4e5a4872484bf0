//! How a CLI agent is run: which program, with which settings, and what it speaks.
//!
//! A profile is data. The built-in ones are the texts in [`BUILT_IN`]; whoever wants another writes one. This module says what
//! one may hold ([`Profile`]) and fills in what only a session knows ([`Surroundings`]); it reads no file and starts nothing.
//!
//! What every profile must do: have the agent ask before each call (`system`, `files` and `environment` carry the settings for
//! that), keep from it what others wrote for programs of its kind to obey (`hide`, `keep`), and lead it to its model through the
//! session's own port with a key that is none.

mod fill;
mod parts;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use fill::{Filled, Surroundings};
pub use parts::{
    Capabilities, Content, FsCapabilities, HomePath, Package, Protocol, Quirk, Speech, Template, Version,
};

use parts::{Command, Commands, Environment, Files, Folders, Id, Kept, Names, Quirks, Texts};

/// The profiles that need no file, each with its text.
pub const BUILT_IN: [(&str, &str); 6] = [
    ("claude", include_str!("built_in/claude.json5")),
    ("claude-code", include_str!("built_in/claude-code.json5")),
    ("codex", include_str!("built_in/codex.json5")),
    ("gemini", include_str!("built_in/gemini.json5")),
    ("opencode", include_str!("built_in/opencode.json5")),
    ("generic", include_str!("built_in/generic.json5")),
];

/// The profile that others are written after. It has no program of its own.
pub const GENERIC: &str = "generic";

/// A CLI agent that is spoken with over its standard streams.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Profile {
    id: Id,
    /// What people call it.
    title: String,
    /// Where its program comes from; without one, it is there already.
    install: Option<Package>,
    command: Command,
    /// Arguments that make it take up a conversation, if they do and not the protocol.
    #[serde(default)]
    resume: Vec<Template>,
    #[serde(default)]
    protocol: Protocol,
    #[serde(default)]
    environment: Environment,
    /// What is written into the session's own home folder before each start.
    #[serde(default)]
    files: Files,
    /// The same beneath `/etc`, where nothing inside can change it: what programs take from whoever runs the machine, and put
    /// above all that a person or a project wants.
    #[serde(default)]
    system: Files,
    /// What comes into files of `system` for each MCP server that the house runs for the session: lines behind the others, or members
    /// and items beside the others.
    #[serde(default)]
    per_server: Files,
    /// What of the home folder outlives its process: what it needs to take a conversation up, and nothing that it obeys.
    #[serde(default)]
    keep: Kept,
    /// Names in the workspace that it would obey, or open unasked: settings, hooks, servers, instructions. It sees nothing there.
    #[serde(default)]
    hide: Names,
    /// Files at the root of the workspace with words for agents. The house reads the first that is there, if the law lets it,
    /// and tells the agent what it says.
    #[serde(default)]
    instructions: Texts,
    /// What the owner may tell it with a `/` in front. What else begins so is words to it.
    #[serde(default)]
    commands: Commands,
    /// Folders of this machine that it reads, beside `/usr` and its program's.
    #[serde(default)]
    folders: Folders,
    /// How it asks its model; without it, it has none of the house's.
    model: Option<Speech>,
    /// What it is told that we can.
    #[serde(default)]
    capabilities: Capabilities,
    /// The mode that each session is put into.
    mode: Option<String>,
    #[serde(default)]
    quirks: Quirks,
}

impl Profile {
    pub fn id(&self) -> &str {
        &self.id.0
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    pub const fn install(&self) -> Option<&Package> {
        self.install.as_ref()
    }

    /// Program and arguments. Never empty.
    pub fn command(&self) -> &[Template] {
        &self.command.0
    }

    /// Arguments behind those with which it takes up a conversation. Empty if the protocol has a way to do that.
    pub fn resume(&self) -> &[Template] {
        &self.resume
    }

    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Variables that it starts with, beside those of every box.
    pub const fn environment(&self) -> &BTreeMap<String, Template> {
        &self.environment.0
    }

    pub const fn files(&self) -> &BTreeMap<HomePath, Content> {
        &self.files.0
    }

    /// Paths beneath `/etc`.
    pub const fn system(&self) -> &BTreeMap<HomePath, Content> {
        &self.system.0
    }

    /// Paths beneath `/etc`, each of a file that is in [`Self::system`].
    pub const fn per_server(&self) -> &BTreeMap<HomePath, Content> {
        &self.per_server.0
    }

    /// Paths beneath the home folder.
    pub fn keep(&self) -> &[HomePath] {
        &self.keep.0
    }

    /// Patterns, as the box takes them.
    pub fn hide(&self) -> &[String] {
        &self.hide.0
    }

    /// Names at the root of the workspace, the first before the others.
    pub fn instructions(&self) -> &[String] {
        &self.instructions.0
    }

    /// Whether this word behind a `/` does nothing but what the owner wants done with the conversation.
    pub fn takes_command(&self, word: &str) -> bool {
        self.commands.0.iter().any(|known| known == word)
    }

    /// Absolute paths.
    pub fn folders(&self) -> &[String] {
        &self.folders.0
    }

    pub const fn model(&self) -> Option<Speech> {
        self.model
    }

    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    pub fn mode(&self) -> Option<&str> {
        self.mode.as_deref()
    }

    pub fn has(&self, quirk: Quirk) -> bool {
        self.quirks.0.contains(&quirk)
    }
}
