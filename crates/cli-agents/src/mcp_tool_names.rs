//! The tools of a session's MCP servers, by the names that agents have for them.

use serde_json::{Map, Value};

use crate::mcp_bridge::SessionMcpServers;
use crate::normalize::{MCP_PREFIX, NormalizedCall};

/// The names of all tools.
#[derive(Debug, Default)]
pub(crate) struct McpToolNames(Vec<McpToolName>);

#[derive(Debug)]
struct McpToolName {
    known: String,
    /// By the name that the host has for it.
    tool: String,
}

impl McpToolNames {
    /// For the servers that the agent was told of, whatever the law says of them in this turn.
    pub(crate) fn of(servers: Option<&SessionMcpServers>) -> Self {
        let mut all = Vec::new();
        for called in servers.iter().flat_map(|servers| &servers.tools) {
            let parts = called.strip_prefix(MCP_PREFIX).and_then(|rest| rest.split_once("__"));
            let Some((server, own)) = parts else { continue };
            all.extend(spellings(server, own).map(|known| McpToolName { known, tool: called.clone() }));
        }
        Self(all)
    }

    /// The MCP call that a report means, if it can mean nothing else. A report with a kind means what that kind says: a
    /// title is model output, and a server may name itself and its tools like a tool of the agent's own. The kind
    /// counts less only where the input names server and tool, with nothing beside their arguments.
    pub(crate) fn mcp_call(&self, call: &Map<String, Value>) -> Option<NormalizedCall> {
        let is_plain = call.get("kind").is_none_or(|kind| kind == "other");
        let mut like =
            self.matches(call).filter(|(_, is_named)| is_plain || *is_named).map(|(wanted, _)| wanted);
        let first = like.next()?;
        like.all(|other| other.tool == first.tool).then_some(first)
    }

    /// Every MCP call that a report could mean by its name, whatever else it says.
    pub(crate) fn possible(&self, call: &Map<String, Value>) -> Vec<NormalizedCall> {
        self.matches(call).map(|(wanted, _)| wanted).collect()
    }

    /// Tools with the name of a report, and whether its input names them. A report with files or diffs is of something
    /// else.
    fn matches(&self, call: &Map<String, Value>) -> impl Iterator<Item = (NormalizedCall, bool)> {
        let list = |name: &str| call.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let is_words =
            list("locations").is_empty() && list("content").iter().all(|item| item["type"] == "content");
        let name =
            call.get("name").or_else(|| call.get("title")).filter(|_| is_words).and_then(Value::as_str);
        let input = match call.get("rawInput") {
            None | Some(Value::Null) => Some(Map::new()),
            Some(Value::Object(input)) => Some(input.clone()),
            Some(_) => None,
        };
        let named = self.0.iter().filter(move |of| name.is_some_and(|name| of.known == name));
        named.filter_map(move |of| {
            let input = input.as_ref()?;
            let arguments = unwrapped(&of.tool, input);
            let wanted = arguments.unwrap_or(input).clone();
            Some((NormalizedCall { tool: of.tool.clone(), input: wanted.into() }, arguments.is_some()))
        })
    }
}

/// The names that the known agents have for a tool of a server. A name that could mean two tools means none.
fn spellings(server: &str, tool: &str) -> [String; 4] {
    let plain = format!("{server}_{tool}");
    [format!("{MCP_PREFIX}{server}__{tool}"), format!("mcp_{plain}"), format!("mcp.{server}.{tool}"), plain]
}

/// The arguments of a call, where an agent reports them beside the server and the tool.
fn unwrapped<'a>(called: &str, input: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
    let text = |name: &str| input.get(name)?.as_str();
    let is_it = called.strip_prefix(MCP_PREFIX)?.split_once("__")? == (text("server")?, text("tool")?);
    input.get("arguments").filter(|_| is_it && input.len() == 3)?.as_object()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn names(tools: &[&str]) -> McpToolNames {
        let tools = tools.iter().map(|&tool| tool.to_owned()).collect();
        McpToolNames::of(Some(&SessionMcpServers {
            all: Vec::new(),
            tools,
            channel: Arc::default(),
            generation: 1,
        }))
    }

    fn found(names: &McpToolNames, call: Value) -> Option<(String, Value)> {
        let Value::Object(call) = call else { panic!() };
        names.mcp_call(&call).map(|wanted| (wanted.tool, wanted.input))
    }

    #[test]
    fn a_tool_is_found_by_the_names_that_agents_have_for_it() {
        let names = names(&["mcp__git-hub__get_issue", "read", "mcp__broken"]);
        let input = json!({ "n": 1 });
        let wrapped = json!({ "server": "git-hub", "tool": "get_issue", "arguments": input });
        for name in
            ["mcp__git-hub__get_issue", "mcp_git-hub_get_issue", "git-hub_get_issue", "mcp.git-hub.get_issue"]
        {
            let known = Some(("mcp__git-hub__get_issue".to_owned(), input.clone()));
            assert_eq!(found(&names, json!({ "title": name, "kind": "other", "rawInput": input })), known);
            assert_eq!(found(&names, json!({ "title": name, "kind": "other", "rawInput": wrapped })), known);
            // The name of the tool counts for more than the title of the call.
            assert_eq!(found(&names, json!({ "name": name, "title": "x", "rawInput": input })), known);
            assert_eq!(found(&names, json!({ "name": "x", "title": name, "rawInput": input })), None);
        }
        let report = json!({ "title": "git-hub_get_issue" });
        assert_eq!(found(&names, report), Some(("mcp__git-hub__get_issue".to_owned(), json!({}))));
        for other in ["get_issue", "git-hub", "read", "mcp__broken", "broken", ""] {
            assert_eq!(found(&names, json!({ "title": other, "rawInput": input })), None, "{other}");
        }
        let title = "git-hub_get_issue";
        for more in [
            json!({ "title": title, "locations": [{ "path": "/workspace/a" }] }),
            json!({ "title": title, "content": [{ "type": "diff", "path": "/workspace/a", "newText": "" }] }),
            json!({ "title": title, "rawInput": "n" }),
        ] {
            assert_eq!(found(&names, more.clone()), None, "{more}");
        }
    }

    /// A server may name itself and its tool like a tool of the agent's own.
    #[test]
    fn l1_an_agents_own_tool_is_not_taken_for_a_servers() {
        let names = names(&["mcp__run__shell_command"]);
        let input = json!({ "command": "rm -r ." });
        let call = |title: &str, kind: &str| json!({ "title": title, "kind": kind, "rawInput": input });
        assert_eq!(found(&names, call("run_shell_command", "execute")), None);
        let named = json!({ "name": "run_shell_command", "kind": "execute", "rawInput": input });
        assert_eq!(found(&names, named), None);
        assert!(found(&names, call("run_shell_command", "other")).is_some());
        // Titles are model output, however much they look like a server's tool.
        for title in ["mcp.run.shell_command", "mcp__run__shell_command", "mcp_run_shell_command"] {
            assert_eq!(found(&names, call(title, "execute")), None);
            let wrapped = json!({ "server": "run", "tool": "shell_command", "arguments": input });
            let named = json!({ "title": title, "kind": "execute", "rawInput": wrapped });
            assert_eq!(found(&names, named), Some(("mcp__run__shell_command".to_owned(), input.clone())));
            let more =
                json!({ "server": "run", "tool": "shell_command", "arguments": input, "command": "x" });
            assert_eq!(found(&names, json!({ "title": title, "kind": "execute", "rawInput": more })), None);
        }
    }

    #[test]
    fn a_name_that_could_be_two_tools_is_none() {
        let names = names(&["mcp__a__b_c", "mcp__a_b__c"]);
        assert_eq!(found(&names, json!({ "title": "a_b_c" })), None);
        assert_eq!(found(&names, json!({ "title": "mcp_a_b_c" })), None);
        let known = found(&names, json!({ "title": "mcp__a_b__c" }));
        assert_eq!(known.map(|(tool, _)| tool).as_deref(), Some("mcp__a_b__c"));
    }
}
