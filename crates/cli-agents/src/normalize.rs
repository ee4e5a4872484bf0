//! Normalizes an agent's call to the policy's terms, so that one law holds for every agent: a tool that the host has,
//! and its input.
//!
//! An agent's report of a call does not prove what the call will do; the sandbox is there for that. What a report
//! leaves out must not count as harmless: a call that is not understood to its last field is a tool of the agent's own
//! (`cli.NAME`), which no mandate has by accident, and the person who is asked sees everything that the agent reported.

mod call_report;
mod report_members;

use serde_json::{Map, Value, json};

use self::call_report::CallReport;
use self::report_members::BESIDE_OWN;
use crate::paths::{PathScope, normalize_path, relative_to_workspace};

/// A call in the policy's terms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NormalizedCall {
    pub(crate) tool: String,
    pub(crate) input: Value,
}

/// Prefix of tools that are the agent's own. No tool of the host's is named so.
const AGENT_PREFIX: &str = "cli.";

/// Bytes of a tool's name.
const MAX_NAME: usize = 64;

/// Prefix of the MCP servers' tools.
pub(crate) const MCP_PREFIX: &str = "mcp__";

/// Characters of a call in a sentence.
const MAX_SHOWN: usize = 80;

/// Normalized calls that one report may stand for. A report of more than a person could review counts as not
/// understood.
const MAX_PARTS: usize = 64;

/// The calls that a report stands for so far. Empty for a thought, which does nothing.
pub(crate) fn planned_calls(call: &Map<String, Value>, workspace: &str) -> Vec<NormalizedCall> {
    let report = CallReport { call, workspace };
    let understood = match call.get("kind").and_then(Value::as_str).unwrap_or("other") {
        "think" if report.is_thought() => Some(Vec::new()),
        "read" => report.reads(),
        "edit" => report.edits(),
        "delete" => report.file_removal(),
        "move" => report.file_move(),
        "execute" => report.command().map(|command| vec![command]),
        "search" => report.searches(),
        "fetch" => report.fetches(),
        _ => None,
    };
    match understood {
        Some(parts) if parts.len() <= MAX_PARTS => parts,
        Some(_) | None => vec![report.agent_tool()],
    }
}

/// The same for a permission request, which is never a mere thought.
pub(crate) fn requested_calls(call: &Map<String, Value>, workspace: &str) -> Vec<NormalizedCall> {
    let planned = planned_calls(call, workspace);
    if planned.is_empty() { vec![CallReport { call, workspace }.agent_tool()] } else { planned }
}

/// A file that the agent wants written for it. The host's own tool refuses a path outside the workspace.
pub(crate) fn file_write(path: &str, content: &str, workspace: &str) -> NormalizedCall {
    let path = relative_to_workspace(path, workspace).unwrap_or_else(|| path.to_owned());
    NormalizedCall::new("write", json!({ "path": path, "content": content }))
}

/// A file that the agent wants read for it.
pub(crate) fn read(path: &str, workspace: &str) -> NormalizedCall {
    let path = relative_to_workspace(path, workspace).unwrap_or_else(|| path.to_owned());
    NormalizedCall::new("read", json!({ "path": path }))
}

/// A command that the agent wants run for it: a line for the shell, or a program and its arguments. `None` if it would
/// run outside the workspace.
pub(crate) fn run(
    command: &str,
    args: &[&str],
    cwd: Option<&str>,
    workspace: &str,
) -> Option<NormalizedCall> {
    let line = match args {
        [] => command.to_owned(),
        args => shell_line(&[&[command], args].concat())?,
    };
    let mut input = json!({ "command": line });
    if let Some(cwd) = cwd {
        let folder = normalize_path(cwd, workspace, PathScope::Workspace)?;
        if folder != "." {
            input["cwd"] = folder.into();
        }
    }
    Some(NormalizedCall::new("exec", input))
}

/// The calls that a finished report claims, to be compared with the permission. A finished edit shows its result in
/// place of the change, so that it is known by the files that it names. Empty if it names none any more.
pub(crate) fn claimed_calls(call: &Map<String, Value>, workspace: &str) -> Vec<NormalizedCall> {
    let report = CallReport { call, workspace };
    if call.get("kind").is_some_and(|kind| kind == "edit")
        && let Some(paths) = report.paths(PathScope::Workspace).filter(|paths| paths.len() <= MAX_PARTS)
    {
        let change = |path: String| NormalizedCall::new("write", json!({ "path": path, "content": "" }));
        return paths.into_iter().map(change).collect();
    }
    requested_calls(call, workspace)
}

impl NormalizedCall {
    fn new(tool: &str, input: Value) -> Self {
        Self { tool: tool.to_owned(), input }
    }

    /// Whether it is a tool of the agent's own.
    pub(crate) fn is_agent_tool(&self) -> bool {
        self.tool.starts_with(AGENT_PREFIX)
    }

    /// The call in sentences: the command, or the tool and its subject. For a tool of the agent's own, its title.
    pub(crate) fn display(&self, title: &str) -> String {
        let word = |name: &str| self.input[name].as_str().unwrap_or_default();
        let about = match self.tool.as_str() {
            "exec" => word("command").to_owned(),
            tool @ ("read" | "write" | "edit") => format!("{tool} {}", word("path")),
            tool @ "web_fetch" => format!("{tool} {}", word("url")),
            tool @ ("search" | "web_search") => format!("{tool} {}", word("query")),
            _ => title.to_owned(),
        };
        cut(&about)
    }

    /// Whether it is an MCP server's tool: only the host can execute the call.
    pub(crate) fn is_mcp(&self) -> bool {
        self.tool.starts_with(MCP_PREFIX)
    }

    /// Whether permission for this call covers the reported one: the same call, as far as an agent reports it twice in
    /// the same way. Contents are left out, since agents shorten them.
    pub(crate) fn covers(&self, report: &Self) -> bool {
        let is_change = |tool: &str| matches!(tool, "write" | "edit");
        let same = |name: &str| self.input[name] == report.input[name];
        match (self.tool.as_str(), report.tool.as_str()) {
            (given, tool) if is_change(given) && is_change(tool) => same("path"),
            (given, tool) if given != tool => false,
            // Some agents do not report the arguments.
            _ if self.is_mcp() => report.input == self.input || report.input == json!({}),
            ("read", _) => same("path"),
            ("exec", _) => same("command") && same("cwd"),
            ("web_fetch", _) => same("url"),
            ("search" | "web_search", _) => same("query") && same("path"),
            _ => own_input(&self.input) == own_input(&report.input),
        }
    }
}

/// The input of a tool of the agent's own, without the fields that were added.
fn own_input(input: &Value) -> Value {
    match input {
        Value::Object(members) => {
            let own = members.iter().filter(|(name, _)| !BESIDE_OWN.contains(&name.as_str()));
            Value::Object(own.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        other => other.clone(),
    }
}

/// A text for a sentence, on one line, cut between two words: half of a secret would not be recognized as one.
fn cut(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() <= MAX_SHOWN {
        return text;
    }
    let mut shown = String::new();
    for word in text.split(' ') {
        if shown.chars().count() + word.chars().count() > MAX_SHOWN {
            break;
        }
        shown.push_str(word);
        shown.push(' ');
    }
    shown.push('…');
    shown
}

/// The line that a list of arguments stands for. A system shell with `-c` stands for its line.
fn shell_line(words: &[&str]) -> Option<String> {
    const SHELLS: [&str; 9] = [
        "sh",
        "bash",
        "zsh",
        "/bin/sh",
        "/bin/bash",
        "/bin/zsh",
        "/usr/bin/sh",
        "/usr/bin/bash",
        "/usr/bin/zsh",
    ];
    match words {
        [] => None,
        [shell, "-c" | "-lc", line] if SHELLS.contains(shell) => Some((*line).to_owned()),
        words => Some(shell_quoted(words.iter().copied())),
    }
}

/// Arguments, quoted so that a shell splits them again.
fn shell_quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@+%".contains(c);
    let quoted = |word: &str| match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[path = "normalize_tests.rs"]
mod tests;
