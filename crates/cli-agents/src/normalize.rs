//! Normalizes an agent's call to the policy's terms, so that one law holds for every agent: a tool that the host has,
//! and its input.
//!
//! An agent's report of a call does not prove what the call will do; the sandbox is there for that. What a report
//! leaves out must not count as harmless: a call that is not understood to its last field is a tool of the agent's own
//! (`cli.NAME`), which no mandate has by accident, and the person who is asked sees everything that the agent reported.

use serde_json::{Map, Value, json};

use crate::patch_check;
use crate::paths::{PathScope, normalize_path, relative_to_workspace};

/// A call in the policy's terms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NormalizedCall {
    pub(crate) tool: String,
    pub(crate) input: Value,
}

/// Prefix of tools that are the agent's own. No tool of the host's is named so.
const AGENT_PREFIX: &str = "cli.";

/// Prefix of the MCP servers' tools.
pub(crate) const MCP_PREFIX: &str = "mcp__";

/// Bytes of a tool's name.
const MAX_NAME: usize = 64;

/// Characters of a call in a sentence.
const MAX_SHOWN: usize = 80;

/// Normalized calls that one report may stand for. A report of more than a person could review counts as not
/// understood.
const MAX_PARTS: usize = 64;

/// Members that agents use for the path of a call.
const PATHS: [&str; 9] = [
    "file_path",
    "filePath",
    "filepath",
    "path",
    "absolute_path",
    "abs_path",
    "notebook_path",
    "target_file",
    "dir_path",
];

/// Members for a command, and for the folder that it runs in.
const COMMANDS: [&str; 2] = ["command", "cmd"];
const FOLDERS: [&str; 5] = ["cwd", "workdir", "working_directory", "directory", "dir_path"];

/// Members beside a command that are not part of what runs.
const BESIDE_COMMANDS: [&str; 10] = [
    "description",
    "timeout",
    "timeout_ms",
    "run_in_background",
    "is_background",
    "justification",
    "sandbox_permissions",
    "max_output_tokens",
    "yield_time_ms",
    "dangerouslyDisableSandbox",
];

/// Members beside a path that is read: which piece of it, and how much at once.
const BESIDE_READS: [&str; 9] =
    ["offset", "limit", "start_line", "end_line", "line", "pages", "allow_large", "encoding", "description"];

/// Members for a search query, and those beside it that lead nowhere else.
const QUERIES: [&str; 4] = ["pattern", "query", "q", "regex"];
const BESIDE_QUERIES: [&str; 24] = [
    "include",
    "include_pattern",
    "exclude",
    "exclude_pattern",
    "glob",
    "type",
    "case_sensitive",
    "ignore_case",
    "multiline",
    "output_mode",
    "names_only",
    "respect_git_ignore",
    "respect_gemini_ignore",
    "max_matches_per_file",
    "total_max_matches",
    "head_limit",
    "limit",
    "offset",
    "context",
    "-A",
    "-B",
    "-C",
    "-i",
    "-n",
];

/// Members for the content of a file, for the text that is replaced and its replacement, and for a replacement
/// everywhere.
const CONTENTS: [&str; 2] = ["content", "file_text"];
const OLD: [&str; 2] = ["old_string", "oldString"];
const NEW: [&str; 2] = ["new_string", "newString"];
const EVERYWHERE: [&str; 2] = ["replace_all", "replaceAll"];

/// The change once more, as a patch.
const PATCH: &str = "diff";

/// Members for the source and the target of a move.
const MOVES: [(&str, &str); 5] = [
    ("source", "destination"),
    ("from", "to"),
    ("old_path", "new_path"),
    ("oldPath", "newPath"),
    ("path", "destination"),
];

/// Members beside an address that do not change the request.
const BESIDE_ADDRESSES: [&str; 7] = ["url", "uri", "prompt", "format", "timeout", "offset", "description"];

/// Members beside a web query.
const BESIDE_WEB_QUERIES: [&str; 4] = ["query", "allowed_domains", "blocked_domains", "description"];

/// Fields of a report that are added to the input of a call that is not understood.
const BESIDE_OWN: [&str; 3] = ["_kind", "_locations", "_content"];

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

struct CallReport<'a> {
    call: &'a Map<String, Value>,
    workspace: &'a str,
}

/// `None` stands for a report that is not understood: then the whole is a tool of the agent's own.
impl CallReport<'_> {
    /// The input as the agent reported it, unless it is empty.
    fn input(&self) -> Option<&Value> {
        self.call
            .get("rawInput")
            .filter(|raw| !raw.is_null() && raw.as_object().is_none_or(|raw| !raw.is_empty()))
    }

    /// The texts of these members.
    fn raw<'n>(&'n self, names: &'n [&str]) -> impl Iterator<Item = &'n str> {
        let raw = self.call.get("rawInput");
        let text = move |name: &&str| raw.and_then(|raw| raw.get(name)?.as_str());
        names.iter().filter_map(text).filter(|text| !text.is_empty())
    }

    fn title(&self) -> &str {
        self.call.get("title").and_then(Value::as_str).unwrap_or_default()
    }

    fn items(&self, name: &str) -> &[Value] {
        self.call.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Whether it is text and nothing else.
    fn is_thought(&self) -> bool {
        self.input().is_none()
            && self.items("locations").is_empty()
            && self.items("content").iter().all(|item| item["type"] == "content")
    }

    /// Whether the input, if there is one, has these members alone, and a text in each member that is a path.
    fn has_only(&self, names: &[&[&str]]) -> bool {
        let Some(raw) = self.input() else { return true };
        let is_known = |name: &str| names.iter().any(|names| names.contains(&name));
        let is_text = |name: &str, value: &Value| !PATHS.contains(&name) || value.is_string();
        raw.as_object()
            .is_some_and(|raw| raw.iter().all(|(name, value)| is_known(name) && is_text(name, value)))
    }

    /// The one text of these members; `None` if there are several.
    fn only(&self, names: &[&str]) -> Option<&str> {
        let raw = self.input()?;
        let mut texts = names.iter().filter_map(|name| raw.get(name)?.as_str());
        texts.next().filter(|_| texts.next().is_none())
    }

    fn has_any(&self, names: &[&str]) -> bool {
        self.input().is_some_and(|raw| names.iter().any(|name| raw.get(name).is_some()))
    }

    /// One call for each file.
    fn reads(&self) -> Option<Vec<NormalizedCall>> {
        if !self.has_only(&[&PATHS, &BESIDE_READS]) {
            return None;
        }
        let paths = self.paths(PathScope::System)?;
        (!paths.is_empty()).then(|| {
            paths.into_iter().map(|path| NormalizedCall::new("read", json!({ "path": path }))).collect()
        })
    }

    /// Every path of the report, normalized.
    fn paths(&self, reach: PathScope) -> Option<Vec<String>> {
        let locations = self.items("locations").iter().filter_map(|place| place["path"].as_str());
        let diffs = self.diffs().map(|(path, _)| path);
        let mut paths: Vec<String> = Vec::new();
        for path in self.raw(&PATHS).chain(locations).chain(diffs) {
            let path = normalize_path(path, self.workspace, reach)?;
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        Some(paths)
    }

    fn diffs(&self) -> impl Iterator<Item = (&str, &Value)> {
        let diffs = self.items("content").iter().filter(|item| item["type"] == "diff");
        diffs.filter_map(|diff| Some((diff["path"].as_str()?, diff)))
    }

    /// One call for each changed file, with the change: a person cannot decide about a change that is not shown.
    fn edits(&self) -> Option<Vec<NormalizedCall>> {
        let is_once = EVERYWHERE
            .iter()
            .all(|name| self.input().and_then(|raw| raw.get(*name)).is_none_or(|all| *all == false));
        // The host's `edit` changes one place.
        if !self.has_only(&[&PATHS, &CONTENTS, &OLD, &NEW, &EVERYWHERE, &[PATCH]]) || !is_once {
            return None;
        }
        let mut edits = Vec::new();
        for (path, diff) in self.diffs() {
            let path = normalize_path(path, self.workspace, PathScope::Workspace)?;
            edits.push(change(path, diff["oldText"].as_str(), diff["newText"].as_str()?));
        }
        let shown = |path: &String| edits.iter().any(|edit: &NormalizedCall| edit.input["path"] == **path);
        let unshown: Vec<String> =
            self.paths(PathScope::Workspace)?.into_iter().filter(|path| !shown(path)).collect();
        match unshown.as_slice() {
            [] if edits.is_empty() => None,
            [] => self.repeats_edits(&edits).then_some(edits),
            [path] if edits.is_empty() => Some(vec![self.change_of(path.clone())?]),
            _ => None,
        }
    }

    /// A change that only the input shows.
    fn change_of(&self, path: String) -> Option<NormalizedCall> {
        if self.has_any(&[PATCH]) {
            return None;
        }
        match (self.only(&CONTENTS), self.only(&OLD), self.only(&NEW)) {
            (Some(content), None, None) if !self.has_any(&OLD) && !self.has_any(&NEW) => {
                Some(change(path, None, content))
            }
            (None, Some(old), Some(new)) if !self.has_any(&CONTENTS) => Some(change(path, Some(old), new)),
            _ => None,
        }
    }

    /// Whether the input shows no other changes than these.
    fn repeats_edits(&self, edits: &[NormalizedCall]) -> bool {
        if ![&CONTENTS[..], &OLD, &NEW, &[PATCH]].iter().any(|names| self.has_any(names)) {
            return true;
        }
        let [NormalizedCall { input, .. }] = edits else { return false };
        let old = input["old"].as_str().unwrap_or_default();
        let Some(new) = input["new"].as_str().or_else(|| input["content"].as_str()) else { return false };
        let is_content = |names: &[&str]| self.only(names).is_some_and(|content| content == new);
        let is_change = || {
            let (Some(from), Some(to)) = (self.only(&OLD), self.only(&NEW)) else { return false };
            (from, to) == (old, new) || old.replacen(from, to, 1) == new
        };
        let is_patch = || self.only(&[PATCH]).is_some_and(|patch| patch_check::leads(old, new, patch));
        (!self.has_any(&CONTENTS) || is_content(&CONTENTS))
            && (!(self.has_any(&OLD) || self.has_any(&NEW)) || is_change())
            && (!self.has_any(&[PATCH]) || is_patch())
    }

    fn command(&self) -> Option<NormalizedCall> {
        let Some(raw) = self.input() else {
            // There is nothing else to go by.
            let line = self.title().trim_matches('`');
            return (!line.is_empty()).then(|| NormalizedCall::new("exec", json!({ "command": line })));
        };
        let raw = raw.as_object()?;
        let is_known = |name: &String| {
            [&COMMANDS[..], &FOLDERS[..], &BESIDE_COMMANDS[..]]
                .iter()
                .any(|names| names.contains(&name.as_str()))
        };
        if !raw.keys().all(is_known) || self.diffs().next().is_some() {
            return None;
        }
        let mut commands = COMMANDS.iter().filter_map(|name| raw.get(*name));
        let line = match (commands.next()?, commands.next()) {
            (Value::String(line), None) if !line.is_empty() => line.clone(),
            (Value::Array(words), None) => {
                shell_line(&words.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?)?
            }
            _ => return None,
        };
        let mut input = json!({ "command": line });
        let mut folders = FOLDERS.iter().filter_map(|name| raw.get(*name)).filter(|folder| !folder.is_null());
        if let Some(folder) = folders.next() {
            let folder = normalize_path(folder.as_str()?, self.workspace, PathScope::System)?;
            if folder != "." {
                input["cwd"] = folder.into();
            }
        }
        folders.next().is_none().then(|| NormalizedCall::new("exec", input))
    }

    /// One call for each place.
    fn searches(&self) -> Option<Vec<NormalizedCall>> {
        let Some(raw) = self.input() else { return self.titled_search().map(|search| vec![search]) };
        let query = self.only(&QUERIES)?;
        if !self.has_only(&[&QUERIES, &PATHS, &BESIDE_QUERIES]) || !raw.is_object() {
            return None;
        }
        // A glob pattern may be a path itself.
        let name = self.call.get("name").and_then(Value::as_str).unwrap_or_else(|| self.title());
        let is_path = query.starts_with(['/', '~']) || query.split('/').any(|part| part == "..");
        if is_path && name.to_ascii_lowercase().contains("glob") {
            return None;
        }
        let paths = self.paths(PathScope::System)?;
        if paths.is_empty() {
            return Some(vec![NormalizedCall::new("search", json!({ "query": query }))]);
        }
        let search = |path: String| NormalizedCall::new("search", json!({ "query": query, "path": path }));
        Some(paths.into_iter().map(search).collect())
    }

    /// A search that only the title describes: `'what' in *.names within folder`, or a folder that is listed.
    fn titled_search(&self) -> Option<NormalizedCall> {
        if !self.items("locations").is_empty() {
            return None;
        }
        let title = self.title();
        if self.call.get("name").is_some_and(|name| name == "list_directory") {
            let path = normalize_path(title, self.workspace, PathScope::System)?;
            return Some(NormalizedCall::new("read", json!({ "path": path })));
        }
        let (query, rest) = title.strip_prefix('\'')?.split_once('\'')?;
        let (names, folder) = match rest.rsplit_once(" within ") {
            Some((names, folder)) => (names, Some(folder)),
            None => (rest, None),
        };
        // A quote in the query could make any folder of it.
        let is_plain = names.is_empty() || names.starts_with(" in ");
        if query.is_empty() || !is_plain || rest.contains('\'') || rest.matches(" within ").count() > 1 {
            return None;
        }
        let mut input = json!({ "query": query });
        if let Some(folder) = folder {
            input["path"] = normalize_path(folder, self.workspace, PathScope::System)?.into();
        }
        Some(NormalizedCall::new("search", input))
    }

    /// One call for each address.
    fn fetches(&self) -> Option<Vec<NormalizedCall>> {
        let fetch = |url: &str| NormalizedCall::new("web_fetch", json!({ "url": url }));
        if self.has_any(&["url", "uri"]) {
            let url = self.only(&["url", "uri"])?;
            return self.has_only(&[&BESIDE_ADDRESSES]).then(|| vec![fetch(url)]);
        }
        if self.has_any(&["prompt"]) {
            let prompted: Vec<NormalizedCall> = addresses(self.only(&["prompt"])?).map(fetch).collect();
            return (self.has_only(&[&BESIDE_ADDRESSES]) && !prompted.is_empty()).then_some(prompted);
        }
        if self.has_any(&["query"]) {
            let query = self.only(&["query"])?;
            let search = || vec![NormalizedCall::new("web_search", json!({ "query": query }))];
            return self.has_only(&[&BESIDE_WEB_QUERIES]).then(search);
        }
        // A truncated title may have lost an address.
        let titled: Vec<NormalizedCall> = addresses(self.title()).map(fetch).collect();
        let is_whole = !self.title().contains("...") && !self.title().contains('…');
        (self.input().is_none() && is_whole && !titled.is_empty()).then_some(titled)
    }

    /// The deletion of one file, as the command that would do the same. What a folder holds is unknown.
    fn file_removal(&self) -> Option<Vec<NormalizedCall>> {
        let paths = self.paths(PathScope::Workspace)?;
        let is_shown = self.diffs().next().is_some();
        (self.has_only(&[&PATHS, &["description"]]) && paths.len() == 1 && !is_shown)
            .then(|| program(["rm", "--", &paths[0]]))
    }

    /// The move of one file, as a command.
    fn file_move(&self) -> Option<Vec<NormalizedCall>> {
        let raw = self.input()?.as_object()?;
        let paths = |(from, to): &(&str, &str)| Some((raw.get(*from)?.as_str()?, raw.get(*to)?.as_str()?));
        let mut moves = MOVES.iter().filter_map(paths);
        let (from, to) = moves.next().filter(|_| moves.next().is_none())?;
        let rest = raw.keys().filter(|name| name.as_str() != "description").count();
        let place = |path: &str| normalize_path(path, self.workspace, PathScope::Workspace);
        let (from, to) = (place(from)?, place(to)?);
        let is_named = |path: &String| *path == from || *path == to;
        let locations = self.items("locations").iter().map(|at| place(at["path"].as_str()?));
        let locations: Vec<String> = locations.collect::<Option<_>>()?;
        let is_shown = self.diffs().next().is_some();
        (rest == 2 && from != to && locations.iter().all(is_named) && !is_shown)
            .then(|| program(["mv", "--", &from, &to]))
    }

    /// A tool of the agent's own, under its own name, with everything that was reported of it.
    fn agent_tool(&self) -> NormalizedCall {
        let name = self.call.get("name").and_then(Value::as_str).unwrap_or_else(|| self.title());
        let word = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
        let mut tool: String = AGENT_PREFIX.chars().chain(name.chars().map(word)).take(MAX_NAME).collect();
        if tool == AGENT_PREFIX {
            tool.push_str("unnamed");
        }
        let raw = self.call.get("rawInput").cloned().unwrap_or_default();
        // For a known kind that is not understood, people see the other fields too.
        let beside = BESIDE_OWN.into_iter().filter_map(|name| Some((name, self.call.get(&name[1..])?)));
        let is_plain = self.call.get("kind").is_none_or(|kind| kind == "other");
        let input = match (raw, is_plain) {
            (raw, true) => raw,
            (Value::Object(mut members), false) => {
                members.extend(beside.map(|(name, value)| (name.to_owned(), value.clone())));
                Value::Object(members)
            }
            (raw, false) => {
                let all = beside.map(|(name, value)| (name.to_owned(), value.clone()));
                Value::Object(all.chain([("_input".to_owned(), raw)]).collect())
            }
        };
        NormalizedCall { tool, input }
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

/// A call that a command describes best.
fn program<const N: usize>(words: [&str; N]) -> Vec<NormalizedCall> {
    vec![NormalizedCall::new("exec", json!({ "command": shell_quoted(words.into_iter()) }))]
}

/// A change of one file: of all of it, or of a piece.
fn change(path: String, old: Option<&str>, new: &str) -> NormalizedCall {
    match old {
        None | Some("") => NormalizedCall::new("write", json!({ "path": path, "content": new })),
        Some(old) => NormalizedCall::new("edit", json!({ "path": path, "old": old, "new": new })),
    }
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

/// The addresses in a text.
fn addresses(text: &str) -> impl Iterator<Item = &str> {
    let word = |word: &&str| word.starts_with("http://") || word.starts_with("https://");
    text.split(|c: char| c.is_whitespace() || "\"'<>()".contains(c)).filter(word)
}

#[cfg(test)]
#[path = "normalize_tests.rs"]
mod tests;
