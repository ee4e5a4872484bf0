//! An agent's call in the house's own words, so that one law holds for every agent: a tool that the house has, and its input.
//!
//! What an agent says of a call is not proof of what it will do; the box is there for that. What it does not say, the law
//! shall not take for harmless: a call that is not understood to its last word is a tool of the agent's own (`cli.NAME`), which
//! no mandate has by accident, and whoever is asked about it sees all that the agent said.

use serde_json::{Map, Value, json};

use crate::patch_check;
use crate::paths::{Reach, inside, placed};

/// A call in the house's words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) tool: String,
    pub(crate) input: Value,
}

/// Before the names of tools that are the agent's own. No tool of the house is called so.
const FOREIGN: &str = "cli.";

/// Before the names of tools that servers of the house's have.
pub(crate) const SERVED: &str = "mcp__";

/// Bytes of a tool's name.
const MAX_NAME: usize = 64;

/// Characters of a call in a sentence.
const MAX_SHOWN: usize = 80;

/// Calls that one call of an agent's may be. More than a person could look at are one that nobody understands.
const MAX_PARTS: usize = 64;

/// Names under which agents put the path of a call.
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

/// Names under which they put a command, and the folder that it runs in.
const COMMANDS: [&str; 2] = ["command", "cmd"];
const FOLDERS: [&str; 5] = ["cwd", "workdir", "working_directory", "directory", "dir_path"];

/// What may stand beside a command without being part of what runs.
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

/// What may stand beside a path that is read: which piece of it, and how much at once.
const BESIDE_READS: [&str; 9] =
    ["offset", "limit", "start_line", "end_line", "line", "pages", "allow_large", "encoding", "description"];

/// Names under which they put what is looked for, and what may stand beside it without leading elsewhere.
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

/// Names under which they put what a file shall hold, what of it goes, what comes, and whether everywhere.
const CONTENTS: [&str; 2] = ["content", "file_text"];
const OLD: [&str; 2] = ["old_string", "oldString"];
const NEW: [&str; 2] = ["new_string", "newString"];
const EVERYWHERE: [&str; 2] = ["replace_all", "replaceAll"];

/// The change once more, as a patch.
const PATCH: &str = "diff";

/// Names under which they put from where and to where a file is moved.
const MOVES: [(&str, &str); 5] = [
    ("source", "destination"),
    ("from", "to"),
    ("old_path", "new_path"),
    ("oldPath", "newPath"),
    ("path", "destination"),
];

/// What may stand beside an address without changing what is sent there.
const BESIDE_ADDRESSES: [&str; 7] = ["url", "uri", "prompt", "format", "timeout", "offset", "description"];

/// What may stand beside a question to the web.
const BESIDE_WEB_QUERIES: [&str; 4] = ["query", "allowed_domains", "blocked_domains", "description"];

/// What is put beside the input of a call that is not understood: these fields of it.
const BESIDE_OWN: [&str; 3] = ["_kind", "_locations", "_content"];

/// What the call as told so far would do. Empty if nothing: a thought.
pub(crate) fn wanted(call: &Map<String, Value>, workspace: &str) -> Vec<Wanted> {
    let told = Told { call, workspace };
    let understood = match call.get("kind").and_then(Value::as_str).unwrap_or("other") {
        "think" if told.is_thought() => Some(Vec::new()),
        "read" => told.reads(),
        "edit" => told.edits(),
        "delete" => told.removal(),
        "move" => told.move_(),
        "execute" => told.command().map(|command| vec![command]),
        "search" => told.searches(),
        "fetch" => told.fetches(),
        _ => None,
    };
    match understood {
        Some(parts) if parts.len() <= MAX_PARTS => parts,
        Some(_) | None => vec![told.foreign()],
    }
}

/// The same of a call that the agent asks about: then it is no mere thought, whatever it is called.
pub(crate) fn asked(call: &Map<String, Value>, workspace: &str) -> Vec<Wanted> {
    let wanted = wanted(call, workspace);
    if wanted.is_empty() { vec![Told { call, workspace }.foreign()] } else { wanted }
}

/// A file that the agent wants written for it. The house's own hands refuse what leads out of the workspace.
pub(crate) fn written(path: &str, content: &str, workspace: &str) -> Wanted {
    let path = inside(path, workspace).unwrap_or_else(|| path.to_owned());
    Wanted::new("write", json!({ "path": path, "content": content }))
}

/// A file that the agent wants read for it.
pub(crate) fn read(path: &str, workspace: &str) -> Wanted {
    let path = inside(path, workspace).unwrap_or_else(|| path.to_owned());
    Wanted::new("read", json!({ "path": path }))
}

/// A command that the agent wants run for it: a line for the shell, or a program and its words. None if it would run outside of the
/// workspace.
pub(crate) fn run(command: &str, args: &[&str], cwd: Option<&str>, workspace: &str) -> Option<Wanted> {
    let line = match args {
        [] => command.to_owned(),
        args => line_of(&[&[command], args].concat())?,
    };
    let mut input = json!({ "command": line });
    if let Some(cwd) = cwd {
        let folder = placed(cwd, workspace, Reach::Workspace)?;
        if folder != "." {
            input["cwd"] = folder.into();
        }
    }
    Some(Wanted::new("exec", input))
}

/// What a call that is told as done says that it did, to be held against what leave was given for. What came of a change takes
/// the place of what told which change it was, so that it is known by the files that it names. Empty if it names none any more.
pub(crate) fn done(call: &Map<String, Value>, workspace: &str) -> Vec<Wanted> {
    let told = Told { call, workspace };
    if call.get("kind").is_some_and(|kind| kind == "edit")
        && let Some(paths) = told.paths(Reach::Workspace).filter(|paths| paths.len() <= MAX_PARTS)
    {
        let change = |path: String| Wanted::new("write", json!({ "path": path, "content": "" }));
        return paths.into_iter().map(change).collect();
    }
    asked(call, workspace)
}

impl Wanted {
    fn new(tool: &str, input: Value) -> Self {
        Self { tool: tool.to_owned(), input }
    }

    /// Whether it is a tool that only the agent knows.
    pub(crate) fn is_foreign(&self) -> bool {
        self.tool.starts_with(FOREIGN)
    }

    /// What it is called in sentences: the command, or the tool and what it is about. Of a tool that only the agent knows, what the
    /// agent calls the whole.
    pub(crate) fn shown(&self, title: &str) -> String {
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

    /// Whether it is a tool of a server that the house runs: nobody else can make the call.
    pub(crate) fn is_served(&self) -> bool {
        self.tool.starts_with(SERVED)
    }

    /// Whether leave for this is leave for that: the same thing, as far as an agent tells it twice in the same words. Contents
    /// are left out, since agents shorten them.
    pub(crate) fn covers(&self, told: &Self) -> bool {
        let is_change = |tool: &str| matches!(tool, "write" | "edit");
        let same = |name: &str| self.input[name] == told.input[name];
        match (self.tool.as_str(), told.tool.as_str()) {
            (given, tool) if is_change(given) && is_change(tool) => same("path"),
            (given, tool) if given != tool => false,
            // Some agents tell nothing of the arguments.
            _ if self.is_served() => told.input == self.input || told.input == json!({}),
            ("read", _) => same("path"),
            ("exec", _) => same("command") && same("cwd"),
            ("web_fetch", _) => same("url"),
            ("search" | "web_search", _) => same("query") && same("path"),
            _ => own_words(&self.input) == own_words(&told.input),
        }
    }
}

/// The input of a tool of the agent's own, without what was put beside it.
fn own_words(input: &Value) -> Value {
    match input {
        Value::Object(members) => {
            let own = members.iter().filter(|(name, _)| !BESIDE_OWN.contains(&name.as_str()));
            Value::Object(own.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        other => other.clone(),
    }
}

struct Told<'a> {
    call: &'a Map<String, Value>,
    workspace: &'a str,
}

/// What is not understood is `None` here: then the whole is a tool of the agent's own.
impl Told<'_> {
    /// The input in the agent's own words; none if it told nothing of it.
    fn input(&self) -> Option<&Value> {
        self.call
            .get("rawInput")
            .filter(|raw| !raw.is_null() && raw.as_object().is_none_or(|raw| !raw.is_empty()))
    }

    /// The texts under these names.
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

    /// Whether it is words and nothing else.
    fn is_thought(&self) -> bool {
        self.input().is_none()
            && self.items("locations").is_empty()
            && self.items("content").iter().all(|item| item["type"] == "content")
    }

    /// Whether the input, if there is one, has members of these names alone, and a text under each name of a path.
    fn has_only(&self, names: &[&[&str]]) -> bool {
        let Some(raw) = self.input() else { return true };
        let is_known = |name: &str| names.iter().any(|names| names.contains(&name));
        let is_text = |name: &str, value: &Value| !PATHS.contains(&name) || value.is_string();
        raw.as_object()
            .is_some_and(|raw| raw.iter().all(|(name, value)| is_known(name) && is_text(name, value)))
    }

    /// The one text under these names; none if there are several.
    fn only(&self, names: &[&str]) -> Option<&str> {
        let raw = self.input()?;
        let mut texts = names.iter().filter_map(|name| raw.get(name)?.as_str());
        texts.next().filter(|_| texts.next().is_none())
    }

    fn has_any(&self, names: &[&str]) -> bool {
        self.input().is_some_and(|raw| names.iter().any(|name| raw.get(name).is_some()))
    }

    /// One call for each file.
    fn reads(&self) -> Option<Vec<Wanted>> {
        if !self.has_only(&[&PATHS, &BESIDE_READS]) {
            return None;
        }
        let paths = self.paths(Reach::System)?;
        (!paths.is_empty())
            .then(|| paths.into_iter().map(|path| Wanted::new("read", json!({ "path": path }))).collect())
    }

    /// Every path that is told, as the house calls it.
    fn paths(&self, reach: Reach) -> Option<Vec<String>> {
        let locations = self.items("locations").iter().filter_map(|place| place["path"].as_str());
        let diffs = self.diffs().map(|(path, _)| path);
        let mut paths: Vec<String> = Vec::new();
        for path in self.raw(&PATHS).chain(locations).chain(diffs) {
            let path = placed(path, self.workspace, reach)?;
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

    /// One call for each file that would change, with what would change in it: nobody is asked about a change that is not shown.
    fn edits(&self) -> Option<Vec<Wanted>> {
        let is_once = EVERYWHERE
            .iter()
            .all(|name| self.input().and_then(|raw| raw.get(*name)).is_none_or(|all| *all == false));
        // The house's own edit changes one place.
        if !self.has_only(&[&PATHS, &CONTENTS, &OLD, &NEW, &EVERYWHERE, &[PATCH]]) || !is_once {
            return None;
        }
        let mut edits = Vec::new();
        for (path, diff) in self.diffs() {
            let path = placed(path, self.workspace, Reach::Workspace)?;
            edits.push(change(path, diff["oldText"].as_str(), diff["newText"].as_str()?));
        }
        let shown = |path: &String| edits.iter().any(|edit: &Wanted| edit.input["path"] == **path);
        let unshown: Vec<String> =
            self.paths(Reach::Workspace)?.into_iter().filter(|path| !shown(path)).collect();
        match unshown.as_slice() {
            [] if edits.is_empty() => None,
            [] => self.repeats(&edits).then_some(edits),
            [path] if edits.is_empty() => Some(vec![self.change_of(path.clone())?]),
            _ => None,
        }
    }

    /// A change that only the input tells.
    fn change_of(&self, path: String) -> Option<Wanted> {
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

    /// Whether the input says no more of these changes than what is shown of them.
    fn repeats(&self, edits: &[Wanted]) -> bool {
        if ![&CONTENTS[..], &OLD, &NEW, &[PATCH]].iter().any(|names| self.has_any(names)) {
            return true;
        }
        let [Wanted { input, .. }] = edits else { return false };
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

    fn command(&self) -> Option<Wanted> {
        let Some(raw) = self.input() else {
            // There is nothing else to go by.
            let line = self.title().trim_matches('`');
            return (!line.is_empty()).then(|| Wanted::new("exec", json!({ "command": line })));
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
                line_of(&words.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?)?
            }
            _ => return None,
        };
        let mut input = json!({ "command": line });
        let mut folders = FOLDERS.iter().filter_map(|name| raw.get(*name)).filter(|folder| !folder.is_null());
        if let Some(folder) = folders.next() {
            let folder = placed(folder.as_str()?, self.workspace, Reach::System)?;
            if folder != "." {
                input["cwd"] = folder.into();
            }
        }
        folders.next().is_none().then(|| Wanted::new("exec", input))
    }

    /// One call for each place.
    fn searches(&self) -> Option<Vec<Wanted>> {
        let Some(raw) = self.input() else { return self.titled_search().map(|search| vec![search]) };
        let query = self.only(&QUERIES)?;
        if !self.has_only(&[&QUERIES, &PATHS, &BESIDE_QUERIES]) || !raw.is_object() {
            return None;
        }
        // A pattern of names may be a path itself.
        let name = self.call.get("name").and_then(Value::as_str).unwrap_or_else(|| self.title());
        let is_path = query.starts_with(['/', '~']) || query.split('/').any(|part| part == "..");
        if is_path && name.to_ascii_lowercase().contains("glob") {
            return None;
        }
        let paths = self.paths(Reach::System)?;
        if paths.is_empty() {
            return Some(vec![Wanted::new("search", json!({ "query": query }))]);
        }
        let search = |path: String| Wanted::new("search", json!({ "query": query, "path": path }));
        Some(paths.into_iter().map(search).collect())
    }

    /// A search of which only the title tells: `'what' in *.names within folder`, or a folder that is listed.
    fn titled_search(&self) -> Option<Wanted> {
        if !self.items("locations").is_empty() {
            return None;
        }
        let title = self.title();
        if self.call.get("name").is_some_and(|name| name == "list_directory") {
            let path = placed(title, self.workspace, Reach::System)?;
            return Some(Wanted::new("read", json!({ "path": path })));
        }
        let (query, rest) = title.strip_prefix('\'')?.split_once('\'')?;
        let (names, folder) = match rest.rsplit_once(" within ") {
            Some((names, folder)) => (names, Some(folder)),
            None => (rest, None),
        };
        // A quote in what is looked for could make any folder of it.
        let is_plain = names.is_empty() || names.starts_with(" in ");
        if query.is_empty() || !is_plain || rest.contains('\'') || rest.matches(" within ").count() > 1 {
            return None;
        }
        let mut input = json!({ "query": query });
        if let Some(folder) = folder {
            input["path"] = placed(folder, self.workspace, Reach::System)?.into();
        }
        Some(Wanted::new("search", input))
    }

    /// One call for each address.
    fn fetches(&self) -> Option<Vec<Wanted>> {
        let fetch = |url: &str| Wanted::new("web_fetch", json!({ "url": url }));
        if self.has_any(&["url", "uri"]) {
            let url = self.only(&["url", "uri"])?;
            return self.has_only(&[&BESIDE_ADDRESSES]).then(|| vec![fetch(url)]);
        }
        if self.has_any(&["prompt"]) {
            let prompted: Vec<Wanted> = addresses(self.only(&["prompt"])?).map(fetch).collect();
            return (self.has_only(&[&BESIDE_ADDRESSES]) && !prompted.is_empty()).then_some(prompted);
        }
        if self.has_any(&["query"]) {
            let query = self.only(&["query"])?;
            let search = || vec![Wanted::new("web_search", json!({ "query": query }))];
            return self.has_only(&[&BESIDE_WEB_QUERIES]).then(search);
        }
        // A title that was cut may have lost an address.
        let titled: Vec<Wanted> = addresses(self.title()).map(fetch).collect();
        let is_whole = !self.title().contains("...") && !self.title().contains('…');
        (self.input().is_none() && is_whole && !titled.is_empty()).then_some(titled)
    }

    /// One file that goes, told as the program that would do the same. Of a folder nobody knows what goes with it.
    fn removal(&self) -> Option<Vec<Wanted>> {
        let paths = self.paths(Reach::Workspace)?;
        let is_shown = self.diffs().next().is_some();
        (self.has_only(&[&PATHS, &["description"]]) && paths.len() == 1 && !is_shown)
            .then(|| program(["rm", "--", &paths[0]]))
    }

    /// One file that gets another name, told in the same way.
    fn move_(&self) -> Option<Vec<Wanted>> {
        let raw = self.input()?.as_object()?;
        let told = |(from, to): &(&str, &str)| Some((raw.get(*from)?.as_str()?, raw.get(*to)?.as_str()?));
        let mut moves = MOVES.iter().filter_map(told);
        let (from, to) = moves.next().filter(|_| moves.next().is_none())?;
        let rest = raw.keys().filter(|name| name.as_str() != "description").count();
        let place = |path: &str| placed(path, self.workspace, Reach::Workspace);
        let (from, to) = (place(from)?, place(to)?);
        let is_named = |path: &String| *path == from || *path == to;
        let locations = self.items("locations").iter().map(|at| place(at["path"].as_str()?));
        let locations: Vec<String> = locations.collect::<Option<_>>()?;
        let is_shown = self.diffs().next().is_some();
        (rest == 2 && from != to && locations.iter().all(is_named) && !is_shown)
            .then(|| program(["mv", "--", &from, &to]))
    }

    /// A tool that only the agent knows, under its own name, with everything that it said of it.
    fn foreign(&self) -> Wanted {
        let name = self.call.get("name").and_then(Value::as_str).unwrap_or_else(|| self.title());
        let word = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
        let mut tool: String = FOREIGN.chars().chain(name.chars().map(word)).take(MAX_NAME).collect();
        if tool == FOREIGN {
            tool.push_str("unnamed");
        }
        let raw = self.call.get("rawInput").cloned().unwrap_or_default();
        // Of what was to be understood and was not, people see the rest too.
        let told = BESIDE_OWN.into_iter().filter_map(|name| Some((name, self.call.get(&name[1..])?)));
        let is_plain = self.call.get("kind").is_none_or(|kind| kind == "other");
        let input = match (raw, is_plain) {
            (raw, true) => raw,
            (Value::Object(mut members), false) => {
                members.extend(told.map(|(name, value)| (name.to_owned(), value.clone())));
                Value::Object(members)
            }
            (raw, false) => {
                let all = told.map(|(name, value)| (name.to_owned(), value.clone()));
                Value::Object(all.chain([("_input".to_owned(), raw)]).collect())
            }
        };
        Wanted { tool, input }
    }
}

/// A text for a sentence, on one line, cut between two of its words: half of a secret is not known for one.
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

/// A call that is best told as the program that would do the same.
fn program<const N: usize>(words: [&str; N]) -> Vec<Wanted> {
    vec![Wanted::new("exec", json!({ "command": joined(words.into_iter()) }))]
}

/// A change of one file: of all of it, or of a piece.
fn change(path: String, old: Option<&str>, new: &str) -> Wanted {
    match old {
        None | Some("") => Wanted::new("write", json!({ "path": path, "content": new })),
        Some(old) => Wanted::new("edit", json!({ "path": path, "old": old, "new": new })),
    }
}

/// The line that a list of words stands for. A shell of the system that is told a line is that line.
fn line_of(words: &[&str]) -> Option<String> {
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
        words => Some(joined(words.iter().copied())),
    }
}

/// Words as a shell reads them again.
fn joined<'a>(words: impl Iterator<Item = &'a str>) -> String {
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
