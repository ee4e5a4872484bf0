//! The parts of a profile. Each validates itself while it is deserialized, because only then is its place in the file
//! known.
//!
//! An error is the rest of a sentence that begins with the value's path: "is empty: name the program".

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fill::{NAMES, words};
use tribune_nearest_name::nearest;

/// Bytes of a profile's id; it is the name of a folder.
const MAX_ID_BYTES: usize = 64;

/// Variables, files and folders of one profile.
const MAX_ENTRIES: usize = 64;

/// Variables that a loader or a language reads before the program runs. The sandbox sets them.
const LOADED: [&str; 5] = ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PATH", "HOME"];

/// The name of a profile: small letters, digits and `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProfileId(pub(super) String);

/// A package of npm, in one version.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NpmPackage {
    /// As npm writes it: `name` or `@scope/name`.
    #[serde(deserialize_with = "npm_name")]
    pub npm: String,
    pub version: ExactVersion,
    /// The lowest major version of Node that it needs; `None` if it brings its own engine.
    pub node: Option<u16>,
    /// About how many megabytes it takes on disk.
    pub megabytes: Option<u32>,
    /// The profile that has the same program, if there is one: it is installed once.
    #[serde(default, deserialize_with = "shared_with")]
    pub shared_with: Option<String>,
}

/// One exact version. A range could be another program tomorrow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExactVersion(String);

/// The API through which a program asks its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelApi {
    /// `POST /v1/messages`.
    Anthropic,
    /// `POST /v1/chat/completions`.
    OpenaiChat,
    /// `POST /v1/responses`.
    OpenaiResponses,
    /// `POST /v1beta/models/MODEL:generateContent` and its like.
    Gemini,
}

/// The protocol that a program speaks over its standard streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    #[default]
    Acp,
    /// Claude Code's own protocol, of `claude -p`.
    ClaudeStreamJson,
}

impl Protocol {
    /// Its name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Acp => "ACP",
            Self::ClaudeStreamJson => "stream-json",
        }
    }

    /// The backend that speaks it.
    pub const fn backend(self) -> &'static str {
        match self {
            Self::Acp => "acp",
            Self::ClaudeStreamJson => "claude_code",
        }
    }
}

/// The client capabilities that a program is offered. What is not named is not offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Capabilities {
    pub(crate) fs: FsCapabilities,
    /// Commands, each in a sandbox of its own.
    pub(crate) terminal: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct FsCapabilities {
    pub(crate) read_text_file: bool,
    pub(crate) write_text_file: bool,
}

/// A behaviour of a program that differs from its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Quirk {
    /// After a refused call it ends its turn as `cancelled`, though the turn was not cancelled.
    RefusalCancels,
    /// It requests permission before it reports the call.
    AsksFirst,
    /// It reports that a call runs before it requests permission, and runs it afterwards.
    StartsBeforeAsking,
    /// It never reports the outcome of a refused call.
    SilentRefusal,
    /// It writes the file itself, whatever the response to `fs/write_text_file`.
    WritesItself,
    /// It requests permission once more, as a call of its own, to leave the workspace.
    AsksToLeave,
    /// It names the tool of a call only at the beginning of the call's id, before `__`.
    NamesInIds,
    /// It says that it supports MCP servers, and starts none of those that it is told of.
    IgnoresServers,
    /// It reads files that are named behind an `@` in a prompt, without asking or reporting.
    ReadsMentions,
}

/// A text with words in braces that a session fills in: `{home}`, `{model_url}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileTemplate(pub(super) String);

/// The content of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FileContent {
    Text(ProfileTemplate),
    /// Written as JSON; its strings and names are templates too.
    Json(Map<String, Value>),
}

/// A path inside a folder: relative, without `.` and `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HomePath(String);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProgramCommand(pub(super) Vec<ProfileTemplate>);

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct EnvironmentVariables(pub(super) BTreeMap<String, ProfileTemplate>);

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ProfileFiles(pub(super) BTreeMap<HomePath, FileContent>);

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ReadFolders(pub(super) Vec<String>);

/// Patterns of names in a workspace.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HidePatterns(pub(super) Vec<String>);

/// Commands behind a `/`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct OwnerCommands(pub(super) Vec<String>);

/// Names of files at the root of a workspace.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct InstructionFiles(pub(super) Vec<String>);

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct KeptPaths(pub(super) Vec<HomePath>);

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct QuirkSet(pub(super) Vec<Quirk>);

impl HomePath {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ExactVersion {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExactVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses a text, or returns the rest of a sentence that says what is wrong with it.
trait ParseText: Sized {
    fn check(text: String) -> Result<Self, String>;
}

macro_rules! reads_checked {
    ($($kind:ty),*) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::check(String::deserialize(deserializer)?).map_err(D::Error::custom)
            }
        }
    )*};
}

reads_checked!(ProfileId, ExactVersion, ProfileTemplate, HomePath);

impl ParseText for ProfileId {
    fn check(text: String) -> Result<Self, String> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_good = (1..=MAX_ID_BYTES).contains(&text.len())
            && text.bytes().all(is_plain)
            && text.starts_with(|first: char| first.is_ascii_lowercase());
        is_good.then_some(Self(text)).ok_or_else(|| {
            format!("is not a name for a profile: use up to {MAX_ID_BYTES} small letters, digits and `-`, a letter first")
        })
    }
}

impl ParseText for ExactVersion {
    fn check(text: String) -> Result<Self, String> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
        let numbers: Vec<&str> =
            text.split(['-', '+']).next().map(|numbers| numbers.split('.').collect()).unwrap_or_default();
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let is_exact = numbers.len() == 3
            && numbers.iter().all(is_number)
            && text.len() <= MAX_ID_BYTES
            && text.bytes().all(is_word);
        is_exact.then_some(Self(text)).ok_or_else(|| {
            "is not one exact version: write it like `1.18.33`, since a range or a tag is another program tomorrow".to_owned()
        })
    }
}

impl ParseText for ProfileTemplate {
    fn check(text: String) -> Result<Self, String> {
        if text.contains('\0') {
            return Err("holds a zero byte: take it out".to_owned());
        }
        if let Some(word) = words(&text).find(|word| !NAMES.contains(word)) {
            let meant =
                nearest(word, &NAMES).map_or_else(String::new, |name| format!("did you mean `{{{name}}}`? "));
            let known = NAMES.map(|name| format!("{{{name}}}")).join(", ");
            return Err(format!(
                "holds `{{{word}}}`, which is not a known word: {meant}the words are {known}"
            ));
        }
        Ok(Self(text))
    }
}

impl ParseText for HomePath {
    fn check(text: String) -> Result<Self, String> {
        let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\0', '\\', '{']);
        text.split('/').all(is_plain).then_some(Self(text)).ok_or_else(|| {
            "is no path inside a folder: write it relative, without `.`, `..` and braces".to_owned()
        })
    }
}

fn shared_with<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    ProfileId::deserialize(deserializer).map(|id| Some(id.0))
}

fn npm_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_plain = |part: &str| {
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        !part.is_empty() && !part.starts_with(['.', '-', '_']) && part.bytes().all(is_word)
    };
    let is_good = match text.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| is_plain(scope) && is_plain(name)),
        None => is_plain(&text),
    };
    // npm may take anything else for an address or a folder, and install what was never published.
    is_good.then_some(text).ok_or_else(|| {
        D::Error::custom("is no name of a package: write it like `opencode-ai` or `@google/gemini-cli`")
    })
}

impl<'de> Deserialize<'de> for ProgramCommand {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parts = Vec::<ProfileTemplate>::deserialize(deserializer)?;
        if parts.first().is_none_or(|program| program.0.is_empty()) {
            return Err(D::Error::custom("is empty: name the program, then its arguments"));
        }
        Ok(Self(parts))
    }
}

impl<'de> Deserialize<'de> for EnvironmentVariables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = BTreeMap::<String, ProfileTemplate>::deserialize(deserializer)?;
        for name in all.keys() {
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let is_name = !name.is_empty()
                && name.bytes().all(is_word)
                && !name.starts_with(|first: char| first.is_ascii_digit());
            if !is_name {
                return Err(D::Error::custom(format!(
                    "has `{name}`, which is no name of a variable: use letters, digits and `_`"
                )));
            }
            if LOADED.contains(&name.as_str()) {
                return Err(D::Error::custom(format!(
                    "has `{name}`, which the sandbox sets itself: take it out"
                )));
            }
        }
        bounded(all.len()).map_err(D::Error::custom)?;
        Ok(Self(all))
    }
}

impl<'de> Deserialize<'de> for ProfileFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut files = BTreeMap::new();
        for (path, content) in BTreeMap::<String, Value>::deserialize(deserializer)? {
            let told = format!("`{path}`");
            let told = |why| D::Error::custom(format!("has {told}, which {why}"));
            files.insert(HomePath::check(path).map_err(told)?, FileContent::check(content).map_err(told)?);
        }
        bounded(files.len()).map_err(D::Error::custom)?;
        Ok(Self(files))
    }
}

impl<'de> Deserialize<'de> for ReadFolders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let folders = Vec::<String>::deserialize(deserializer)?;
        for folder in &folders {
            let inside = folder.strip_prefix('/').map(|rest| HomePath::check(rest.to_owned()));
            if !matches!(inside, Some(Ok(_))) {
                return Err(D::Error::custom(format!(
                    "has `{folder}`, which is no folder of this machine: write it from `/` on, without `..`"
                )));
            }
        }
        bounded(folders.len()).map_err(D::Error::custom)?;
        Ok(Self(folders))
    }
}

impl<'de> Deserialize<'de> for HidePatterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        for name in &names {
            if HomePath::check(name.trim_start_matches('/').to_owned()).is_err() {
                return Err(D::Error::custom(format!(
                    "has `{name}`, which names nothing in a workspace: write a name, or a path from its root on"
                )));
            }
        }
        bounded(names.len()).map_err(D::Error::custom)?;
        Ok(Self(names))
    }
}

impl<'de> Deserialize<'de> for OwnerCommands {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<String>::deserialize(deserializer)?;
        for word in &words {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_:".contains(&byte);
            if word.is_empty() || !word.bytes().all(is_plain) {
                return Err(D::Error::custom(format!(
                    "has `{word}`, which is no command: write the word behind the `/`"
                )));
            }
        }
        bounded(words.len()).map_err(D::Error::custom)?;
        Ok(Self(words))
    }
}

impl<'de> Deserialize<'de> for InstructionFiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        for name in &names {
            if name.contains('/') || HomePath::check(name.clone()).is_err() {
                return Err(D::Error::custom(format!(
                    "has `{name}`, which is no file at the root of a workspace: write its name alone"
                )));
            }
        }
        bounded(names.len()).map_err(D::Error::custom)?;
        Ok(Self(names))
    }
}

impl<'de> Deserialize<'de> for KeptPaths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kept = Vec::<HomePath>::deserialize(deserializer)?;
        bounded(kept.len()).map_err(D::Error::custom)?;
        Ok(Self(kept))
    }
}

impl<'de> Deserialize<'de> for QuirkSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut quirks = Vec::<Quirk>::deserialize(deserializer)?;
        quirks.sort_unstable();
        quirks.dedup();
        Ok(Self(quirks))
    }
}

impl FileContent {
    /// A text, a list of lines, or an object that is written as JSON.
    fn check(value: Value) -> Result<Self, String> {
        check_json(&value)?;
        let wrong = || "is neither a text, a list of lines, nor an object to be written as JSON".to_owned();
        match value {
            Value::String(text) => Ok(Self::Text(ProfileTemplate(text))),
            Value::Object(members) => Ok(Self::Json(members)),
            Value::Array(lines) => {
                let lines: Option<Vec<&str>> = lines.iter().map(Value::as_str).collect();
                Ok(Self::Text(ProfileTemplate(lines.ok_or_else(wrong)?.join("\n") + "\n")))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Err(wrong()),
        }
    }
}

/// Every string of a JSON file is a template.
fn check_json(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => ProfileTemplate::check(text.clone()).map(drop),
        Value::Array(items) => items.iter().try_for_each(check_json),
        Value::Object(members) => members.iter().try_for_each(|(name, value)| {
            ProfileTemplate::check(name.clone())?;
            check_json(value)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn bounded(entries: usize) -> Result<(), String> {
    if entries <= MAX_ENTRIES {
        return Ok(());
    }
    Err(format!("has {entries} entries: {MAX_ENTRIES} are the most"))
}
