//! An agent's call in the house's own words, so that one law holds for every agent: a tool that the house has, and its input.
//!
//! What an agent says of a call is not proof of what it will do; the box is there for that. What it does not say, the law
//! shall not take for harmless: a call that is not understood to its last word is a tool of the agent's own (`cli.NAME`), which
//! no mandate has by accident, and whoever is asked about it sees all that the agent said.

use serde_json::{Map, Value, json};

use super::patch;

/// A call in the house's words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) tool: String,
    pub(crate) input: Value,
}

/// Before the names of tools that are the agent's own. No tool of the house is called so.
const FOREIGN: &str = "cli.";

/// Bytes of a tool's name.
const MAX_NAME: usize = 64;

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

    /// Whether leave for this is leave for that: the same thing, as far as an agent tells it twice in the same words. Contents
    /// are left out, since agents shorten them.
    pub(crate) fn covers(&self, told: &Self) -> bool {
        let is_change = |tool: &str| matches!(tool, "write" | "edit");
        let same = |name: &str| self.input[name] == told.input[name];
        match (self.tool.as_str(), told.tool.as_str()) {
            (given, tool) if is_change(given) && is_change(tool) => same("path"),
            (given, tool) if given != tool => false,
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
        let is_patch = || self.only(&[PATCH]).is_some_and(|patch| patch::leads(old, new, patch));
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
            (Value::Array(words), None) => line_of(words)?,
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

/// How far a path may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Workspace,
    /// To what of the box nothing inside can change, too. Elsewhere an agent can lay links, and one of them may lead back.
    System,
}

/// Folders of the box that nothing inside can change.
const SYSTEM: [&str; 8] = ["/usr", "/etc", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];

/// The path as the house calls it, if it is one that the law can judge by.
fn placed(path: &str, workspace: &str, reach: Reach) -> Option<String> {
    let path = inside(path, workspace)?;
    let is_system = |folder: &&str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_near = !path.starts_with('/') || (reach == Reach::System && SYSTEM.iter().any(is_system));
    is_near.then_some(path)
}

/// The path as the house calls it: relative if it is in the workspace, and in one spelling. None where its words do not say
/// where it leads: `..` goes elsewhere behind a link, and `~` is whoever's home.
fn inside(path: &str, workspace: &str) -> Option<String> {
    let path = match path.strip_prefix("file://") {
        Some(address) if address.contains(['%', '?', '#']) => return None,
        Some(path) => path,
        None => path,
    };
    if path.is_empty()
        || path.starts_with('~')
        || path.contains('\0')
        || path.split('/').any(|part| part == "..")
    {
        return None;
    }
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect()
    };
    let own = parts(path);
    if !path.starts_with('/') {
        return Some(if own.is_empty() { ".".to_owned() } else { own.join("/") });
    }
    match own.strip_prefix(parts(workspace).as_slice()) {
        Some([]) => Some(".".to_owned()),
        Some(inner) => Some(inner.join("/")),
        None => Some(format!("/{}", own.join("/"))),
    }
}

/// The line that a list of words stands for. A shell of the system that is told a line is that line.
fn line_of(words: &[Value]) -> Option<String> {
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
    let words: Vec<&str> = words.iter().map(Value::as_str).collect::<Option<_>>()?;
    match words.as_slice() {
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
mod tests {
    use super::*;

    fn said(call: Value) -> Vec<(String, Value)> {
        let Value::Object(call) = call else { panic!() };
        wanted(&call, "/workspace").into_iter().map(|wanted| (wanted.tool, wanted.input)).collect()
    }

    fn one(call: Value) -> (String, Value) {
        let mut all = said(call);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    #[test]
    fn calls_get_the_names_that_the_law_knows() {
        let raw = |kind: &str, raw: Value| one(json!({ "kind": kind, "title": "t", "rawInput": raw }));
        assert_eq!(
            raw("read", json!({ "file_path": "/workspace/a/b" })),
            ("read".into(), json!({ "path": "a/b" }))
        );
        assert_eq!(
            raw("read", json!({ "filePath": "/usr/share/doc/x" })),
            ("read".into(), json!({ "path": "/usr/share/doc/x" }))
        );
        let located = json!({ "kind": "read", "rawInput": {}, "locations": [{ "path": "/workspace" }] });
        assert_eq!(one(located), ("read".into(), json!({ "path": "." })));
        assert_eq!(
            raw("execute", json!({ "command": "ls -la" })),
            ("exec".into(), json!({ "command": "ls -la" }))
        );
        let list = json!({ "command": ["/bin/bash", "-lc", "echo $HOME"], "cwd": "/workspace/sub" });
        assert_eq!(raw("execute", list), ("exec".into(), json!({ "command": "echo $HOME", "cwd": "sub" })));
        let words = json!({ "command": ["rm", "it's", "x y"] });
        assert_eq!(raw("execute", words), ("exec".into(), json!({ "command": "rm 'it'\\''s' 'x y'" })));
        assert_eq!(
            one(json!({ "kind": "execute", "title": "`git status`" })).1,
            json!({ "command": "git status" })
        );
        assert_eq!(raw("fetch", json!({ "url": "https://a.example" })).0, "web_fetch");
        assert_eq!(
            raw("fetch", json!({ "query": "cats" })),
            ("web_search".into(), json!({ "query": "cats" }))
        );
        let prompt = json!({ "prompt": "read (https://a.example/x) please" });
        assert_eq!(raw("fetch", prompt), ("web_fetch".into(), json!({ "url": "https://a.example/x" })));
        assert_eq!(
            raw("search", json!({ "pattern": "x", "path": "/workspace/d" })).1,
            json!({ "query": "x", "path": "d" })
        );
        assert_eq!(raw("delete", json!({ "path": "/workspace/a b" })).1, json!({ "command": "rm -- 'a b'" }));
        assert!(said(json!({ "kind": "think", "title": "hm" })).is_empty());
    }

    #[test]
    fn every_file_of_an_edit_is_a_call() {
        let diff =
            |path: &str, old: Value| json!({ "type": "diff", "path": path, "oldText": old, "newText": "n" });
        let mut call = json!({
            "kind": "edit", "locations": [{ "path": "/workspace/b" }, { "path": "/workspace/a" }],
            "content": [diff("/workspace/a", Value::Null), diff("/workspace/b", json!("o"))],
        });
        assert_eq!(
            said(call.clone()),
            [
                ("write".to_owned(), json!({ "path": "a", "content": "n" })),
                ("edit".to_owned(), json!({ "path": "b", "old": "o", "new": "n" })),
            ]
        );
        // A file that is named and not shown: nobody knows what comes of it.
        call["locations"][0]["path"] = json!("/workspace/c");
        let (tool, input) = one(call);
        assert_eq!((tool.as_str(), &input["_locations"][0]["path"]), ("cli.unnamed", &json!("/workspace/c")));
        let many: Vec<Value> = (0..65).map(|n| diff(&format!("/workspace/{n}"), Value::Null)).collect();
        let (tool, input) = one(json!({ "kind": "edit", "name": "patch", "content": many }));
        assert_eq!((tool.as_str(), input["_content"].as_array().unwrap().len()), ("cli.patch", 65));
    }

    #[test]
    fn an_edit_is_shown_whole_or_is_not_understood() {
        let edit = |raw: Value| one(json!({ "kind": "edit", "name": "Edit", "rawInput": raw }));
        let path = "/workspace/a";
        assert_eq!(
            edit(json!({ "file_path": path, "old_string": "o", "new_string": "n" })),
            ("edit".to_owned(), json!({ "path": "a", "old": "o", "new": "n" }))
        );
        assert_eq!(
            edit(json!({ "file_path": path, "content": "" })),
            ("write".to_owned(), json!({ "path": "a", "content": "" }))
        );
        for raw in [
            json!({ "file_path": path, "edits": [{ "old_string": "o", "new_string": "n" }] }),
            json!({ "file_path": path, "new_string": "n" }),
            json!({ "file_path": path, "old_string": "o", "new_string": "n", "replace_all": true }),
            json!({ "file_path": path, "content": "c", "file_text": "d" }),
            json!({ "file_path": path, "path": "/workspace/b", "content": "c" }),
            json!({ "file_path": path, "content": "c", "mode": "append" }),
            json!({ "file_path": "/tmp/a", "content": "c" }),
            json!({ "file_path": path }),
        ] {
            let (tool, input) = edit(raw.clone());
            assert_eq!((tool.as_str(), &input["file_path"]), ("cli.Edit", &raw["file_path"]), "{raw}");
        }
    }

    #[test]
    fn l1_one_file_has_one_name() {
        let path =
            |path: &str| one(json!({ "kind": "read", "name": "Read", "rawInput": { "file_path": path } }));
        for same in [
            "secrets/key",
            "./secrets//key",
            "/workspace/secrets/key",
            "//workspace/secrets/key",
            "/./workspace/./secrets/key/",
            "file:///workspace/secrets/key",
        ] {
            assert_eq!(path(same), ("read".into(), json!({ "path": "secrets/key" })), "{same}");
        }
        for unplaced in [
            "/workspace/../workspace/secrets/key",
            "../workspace/secrets/key",
            "link/../secrets/key",
            "/proc/self/cwd/secrets/key",
            "/proc/self/root/workspace/secrets/key",
            "/dev/fd/3",
            "/home/session/link/key",
            "/tmp/link",
            "/var/tmp/link",
            "/usr/../workspace/secrets/key",
            "/workspaces/x",
            "~/x",
            "file:///workspace/secrets%2Fkey",
            "a\0b",
        ] {
            assert_eq!(path(unplaced).0, "cli.Read", "{unplaced}");
        }
        // Each of several is asked about.
        let several =
            json!({ "kind": "read", "rawInput": { "path": "a" }, "locations": [{ "path": "/workspace/b" }] });
        let reads = [json!({ "path": "a" }), json!({ "path": "b" })].map(|input| ("read".to_owned(), input));
        assert_eq!(said(several), reads);
    }

    #[test]
    fn l1_a_command_is_understood_to_its_last_word() {
        let run =
            |raw: Value| one(json!({ "kind": "execute", "title": "ls", "name": "Bash", "rawInput": raw }));
        for raw in [
            json!({ "command": "git", "args": ["push", "--force"] }),
            json!({ "command": "ls", "env": { "BASH_ENV": "x" } }),
            json!({ "command": "sh", "stdin": "rm -rf ." }),
            json!({ "command": "ls", "shell": "/workspace/x" }),
            json!({ "command": "", "cmd": "rm -rf ." }),
            json!({ "command": "ls", "cmd": "rm -rf ." }),
            json!({ "script": "rm -rf ." }),
            json!({ "command": ["ls", { "x": 1 }] }),
            json!({ "command": [] }),
            json!({ "command": 5 }),
            json!({ "command": "ls", "cwd": "/proc/self/cwd/secrets" }),
            json!({ "command": "ls", "cwd": "a", "workdir": "b" }),
            json!("rm -rf ."),
        ] {
            assert_eq!(run(raw.clone()).0, "cli.Bash", "{raw}");
        }
        let shell = |shell: &str| run(json!({ "command": [shell, "-lc", "ls"] })).1;
        for of_the_system in ["bash", "/bin/sh", "/usr/bin/zsh"] {
            assert_eq!(shell(of_the_system), json!({ "command": "ls" }));
        }
        assert_eq!(shell("/workspace/x/bash"), json!({ "command": "/workspace/x/bash -lc ls" }));
        assert_eq!(shell("./bash"), json!({ "command": "./bash -lc ls" }));
        let beside = json!({ "command": "ls", "description": "x", "timeout": 5, "working_directory": "/workspace/sub" });
        assert_eq!(run(beside), ("exec".into(), json!({ "command": "ls", "cwd": "sub" })));
    }

    #[test]
    fn every_address_is_a_call_and_what_is_sent_there_is_seen() {
        let fetch = |raw: Value| said(json!({ "kind": "fetch", "name": "Fetch", "rawInput": raw }));
        let urls = ["https://a.example/x", "http://b.example"];
        let two = fetch(json!({ "prompt": format!("compare {} and <{}>", urls[0], urls[1]) }));
        assert_eq!(two, urls.map(|url| ("web_fetch".to_owned(), json!({ "url": url }))));
        for raw in [
            json!({ "url": "https://a.example", "method": "POST", "body": "secret" }),
            json!({ "url": "https://a.example", "uri": "https://b.example" }),
            json!({ "prompt": "no address" }),
        ] {
            assert_eq!(fetch(raw.clone())[0].0, "cli.Fetch", "{raw}");
        }
    }

    #[test]
    fn leave_covers_the_same_thing_and_nothing_beside_it() {
        let all = [
            Wanted::new("write", json!({ "path": "a", "content": "x" })),
            Wanted::new("read", json!({ "path": "a" })),
            Wanted::new("read", json!({ "path": "b" })),
            Wanted::new("exec", json!({ "command": "ls" })),
            Wanted::new("exec", json!({ "command": "ls", "cwd": "sub" })),
            Wanted::new("exec", json!({ "command": "rm -rf src" })),
            Wanted::new("web_fetch", json!({ "url": "https://a.example" })),
            Wanted::new("cli.Task", json!({ "a": 1 })),
            Wanted::new("cli.Task", json!({ "a": 2 })),
        ];
        for (n, given) in all.iter().enumerate() {
            for (m, done) in all.iter().enumerate() {
                assert_eq!(given.covers(done), n == m, "{given:?} {done:?}");
            }
        }
        let edit = Wanted::new("edit", json!({ "path": "a", "old": "o", "new": "n" }));
        assert!(edit.covers(&all[0]) && all[0].covers(&edit), "a change of the same file");
        let told = Wanted::new("cli.Task", json!({ "a": 1, "_content": ["what came of it"] }));
        assert!(all[7].covers(&told) && !all[8].covers(&told));
    }

    #[test]
    fn what_is_told_as_done_is_known_by_its_files() {
        let told = |call: Value| -> Vec<(String, Value)> {
            let Value::Object(call) = call else { panic!() };
            done(&call, "/workspace")
                .into_iter()
                .map(|done| (done.tool, done.input["path"].clone()))
                .collect()
        };
        let words = json!([{ "type": "content", "content": { "type": "text", "text": "Wrote it." } }]);
        let raw = json!({ "filepath": "/workspace/a", "diff": "+x" });
        let edited = json!({ "kind": "edit", "title": "a", "rawInput": raw, "content": words, "locations": [{ "path": "/workspace/b" }] });
        assert_eq!(told(edited), [("write".to_owned(), json!("a")), ("write".to_owned(), json!("b"))]);
        let elsewhere =
            json!({ "kind": "edit", "name": "Edit", "locations": [{ "path": "/proc/self/cwd/a" }] });
        assert_eq!(told(elsewhere)[0].0, "cli.Edit");
        let more =
            json!({ "kind": "execute", "name": "Bash", "rawInput": { "command": "ls", "args": ["x"] } });
        assert_eq!(told(more)[0].0, "cli.Bash");
    }

    /// What agents really say, and what nobody could know from what they would have said.
    #[test]
    fn l1_every_kind_is_understood_to_its_last_word() {
        let told = |kind: &str, raw: Value| {
            said(json!({ "kind": kind, "name": "Tool", "title": "t", "rawInput": raw }))
        };
        let file = "/workspace/a";
        for (kind, raw) in [
            ("read", json!({ "path": file, "paths": ["/workspace/b"] })),
            ("read", json!({ "file_path": file, "path": ["/workspace/b"] })),
            ("read", json!({ "path": file, "follow": true })),
            ("search", json!({ "pattern": "x", "path": file, "paths": ["/workspace/b"] })),
            ("search", json!({ "pattern": "x", "query": "y" })),
            ("search", json!({ "path": file })),
            ("delete", json!({ "path": file, "recursive": true })),
            ("delete", json!({ "path": file, "file_path": "/workspace/b" })),
            ("move", json!({ "path": file })),
            (
                "move",
                json!({ "from": file, "to": "/workspace/b", "source": file, "destination": "/workspace/c" }),
            ),
            ("move", json!({ "from": file, "to": "/workspace/b", "overwrite": true })),
            ("fetch", json!({ "prompt": "https://a.example", "method": "POST", "body": "x" })),
            ("fetch", json!({ "query": "cats", "urls": ["https://a.example"] })),
        ] {
            let found = told(kind, raw.clone());
            assert_eq!((found.len(), found[0].0.as_str()), (1, "cli.Tool"), "{kind}: {raw}");
        }
        for (kind, raw, house, input) in [
            ("read", json!({ "file_path": file, "offset": 1, "limit": 5 }), "read", json!({ "path": "a" })),
            (
                "read",
                json!({ "file_path": file, "start_line": 1, "end_line": 2 }),
                "read",
                json!({ "path": "a" }),
            ),
            (
                "search",
                json!({ "pattern": "x", "path": "/workspace", "include": "*.txt" }),
                "search",
                json!({ "query": "x", "path": "." }),
            ),
            ("search", json!({ "pattern": "*.txt" }), "search", json!({ "query": "*.txt" })),
            (
                "move",
                json!({ "from": file, "to": "/workspace/b" }),
                "exec",
                json!({ "command": "mv -- a b" }),
            ),
            ("move", json!({ "path": file, "destination": "b" }), "exec", json!({ "command": "mv -- a b" })),
        ] {
            assert_eq!(told(kind, raw.clone()), [(house.to_owned(), input)], "{kind}: {raw}");
        }
        let glob = |pattern: &str| {
            one(json!({ "kind": "search", "name": "Glob", "rawInput": { "pattern": pattern } })).0
        };
        assert_eq!(
            (glob("**/*.rs"), glob("/etc/*"), glob("../x/*")),
            ("search".into(), "cli.Glob".into(), "cli.Glob".into())
        );
    }

    #[test]
    fn l1_a_change_that_is_shown_says_the_same_in_its_input() {
        let diff = |old: Value, new: &str| json!([{ "type": "diff", "path": "/workspace/a", "oldText": old, "newText": new }]);
        let edit = |raw: Value, content: Value| {
            one(json!({ "kind": "edit", "name": "Edit", "rawInput": raw, "content": content })).0
        };
        let path = "/workspace/a";
        let patch = "Index: a\n===\n--- a\n+++ a\n@@ -1,1 +1,1 @@\n-notes\n+nodes\n";
        for (raw, content) in [
            (
                json!({ "file_path": path, "old_string": "notes", "new_string": "nodes" }),
                diff(json!("notes"), "nodes"),
            ),
            (
                json!({ "file_path": path, "old_string": "notes", "new_string": "nodes" }),
                diff(json!("my notes\n"), "my nodes\n"),
            ),
            (json!({ "filepath": path, "diff": patch }), diff(json!("notes\n"), "nodes\n")),
            (
                json!({ "file_path": path, "old_string": "o", "new_string": "n", "replace_all": false }),
                diff(json!("o"), "n"),
            ),
        ] {
            assert_eq!(edit(raw.clone(), content), "edit", "{raw}");
        }
        assert_eq!(edit(json!({ "file_path": path, "content": "x" }), diff(Value::Null, "x")), "write");
        for (raw, content) in [
            (json!({ "file_path": path, "content": "EVIL" }), diff(json!("notes"), "n")),
            (
                json!({ "file_path": path, "old_string": "o", "new_string": "n" }),
                diff(json!("notes"), "nodes"),
            ),
            (
                json!({ "file_path": path, "old_string": "o", "new_string": "n", "replace_all": true }),
                diff(json!("o"), "n"),
            ),
            (
                json!({ "filePath": path, "oldString": "o", "newString": "n", "replaceAll": true }),
                diff(json!("o o"), "n n"),
            ),
            (json!({ "filepath": path, "diff": patch }), diff(json!("notes\n"), "other\n")),
            (json!({ "file_path": path, "content": "x", "mode": "append" }), diff(Value::Null, "x")),
            (json!({ "patch": "*** Update File: secrets/key" }), diff(Value::Null, "x")),
            (json!({ "file_path": path, "edits": [1] }), diff(Value::Null, "x")),
        ] {
            assert_eq!(edit(raw.clone(), content), "cli.Edit", "{raw}");
        }
    }

    /// Gemini CLI shows nothing but a title.
    #[test]
    fn l1_a_search_that_only_a_title_tells_has_its_folder() {
        let search = |title: &str| {
            one(json!({ "kind": "search", "name": "grep_search", "title": title, "locations": [] }))
        };
        let found = |input: Value| ("search".to_owned(), input);
        assert_eq!(search("'n'"), found(json!({ "query": "n" })));
        assert_eq!(search("'n' within ./"), found(json!({ "query": "n", "path": "." })));
        assert_eq!(search("'n' in *.txt within secrets"), found(json!({ "query": "n", "path": "secrets" })));
        for unclear in [
            "'it's within x'",
            "'a' within b' within secrets",
            "'a' within b within c",
            "'n' within ../x",
            "n within .",
            "''",
            "Searching the web for: \"cats\"",
        ] {
            assert_eq!(search(unclear).0, "cli.grep_search", "{unclear}");
        }
        let listed = json!({ "kind": "search", "name": "list_directory", "title": "src", "locations": [] });
        assert_eq!(one(listed), ("read".to_owned(), json!({ "path": "src" })));
        let cut = json!({ "kind": "fetch", "name": "web_fetch", "title": "Processing: \"https://a.example https://b...\"" });
        assert_eq!(one(cut).0, "cli.web_fetch");
    }

    #[test]
    fn l1_a_thought_is_words_and_nothing_else() {
        let text = json!({ "type": "content", "content": { "type": "text", "text": "hm" } });
        assert!(
            said(
                json!({ "kind": "think", "title": "hm", "rawInput": {}, "content": [text], "locations": [] })
            )
            .is_empty()
        );
        for more in [
            json!({ "content": [{ "type": "diff", "path": "/workspace/a", "newText": "x" }] }),
            json!({ "content": [{ "type": "terminal", "terminalId": "1" }] }),
            json!({ "locations": [{ "path": "/workspace/a" }] }),
            json!({ "rawInput": { "patch": "x" } }),
            json!({ "rawInput": { "description": "d", "prompt": "p", "subagent_type": "s" } }),
            json!({ "rawInput": "rm" }),
        ] {
            let mut call = json!({ "kind": "think", "name": "Hm" });
            call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(one(call).0, "cli.Hm", "{more}");
        }
    }

    #[test]
    fn what_is_not_told_is_nothing_harmless() {
        assert_eq!(one(json!({ "kind": "read", "title": "Read" })).0, "cli.Read");
        assert_eq!(
            one(json!({ "kind": "edit", "name": "Write", "rawInput": { "content": "x" } })).0,
            "cli.Write"
        );
        assert_eq!(one(json!({ "kind": "delete" })).0, "cli.unnamed");
        // A tool of the agent's own never has the name of one of the house.
        assert_eq!(
            one(json!({ "kind": "other", "name": "read", "rawInput": { "path": "x" } })).0,
            "cli.read"
        );
        assert_eq!(one(json!({ "title": "Do a thing!" })).0, "cli.Do_a_thing_");
        assert_eq!(
            one(json!({ "kind": "think", "name": "Hm", "rawInput": { "command": "rm -rf ." } })).0,
            "cli.Hm"
        );
        let long = json!({ "kind": "invented", "name": "x".repeat(200) });
        assert_eq!(one(long).0.len(), MAX_NAME);
    }
}
