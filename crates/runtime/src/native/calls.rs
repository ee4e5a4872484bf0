//! The tool calls of one model answer: executed concurrently, with their results in the order of the calls.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Map, Value};

use crate::tool::{ToolCall, ToolOutcome};
use crate::toolbox::Toolbox;
use tribune_providers::{AssistantPart, ToolResult};

/// How often the same call may fail in a row. A model that tries a fourth time makes no progress.
const MAX_REPEATS: usize = 3;

/// A call as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestedCall {
    /// The provider's id for it.
    pub(super) id: String,
    pub name: String,
    pub(super) arguments: String,
}

/// The calls of an answer, in order.
pub(super) fn requested_calls(parts: &[AssistantPart]) -> Vec<RequestedCall> {
    let call = |part: &AssistantPart| match part {
        AssistantPart::ToolUse { id, name, arguments, .. } => {
            Some(RequestedCall { id: id.clone(), name: name.clone(), arguments: arguments.clone() })
        }
        AssistantPart::Thinking { .. }
        | AssistantPart::RedactedThinking { .. }
        | AssistantPart::ReasoningDetail(_)
        | AssistantPart::Text(_) => None,
    };
    parts.iter().filter_map(call).collect()
}

/// Gives calls ids that the toolbox accepts, each once in a turn.
#[derive(Debug, Default)]
pub(super) struct CallNames {
    used: HashSet<String>,
}

impl CallNames {
    pub(super) fn of(&mut self, id: &str) -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '-' };
        let mut plain: String = id.chars().take(100).map(word).collect();
        if plain.is_empty() {
            plain.push_str("call");
        }
        let numbered = (2..).map(|n| format!("{plain}-{n}"));
        let free = std::iter::once(plain.clone()).chain(numbered).find(|name| !self.used.contains(name));
        let free = free.unwrap_or(plain);
        self.used.insert(free.clone());
        free
    }
}

/// Detects calls that fail over and over.
#[derive(Debug, Default)]
pub(super) struct RepeatedFailures {
    last: Option<(String, String)>,
    failures: usize,
}

impl RepeatedFailures {
    /// Records the outcome of a call; returns whether it failed for the third time in a row.
    pub(super) fn record(&mut self, call: &RequestedCall, failed: bool) -> bool {
        let own = (call.name.clone(), call.arguments.clone());
        if !failed {
            *self = Self::default();
            return false;
        }
        self.failures = if self.last.as_ref() == Some(&own) { self.failures + 1 } else { 1 };
        self.last = Some(own);
        self.failures >= MAX_REPEATS
    }
}

/// Executes the calls. `redact` removes secrets from their results.
pub(super) async fn execute_calls(
    calls: &[RequestedCall],
    names: &[String],
    tools: &dyn Toolbox,
    redact: impl Fn(&str) -> String,
) -> Vec<ToolResult> {
    let outcomes = calls.iter().zip(names).map(|(call, name)| async move {
        match input(&call.arguments) {
            Ok(input) => tools.call(ToolCall { id: name.clone(), name: call.name.clone(), input }).await,
            Err(what) => ToolOutcome::error(what),
        }
    });
    let outcomes = join_all(outcomes).await;
    let results = calls.iter().zip(outcomes).map(|(call, outcome)| ToolResult {
        id: call.id.clone(),
        content: redact(&outcome.content),
        is_error: outcome.is_error,
    });
    results.collect()
}

/// The results of calls that are not executed.
pub(super) fn not_executed(calls: &[RequestedCall], why: &str) -> Vec<ToolResult> {
    let result =
        |call: &RequestedCall| ToolResult { id: call.id.clone(), content: why.to_owned(), is_error: true };
    calls.iter().map(result).collect()
}

/// The arguments as an object. Without any, it is an empty one.
fn input(arguments: &str) -> Result<Value, String> {
    if arguments.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    match serde_json::from_str(arguments) {
        Ok(input @ Value::Object(_)) => Ok(input),
        Ok(_) => Err("the arguments are not a JSON object: write them as one".to_owned()),
        Err(error) => Err(format!("the arguments are not JSON ({error}): write them again")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_used_once() {
        let mut names = CallNames::default();
        assert_eq!(names.of("functions.read:0"), "functions.read-0");
        assert_eq!(names.of("functions.read-0"), "functions.read-0-2");
        assert_eq!(names.of(""), "call");
        assert_eq!(names.of(&"ä".repeat(300)).len(), 100);
    }

    #[test]
    fn the_same_failing_call_is_stopped_and_another_is_not() {
        let call = |arguments: &str| RequestedCall {
            id: "a".into(),
            name: "read".into(),
            arguments: arguments.into(),
        };
        let mut repeats = RepeatedFailures::default();
        assert!(!repeats.record(&call("1"), true));
        assert!(!repeats.record(&call("2"), true));
        assert!(!repeats.record(&call("1"), true));
        assert!(!repeats.record(&call("1"), true));
        assert!(!repeats.record(&call("1"), false));
        assert!(!repeats.record(&call("1"), true));
        assert!(!repeats.record(&call("1"), true));
        assert!(repeats.record(&call("1"), true));
    }

    #[test]
    fn arguments_are_an_object() {
        assert_eq!(input("").unwrap(), serde_json::json!({}));
        assert_eq!(input("{\"a\":1}").unwrap(), serde_json::json!({"a": 1}));
        assert!(input("[1]").unwrap_err().contains("not a JSON object"));
        assert!(input("{\"a\":").unwrap_err().contains("not JSON"));
    }
}
