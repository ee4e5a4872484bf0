//! The answers of hooks, and the check that an answer only narrows a call.

use serde::Deserialize;
use serde_json::{Map, Value};
use tribune_constitution::Trust;
use tribune_runtime::ToolCall;

/// A hook's answer. An empty object means no objection.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Answer {
    pub(super) block: bool,
    pub(super) block_reason: Option<String>,
    /// The parameters that replace those of the call.
    pub(super) params: Option<Map<String, Value>>,
    /// The trust level of a message.
    pub(super) trust: Option<Trust>,
}

impl Answer {
    /// Parses a JSON object without duplicate members, because it would be ambiguous which one counts.
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        let answer = json.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice(json).ok());
        answer.flatten().ok_or_else(|| "its answer is not the JSON of an answer".to_owned())
    }
}

/// The change of a parameter that makes a call do less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Narrows {
    /// To a lower number.
    Lower,
    /// To a path below it.
    Beneath,
}

/// The parameters that may be changed to narrow a call. All others must stay equal, and none may be removed: a call without
/// a bound does more.
const NARROWING: [(&str, &str, Narrows); 6] = [
    ("read", "limit", Narrows::Lower),
    ("search", "max", Narrows::Lower),
    ("search", "path", Narrows::Beneath),
    ("exec", "timeoutSeconds", Narrows::Lower),
    ("web_fetch", "maxBytes", Narrows::Lower),
    ("web_search", "count", Narrows::Lower),
];

/// The new input, if the hook only narrowed the call.
pub(super) fn narrowed(call: &ToolCall, params: Map<String, Value>) -> Option<Value> {
    let old = call.input.as_object()?;
    let fits = |(key, old): (&String, &Value)| {
        params.get(key).is_some_and(|new| old == new || narrows(&call.name, key, old, new))
    };
    (old.len() == params.len() && old.iter().all(fits)).then_some(Value::Object(params))
}

fn narrows(tool: &str, parameter: &str, old: &Value, new: &Value) -> bool {
    let known = NARROWING.iter().find(|(of, name, _)| *of == tool && *name == parameter);
    match known.map(|(_, _, narrows)| narrows) {
        Some(Narrows::Lower) => {
            matches!((old.as_u64(), new.as_u64()), (Some(old), Some(new)) if new < old)
        }
        Some(Narrows::Beneath) => {
            matches!((old.as_str(), new.as_str()), (Some(old), Some(new)) if is_beneath(old, new))
        }
        None => false,
    }
}

/// Whether `new` is a path below `old`.
fn is_beneath(old: &str, new: &str) -> bool {
    let names = match old.trim_end_matches('/') {
        "." => Some(new),
        folder => new.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')),
    };
    let is_name = |name: &str| !matches!(name, "" | "." | "..");
    !old.is_empty() && names.is_some_and(|names| names.split('/').all(is_name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn narrow(tool: &str, old: &Value, new: &Value) -> Option<Value> {
        let call = ToolCall { id: "1".to_owned(), name: tool.to_owned(), input: old.clone() };
        narrowed(&call, new.as_object().unwrap().clone())
    }

    #[test]
    fn a_hook_can_only_narrow_a_call() {
        let exec = json!({ "command": "make", "cwd": "src", "timeoutSeconds": 60 });
        let search = json!({ "query": "x", "path": "src", "max": 10 });
        let read = json!({ "path": "a", "offset": 100, "limit": 10 });
        for (tool, old, good) in [
            ("exec", &exec, exec.clone()),
            ("exec", &exec, json!({ "command": "make", "cwd": "src", "timeoutSeconds": 5 })),
            ("search", &search, json!({ "query": "x", "path": "src/a/b.rs", "max": 3 })),
            ("search", &json!({ "query": "x", "path": "." }), json!({ "query": "x", "path": "docs" })),
            ("read", &read, json!({ "path": "a", "offset": 100, "limit": 9 })),
        ] {
            assert_eq!(narrow(tool, old, &good), Some(good));
        }
        for (tool, old, bad) in [
            ("exec", &exec, json!({})),
            ("exec", &exec, json!({ "command": "make install", "cwd": "src", "timeoutSeconds": 60 })),
            ("exec", &exec, json!({ "command": "mak", "cwd": "src", "timeoutSeconds": 60 })),
            ("exec", &exec, json!({ "command": "make", "cwd": "src", "timeoutSeconds": 61 })),
            ("exec", &exec, json!({ "command": "make", "cwd": "src", "timeoutSeconds": -1 })),
            ("exec", &exec, json!({ "command": "make", "cwd": "src" })),
            ("exec", &exec, json!({ "command": "make", "timeoutSeconds": 60 })),
            ("exec", &exec, json!({ "command": "make", "cwd": "src/a", "timeoutSeconds": 60 })),
            ("exec", &exec, json!({ "command": "make", "cwd": "src", "timeoutSeconds": 60, "env": "x" })),
            ("search", &search, json!({ "query": "x", "max": 10 })),
            ("search", &search, json!({ "query": "x", "path": "src" })),
            ("search", &search, json!({ "query": "x", "path": "srcs/a", "max": 10 })),
            ("search", &search, json!({ "query": "x", "path": "src/../a", "max": 10 })),
            ("search", &search, json!({ "query": "x", "path": "src//a", "max": 10 })),
            ("search", &search, json!({ "query": "x", "path": ".", "max": 10 })),
            ("read", &read, json!({ "path": "a", "offset": 99, "limit": 10 })),
            ("read", &read, json!({ "path": "a", "offset": 100 })),
            ("read", &read, json!({ "path": "a", "limit": 10 })),
            ("spawn", &json!({ "task": "t", "tools": ["read"] }), json!({ "task": "t" })),
            ("mcp_tool", &json!({ "from": 10 }), json!({ "from": 5 })),
        ] {
            assert_eq!(narrow(tool, old, &bad), None, "{tool} {bad}");
        }
    }

    #[test]
    fn malformed_answers_are_rejected() {
        assert_eq!(Answer::read(b"{}"), Ok(Answer::default()));
        for bad in ["", "yes", "[]", "{\"blok\":true}", "{\"block\":1}", "{} {}", "[true]"] {
            assert!(Answer::read(bad.as_bytes()).is_err(), "{bad}");
        }
        for twice in [r#"{"block":true,"block":false}"#, r#"{"params":{},"params":{"a":1}}"#] {
            assert!(Answer::read(twice.as_bytes()).is_err(), "{twice}");
        }
    }
}
