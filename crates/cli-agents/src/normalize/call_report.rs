//! Reads an agent's report of a call as calls in the policy's terms. It decides nothing and compares nothing: it only says
//! whether a report is understood to its last member.

use serde_json::{Map, Value, json};

use super::report_members::{
    BESIDE_ADDRESSES, BESIDE_COMMANDS, BESIDE_OWN, BESIDE_QUERIES, BESIDE_READS, BESIDE_WEB_QUERIES,
    COMMANDS, CONTENTS, EVERYWHERE, FOLDERS, MOVES, NEW, OLD, PATCH, PATHS, QUERIES,
};
use super::{AGENT_PREFIX, MAX_NAME, NormalizedCall, shell_line, shell_quoted};
use crate::patch_check;
use crate::paths::{PathScope, normalize_path};

/// A report that is read.
pub(super) struct CallReport<'a> {
    pub(super) call: &'a Map<String, Value>,
    pub(super) workspace: &'a str,
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
    pub(super) fn is_thought(&self) -> bool {
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
    pub(super) fn reads(&self) -> Option<Vec<NormalizedCall>> {
        if !self.has_only(&[&PATHS, &BESIDE_READS]) {
            return None;
        }
        let paths = self.paths(PathScope::System)?;
        (!paths.is_empty()).then(|| {
            paths.into_iter().map(|path| NormalizedCall::new("read", json!({ "path": path }))).collect()
        })
    }

    /// Every path of the report, normalized.
    pub(super) fn paths(&self, reach: PathScope) -> Option<Vec<String>> {
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
    pub(super) fn edits(&self) -> Option<Vec<NormalizedCall>> {
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

    pub(super) fn command(&self) -> Option<NormalizedCall> {
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
    pub(super) fn searches(&self) -> Option<Vec<NormalizedCall>> {
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
    pub(super) fn fetches(&self) -> Option<Vec<NormalizedCall>> {
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
    pub(super) fn file_removal(&self) -> Option<Vec<NormalizedCall>> {
        let paths = self.paths(PathScope::Workspace)?;
        let is_shown = self.diffs().next().is_some();
        (self.has_only(&[&PATHS, &["description"]]) && paths.len() == 1 && !is_shown)
            .then(|| program(["rm", "--", &paths[0]]))
    }

    /// The move of one file, as a command.
    pub(super) fn file_move(&self) -> Option<Vec<NormalizedCall>> {
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
    pub(super) fn agent_tool(&self) -> NormalizedCall {
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

/// The addresses in a text.
fn addresses(text: &str) -> impl Iterator<Item = &str> {
    let word = |word: &&str| word.starts_with("http://") || word.starts_with("https://");
    text.split(|c: char| c.is_whitespace() || "\"'<>()".contains(c)).filter(word)
}
