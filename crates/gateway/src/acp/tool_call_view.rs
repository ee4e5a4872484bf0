//! How a tool call looks in an editor: its title, its locations, and its diff.

use serde_json::{Map, Value, json};
use tribune_constitution::MCP;
use tribune_governance::approval::ReplacedContent;

use super::cwd::OWN;
use crate::calls::RequestedCall;

/// Maximum characters of a title.
const MAX_TITLE: usize = 200;

/// The fields that describe a call to people.
pub(super) const WHAT_IS_SHOWN: [&str; 6] = ["title", "kind", "rawInput", "locations", "content", "name"];

/// The fields of a tool call, except its id and status.
pub(super) fn shown(tool: &str, input: &Value, folder: &str) -> Map<String, Value> {
    let mut shown = Map::new();
    shown.insert("title".to_owned(), title(tool, input).into());
    shown.insert("kind".to_owned(), kind(tool).into());
    shown.insert("rawInput".to_owned(), input.clone());
    shown.insert("name".to_owned(), tool.into());
    if let Some(path) =
        input["path"].as_str().filter(|_| matches!(tool, "read" | "write" | "edit" | "search"))
    {
        let path = absolute(path, folder);
        shown.insert("locations".to_owned(), json!([{ "path": path }]));
        let change = match tool {
            "write" => {
                input["content"].as_str().map(|new| json!({ "type": "diff", "path": path, "newText": new }))
            }
            "edit" => input["old"]
                .as_str()
                .zip(input["new"].as_str())
                .map(|(old, new)| json!({ "type": "diff", "path": path, "oldText": old, "newText": new })),
            _ => None,
        };
        shown.insert("content".to_owned(), change.into_iter().collect::<Vec<_>>().into());
    }
    shown
}

/// The fields of a call that waits for a person: with the folder that it works in, and the file that it replaces.
pub(super) fn requested(call: &RequestedCall, workspace: &str) -> Map<String, Value> {
    let mut fields = shown(&call.tool, &call.input, call.folder.as_deref().unwrap_or(workspace));
    let content = call.replaces.as_ref().map(|file| &file.content);
    match (content, fields.get_mut("content").and_then(|list| list.get_mut(0))) {
        (Some(ReplacedContent::Text(old)), Some(diff)) if call.tool == "write" => {
            diff["oldText"] = old.as_str().into();
        }
        // A diff without `oldText` would say that the file is new.
        (Some(ReplacedContent::NotShown), Some(diff)) if call.tool == "write" => {
            let text = "replaces an existing file, which is not shown: it is large, or no text";
            *diff = json!({ "type": "content", "content": { "type": "text", "text": text } });
        }
        _ => {}
    }
    fields
}

/// The ACP kind of a tool.
pub(super) fn kind(tool: &str) -> &'static str {
    match tool {
        "read" => "read",
        "write" | "edit" => "edit",
        "search" => "search",
        "exec" => "execute",
        "web_fetch" | "web_search" => "fetch",
        "memory" => "think",
        _ => "other",
    }
}

fn title(tool: &str, input: &Value) -> String {
    let what = ["path", "command", "url", "query", "text", "to", "key"]
        .into_iter()
        .find_map(|field| input[field].as_str());
    let of_server = input["name"].as_str().zip(input["action"].as_str()).filter(|_| tool == MCP);
    let title = match what {
        _ if let Some((server, action)) = of_server => format!("{server}: {action}"),
        Some(what) => format!("{tool} {what}"),
        None => tool.to_owned(),
    };
    title.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_TITLE).collect()
}

/// Replaces the sandbox path of the workspace with the client's path, in an agent's own description of a call.
pub(super) fn as_clients_know_it(said: &mut Map<String, Value>, folder: &str) {
    if folder == OWN {
        return;
    }
    for name in ["locations", "content"] {
        let list = said.get_mut(name).and_then(Value::as_array_mut);
        for path in list.into_iter().flatten().filter_map(|item| item.get_mut("path")) {
            let inside = path.as_str().and_then(|path| path.strip_prefix(OWN));
            if let Some(inside) = inside.filter(|inside| inside.is_empty() || inside.starts_with('/')) {
                *path = format!("{}{inside}", folder.trim_end_matches('/')).into();
            }
        }
    }
}

/// The absolute path of a workspace file, as the client knows it.
fn absolute(path: &str, folder: &str) -> String {
    match path.strip_prefix('/') {
        Some(_) => path.to_owned(),
        None => format!("{}/{}", folder.trim_end_matches('/'), path.trim_start_matches("./")),
    }
}
