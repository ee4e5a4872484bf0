//! What hooks answer, and how far it counts.

use serde::Deserialize;
use serde_json::{Map, Value};
use tribune_agents::ToolCall;
use tribune_constitution::Trust;

use crate::tools::HostTools;

/// A hook's answer. An empty object is no objection.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Answer {
    pub(super) block: bool,
    pub(super) block_reason: Option<String>,
    /// The parameters that the call is to have instead.
    pub(super) params: Option<Map<String, Value>>,
    /// How far a message is to be believed.
    pub(super) trust: Option<Trust>,
}

impl Answer {
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        let members: Result<Map<String, Value>, _> = serde_json::from_slice(json);
        let answer = members.and_then(|members| serde_json::from_value(Value::Object(members)));
        answer.map_err(|_| "its answer is not the JSON of an answer".to_owned())
    }
}

/// The input with what a hook took away, if that is all it did: numbers may be lower, and what a call can do without may be
/// gone. A list may bound the call (the tools of a sub-agent), so it stays.
pub(super) fn narrowed(call: &ToolCall, params: Map<String, Value>) -> Option<Value> {
    let old = call.input.as_object()?;
    let fits =
        |(key, new): (&String, &Value)| old.get(key).is_some_and(|old| old == new || is_lower(new, old));
    let spec = HostTools::specs().iter().find(|spec| spec.name == call.name);
    let required = spec.and_then(|spec| spec.input_schema["required"].as_array());
    let is_optional = |key: &str, value: &Value| {
        required.is_some_and(|required| !required.iter().any(|name| name == key)) && !value.is_array()
    };
    let is_kept = |(key, value): (&String, &Value)| params.contains_key(key) || is_optional(key, value);
    (params.iter().all(fits) && old.iter().all(is_kept)).then_some(Value::Object(params))
}

fn is_lower(new: &Value, old: &Value) -> bool {
    matches!((new.as_u64(), old.as_u64()), (Some(new), Some(old)) if new < old)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hook_takes_away_and_adds_nothing() {
        let call = |input: Value| ToolCall { id: "1".to_owned(), name: "exec".to_owned(), input };
        let old = json!({ "command": "make", "cwd": "src", "timeout": 60 });
        let narrow = |new: Value| narrowed(&call(old.clone()), new.as_object().unwrap().clone());
        for good in [
            old.clone(),
            json!({ "command": "make", "cwd": "src", "timeout": 5 }),
            json!({ "command": "make", "timeout": 60 }),
            json!({ "command": "make" }),
        ] {
            assert_eq!(narrow(good.clone()), Some(good));
        }
        for bad in [
            json!({}),
            json!({ "command": "make install" }),
            json!({ "command": "mak" }),
            json!({ "command": "make", "timeout": 61 }),
            json!({ "command": "make", "timeout": -1 }),
            json!({ "command": "make", "cwd": "." }),
            json!({ "command": "make", "env": "x" }),
        ] {
            assert_eq!(narrow(bad.clone()), None, "{bad}");
        }
        let spawn = ToolCall {
            id: "1".to_owned(),
            name: "spawn".to_owned(),
            input: json!({ "task": "t", "tools": ["read"] }),
        };
        assert_eq!(narrowed(&spawn, json!({ "task": "t" }).as_object().unwrap().clone()), None);
    }

    #[test]
    fn an_answer_is_read_whole_or_not_at_all() {
        assert_eq!(Answer::read(b"{}"), Ok(Answer::default()));
        for bad in ["", "yes", "[]", "{\"blok\":true}", "{\"block\":1}", "{} {}"] {
            assert!(Answer::read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
