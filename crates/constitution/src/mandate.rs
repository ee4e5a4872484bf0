//! A mandate: the tools that an agent may call, and the prose that says so.
//!
//! A mandate is a markdown file whose front matter names the tools:
//!
//! ```text
//! ---
//! tools: read, search
//! ---
//! # What you are for
//! ```
//!
//! The gate enforces the front matter; the agent reads the prose. Nothing here reads the file.

use serde::Serialize;

use crate::footer::{FOOTER, line_like_footer};
use crate::manifest::is_tool_name;
use crate::manifest::tool_groups::is_group;
use crate::suggest_name::nearest;
use crate::text::sanitize;
use crate::tool_names::{MCP, MCP_SERVER};

/// Bytes of a mandate file: every session's prompt contains it.
pub const MAX_MANDATE_BYTES: usize = 64 * 1024;

/// Bytes of a mandate's name: a word, not a sentence.
pub const MAX_NAME_BYTES: usize = 64;

/// The mandate of an agent or caller that has no other.
pub const DEFAULT_MANDATE: &str = "default";

/// The default mandate that `tribune init` writes to a new home.
pub const DEFAULT_MANDATE_TEXT: &str = include_str!("default_mandate.md");

/// The mandate of a program that an operator starts in a sandbox with `tribune run`, unless the home has another
/// text for it.
pub const RUN_MANDATE: &str = "run";

/// The text of the mandate `run`, if the home has none.
pub const RUN_MANDATE_TEXT: &str = include_str!("run_mandate.md");

/// The tools that the mandate for anonymous callers may allow at most.
pub const ANONYMOUS_TOOLS: [&str; 3] = ["read", "search", "send_message"];

/// Keys of the front matter.
const KEYS: [&str; 1] = ["tools"];

/// The line before and after the front matter.
const FENCE: &str = "---";

/// The tools that an agent may call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mandate {
    pub name: String,
    // INVARIANT: sorted, without duplicates, and all known when the mandate was read.
    tools: Vec<String>,
    /// The text after the front matter.
    pub prose: String,
}

/// Why a text is not a mandate. Each sentence ends with the next step; the caller, which knows the file, puts its
/// name before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MandateError {
    #[error(
        "`{0}` cannot name a mandate: use lowercase letters, digits, `-` and `_`, beginning with a letter or digit, at most {MAX_NAME_BYTES}"
    )]
    Name(String),
    #[error("the mandate has {bytes} bytes: shorten it to at most {MAX_MANDATE_BYTES}")]
    TooLarge { bytes: usize },
    #[error("line 1: a mandate begins with its front matter: put `---`, a line `tools: …` and `---` on top")]
    NoFrontMatter,
    #[error("line 1: the front matter has no end: put a line `---` after it")]
    Unclosed,
    #[error("line {line}: `{text}` is not of the form `key: value`: the keys are {}", listed(&KEYS))]
    NotAKey { line: usize, text: String },
    #[error("line {line}: unknown key `{key}`: {} keys are {}", meant(.nearest), listed(&KEYS))]
    UnknownKey { line: usize, key: String, nearest: Option<String> },
    #[error("line {line}: `{key}` is given twice: remove one of them")]
    DuplicateKey { line: usize, key: String },
    #[error("the front matter does not name the tools: add a line such as `tools: {}`", listed_plain(&ANONYMOUS_TOOLS))]
    NoTools,
    #[error("line {line}: a tool's name is missing between two commas: remove one of them")]
    EmptyTool { line: usize, column: usize },
    #[error("line {line}: unknown tool `{tool}`: {} tools are {}", meant(.nearest), .known.join(", "))]
    UnknownTool { line: usize, column: usize, tool: String, nearest: Option<String>, known: Vec<String> },
    #[error(
        "line {line}: a line beginning with `{}` could be mistaken for the end of the prompt: rephrase it",
        FOOTER
    )]
    Footer { line: usize },
    #[error(
        "the mandate `default` is for anonymous callers and may allow {} only, not {}: make another mandate for agents that need more",
        listed_plain(&ANONYMOUS_TOOLS), .beyond.join(", ")
    )]
    DefaultTooWide { beyond: Vec<String> },
}

impl MandateError {
    /// The line of the error; 1 if the whole text is wrong.
    pub const fn line(&self) -> usize {
        match self {
            Self::NotAKey { line, .. }
            | Self::UnknownKey { line, .. }
            | Self::DuplicateKey { line, .. }
            | Self::EmptyTool { line, .. }
            | Self::UnknownTool { line, .. }
            | Self::Footer { line } => *line,
            Self::Name(_)
            | Self::TooLarge { .. }
            | Self::NoFrontMatter
            | Self::Unclosed
            | Self::NoTools
            | Self::DefaultTooWide { .. } => 1,
        }
    }

    /// The column of the error in characters, from 1; 1 if the whole line is wrong.
    pub const fn column(&self) -> usize {
        match self {
            Self::EmptyTool { column, .. } | Self::UnknownTool { column, .. } => *column,
            Self::NotAKey { .. }
            | Self::UnknownKey { .. }
            | Self::DuplicateKey { .. }
            | Self::Footer { .. }
            | Self::Name(_)
            | Self::TooLarge { .. }
            | Self::NoFrontMatter
            | Self::Unclosed
            | Self::NoTools
            | Self::DefaultTooWide { .. } => 1,
        }
    }
}

impl Mandate {
    /// Parses a mandate. `known_tools` are all tools that exist: any other name is a typing error, which would
    /// otherwise surface in the middle of a turn.
    pub fn parse(name: &str, text: &str, known_tools: &[&str]) -> Result<Self, MandateError> {
        if !is_name(name) {
            return Err(MandateError::Name(sanitize(name)));
        }
        if text.len() > MAX_MANDATE_BYTES {
            return Err(MandateError::TooLarge { bytes: text.len() });
        }
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        if lines.next().map(|(_, line)| line.trim_end()) != Some(FENCE) {
            return Err(MandateError::NoFrontMatter);
        }
        let mut tools = None;
        loop {
            let (line, text) = lines.next().ok_or(MandateError::Unclosed)?;
            match text.trim() {
                FENCE => break,
                "" => {}
                _ => front_matter_line(line, text, known_tools, &mut tools)?,
            }
        }
        let tools = tools.ok_or(MandateError::NoTools)?;
        if let Some(line) = line_like_footer(text) {
            return Err(MandateError::Footer { line });
        }
        let prose: Vec<&str> = lines.map(|(_, line)| line).collect();
        Ok(Self { name: name.to_owned(), tools, prose: prose.join("\n").trim().to_owned() })
    }

    /// The tools, sorted.
    pub fn tools(&self) -> &[String] {
        &self.tools
    }

    pub fn allows(&self, tool: &str) -> bool {
        let tool = listed_as(tool);
        self.tools.binary_search_by(|own| own.as_str().cmp(tool)).is_ok()
    }

    /// Checks that the mandate named `default` stays within [`ANONYMOUS_TOOLS`], because anonymous callers get it.
    /// Other mandates pass.
    pub fn check_default(&self) -> Result<(), MandateError> {
        let beyond: Vec<String> =
            self.tools.iter().filter(|tool| !ANONYMOUS_TOOLS.contains(&tool.as_str())).cloned().collect();
        if self.name == DEFAULT_MANDATE && !beyond.is_empty() {
            return Err(MandateError::DefaultTooWide { beyond });
        }
        Ok(())
    }
}

/// The well-formed names of tools in the front matter of a mandate, whether or not there are such tools.
pub(crate) fn named_tools(text: &str) -> impl Iterator<Item = &str> {
    let front_matter = text.lines().skip(1).take_while(|line| line.trim_end() != FENCE);
    let lists = front_matter.filter_map(|line| line.split_once(':')).filter(|(key, _)| key.trim() == "tools");
    lists
        .flat_map(|(_, list)| list.split(','))
        .map(str::trim)
        .filter(|tool| is_tool_name(tool) && !is_group(tool))
}

/// The tool that stands for another in a mandate: who may use the tools of an MCP server may also start it.
pub(crate) fn listed_as(tool: &str) -> &str {
    if tool == MCP_SERVER { MCP } else { tool }
}

fn front_matter_line(
    line: usize,
    text: &str,
    known_tools: &[&str],
    tools: &mut Option<Vec<String>>,
) -> Result<(), MandateError> {
    let Some((key, value)) = text.split_once(':') else {
        return Err(MandateError::NotAKey { line, text: sanitize(text.trim()) });
    };
    let (before, key) = (key.chars().count() + 1, key.trim());
    if key != "tools" {
        let nearest = nearest(key, &KEYS).map(str::to_owned);
        return Err(MandateError::UnknownKey { line, key: sanitize(key), nearest });
    }
    if tools.is_some() {
        return Err(MandateError::DuplicateKey { line, key: sanitize(key) });
    }
    *tools = Some(tool_list(ListPosition { line, before }, value, known_tools)?);
    Ok(())
}

/// Where a list of tools begins.
struct ListPosition {
    line: usize,
    /// The characters of the line before the list.
    before: usize,
}

/// Parses a list of tools. An empty list is a mandate without tools.
fn tool_list(
    ListPosition { line, before }: ListPosition,
    value: &str,
    known_tools: &[&str],
) -> Result<Vec<String>, MandateError> {
    if value.trim().is_empty() {
        return Ok(Vec::new());
    }
    let (mut tools, mut before) = (Vec::new(), before);
    for item in value.split(',') {
        let tool = item.trim();
        let column = before + item.chars().take_while(|c| c.is_whitespace()).count() + 1;
        before += item.chars().count() + 1;
        if tool.is_empty() {
            return Err(MandateError::EmptyTool { line, column });
        }
        if !known_tools.contains(&tool) {
            return Err(MandateError::UnknownTool {
                line,
                column,
                tool: sanitize(tool),
                nearest: nearest(tool, known_tools).map(str::to_owned),
                known: known_tools.iter().map(|&known| known.to_owned()).collect(),
            });
        }
        tools.push(tool.to_owned());
    }
    tools.sort_unstable();
    tools.dedup();
    Ok(tools)
}

fn is_name(name: &str) -> bool {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let word = |byte: u8| first(byte) || byte == b'-' || byte == b'_';
    name.len() <= MAX_NAME_BYTES && name.bytes().next().is_some_and(first) && name.bytes().all(word)
}

/// The suggestion, and the article that the sentence continues with.
fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(|| "the".to_owned(), |name| format!("did you mean `{name}`? The"))
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn listed_plain(names: &[&str]) -> String {
    names.join(", ")
}

#[cfg(test)]
#[path = "mandate_tests.rs"]
mod tests;
