//! Gives Claude Code's tool calls the kinds of ACP, by which they are normalized.

use serde_json::{Value, json};

/// The status of a call with its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultStatus {
    Done,
    /// It was executed and failed: a command may have done half of its work.
    Broke,
    /// It was not executed.
    Failed,
}

impl ResultStatus {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "completed",
            Self::Broke => "broke",
            Self::Failed => "failed",
        }
    }
}

/// The report of a call, from its own id, the tool's name and its input.
pub(super) fn report(id: &str, tool: &str, input: &Value) -> Value {
    json!({ "toolCallId": id, "name": tool, "title": tool, "kind": kind(tool, input), "rawInput": input })
}

/// The report of a call's result.
pub(super) fn result_report(id: &str, status: ResultStatus, words: &str) -> Value {
    json!({ "toolCallId": id, "status": status.as_str(), "rawOutput": words })
}

/// The kind of a tool. A call whose input lacks the expected members has kind `other`.
fn kind(tool: &str, input: &Value) -> &'static str {
    let (kind, needs): (_, &[&str]) = match tool {
        "Read" => ("read", &["file_path"]),
        "Write" => ("edit", &["file_path", "content"]),
        "Edit" => ("edit", &["file_path", "old_string", "new_string"]),
        "Bash" => ("execute", &["command"]),
        "Glob" | "Grep" => ("search", &["pattern"]),
        "WebFetch" => ("fetch", &["url"]),
        "WebSearch" => ("fetch", &["query"]),
        _ => return "other",
    };
    if needs.iter().all(|name| input[name].is_string()) { kind } else { "other" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normalize;

    fn wanted(tool: &str, input: Value) -> (String, Value) {
        let Value::Object(call) = report("t", tool, &input) else { panic!() };
        let mut all = normalize::requested_calls(&call, "/workspace");
        assert_eq!(all.len(), 1, "{all:?}");
        let one = all.remove(0);
        (one.tool, one.input)
    }

    #[test]
    fn tools_normalize_to_the_hosts() {
        for (tool, input, host_tool, as_told) in [
            ("Read", json!({ "file_path": "/workspace/a" }), "read", json!({ "path": "a" })),
            (
                "Write",
                json!({ "file_path": "/workspace/a", "content": "x" }),
                "write",
                json!({ "path": "a", "content": "x" }),
            ),
            (
                "Write",
                json!({ "file_path": "/workspace/a", "content": "" }),
                "write",
                json!({ "path": "a", "content": "" }),
            ),
            (
                "Edit",
                json!({ "file_path": "/workspace/a", "old_string": "o", "new_string": "n" }),
                "edit",
                json!({ "path": "a", "old": "o", "new": "n" }),
            ),
            ("Bash", json!({ "command": "ls", "description": "d" }), "exec", json!({ "command": "ls" })),
            (
                "Grep",
                json!({ "pattern": "p", "path": "/workspace/d" }),
                "search",
                json!({ "query": "p", "path": "d" }),
            ),
            (
                "WebFetch",
                json!({ "url": "https://a.example", "prompt": "p" }),
                "web_fetch",
                json!({ "url": "https://a.example" }),
            ),
            ("WebSearch", json!({ "query": "cats" }), "web_search", json!({ "query": "cats" })),
            ("Task", json!({ "prompt": "p" }), "cli.Task", json!({ "prompt": "p" })),
            // A call with unexpected input is not harmless.
            ("Bash", json!({ "nope": 1 }), "cli.Bash", json!({ "nope": 1 })),
            ("Read", json!({}), "cli.Read", json!({})),
            (
                "NotebookEdit",
                json!({ "notebook_path": "/workspace/n" }),
                "cli.NotebookEdit",
                json!({ "notebook_path": "/workspace/n" }),
            ),
        ] {
            assert_eq!(wanted(tool, input.clone()), (host_tool.to_owned(), as_told), "{tool} {input}");
        }
    }
}
