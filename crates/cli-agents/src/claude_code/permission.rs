//! Claude Code's permission requests and their answers. It asks twice about many calls: through the hook before each
//! call, and with a permission request if its settings say so. Both name the same call.

use serde_json::{Value, json};

use super::handshake::HOOK;
use super::{tool_kinds, wire};
use crate::permissions::{PermissionAnswer, PermissionRequest};

/// The hook before a call.
const HOOK_CALLBACK: &str = "hook_callback";

/// A permission request.
const CAN_USE_TOOL: &str = "can_use_tool";

/// The answer to a request about a call after the turn was cancelled.
const TURN_CANCELLED: &str = "the turn was cancelled: this call is not made";

/// A permission request about a call.
pub(super) struct ClaudePermissionRequest {
    id: Value,
    way: &'static str,
    /// The call's input, which goes back with a permission.
    input: Value,
}

impl ClaudePermissionRequest {
    /// The permission request, and the report of its call; `None` if it is not about a call.
    pub(super) fn read(id: &Value, method: &str, params: &Value) -> Option<(Self, Value)> {
        let (way, of, input) = match method {
            HOOK_CALLBACK if params["callback_id"] == HOOK => (HOOK_CALLBACK, &params["input"], "tool_input"),
            CAN_USE_TOOL => (CAN_USE_TOOL, params, "input"),
            _ => return None,
        };
        // The hook has it in both places.
        let call = of.get("tool_use_id").or_else(|| params.get("tool_use_id"))?.as_str()?;
        let report = tool_kinds::report(call, of["tool_name"].as_str()?, &of[input]);
        Some((Self { id: id.clone(), way, input: of[input].clone() }, report))
    }

    pub(super) fn is(&self, id: &Value) -> bool {
        self.id == *id
    }
}

impl PermissionRequest for ClaudePermissionRequest {
    fn way(&self) -> &'static str {
        self.way
    }

    fn answer(&self, answer: &PermissionAnswer) -> (String, bool) {
        match answer {
            PermissionAnswer::Allow if self.way == HOOK_CALLBACK => {
                (wire::response(&self.id, &decision("allow", None)), true)
            }
            PermissionAnswer::Allow => {
                (wire::response(&self.id, &json!({ "behavior": "allow", "updatedInput": self.input })), true)
            }
            PermissionAnswer::Deny(why) => (refuse(&self.id, self.way, why), false),
            PermissionAnswer::Cancelled => (refuse(&self.id, self.way, TURN_CANCELLED), false),
        }
    }
}

/// The line that refuses any request.
pub(super) fn refuse(id: &Value, method: &str, why: &str) -> String {
    match method {
        // An error would not stop the call: its settings would decide.
        HOOK_CALLBACK => wire::response(id, &decision("deny", Some(why))),
        CAN_USE_TOOL => wire::response(id, &json!({ "behavior": "deny", "message": why })),
        _ => wire::error(id, why),
    }
}

fn decision(word: &str, why: Option<&str>) -> Value {
    let mut decision = json!({ "hookEventName": "PreToolUse", "permissionDecision": word });
    if let Some(why) = why {
        decision["permissionDecisionReason"] = why.into();
    }
    json!({ "hookSpecificOutput": decision })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_of(asked: &ClaudePermissionRequest, answer: &PermissionAnswer) -> (Value, bool) {
        let (line, allows) = asked.answer(answer);
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["response"]["subtype"], "success");
        assert_eq!(line["response"]["request_id"], "q");
        (line["response"]["response"].clone(), allows)
    }

    #[test]
    fn both_ways_of_asking_report_the_same_call() {
        let input = json!({ "command": "ls" });
        let hook = json!({ "callback_id": HOOK, "tool_use_id": "t",
                           "input": { "tool_name": "Bash", "tool_input": input, "tool_use_id": "t" } });
        let request = json!({ "tool_name": "Bash", "input": input, "tool_use_id": "t" });
        let (hook, report) = ClaudePermissionRequest::read(&json!("q"), HOOK_CALLBACK, &hook).unwrap();
        let (request, report_again) =
            ClaudePermissionRequest::read(&json!("q"), CAN_USE_TOOL, &request).unwrap();
        assert_eq!(report, report_again);
        assert_ne!(hook.way(), request.way());
        let no = PermissionAnswer::Deny("the law".into());
        let decided = |word: &str| json!({ "hookEventName": "PreToolUse", "permissionDecision": word });
        assert_eq!(
            answer_of(&hook, &PermissionAnswer::Allow),
            (json!({ "hookSpecificOutput": decided("allow") }), true)
        );
        let mut denied = decided("deny");
        denied["permissionDecisionReason"] = json!("the law");
        assert_eq!(answer_of(&hook, &no), (json!({ "hookSpecificOutput": denied }), false));
        let allowed = json!({ "behavior": "allow", "updatedInput": input });
        assert_eq!(answer_of(&request, &PermissionAnswer::Allow), (allowed, true));
        assert_eq!(answer_of(&request, &no), (json!({ "behavior": "deny", "message": "the law" }), false));
        assert_eq!(answer_of(&request, &PermissionAnswer::Cancelled).0["behavior"], "deny");
    }

    #[test]
    fn a_request_that_is_not_about_a_call_is_refused() {
        for (method, params) in [
            (
                HOOK_CALLBACK,
                json!({ "callback_id": "other", "input": { "tool_name": "Bash", "tool_use_id": "t" } }),
            ),
            (HOOK_CALLBACK, json!({ "callback_id": HOOK, "input": { "tool_name": "Bash" } })),
            (CAN_USE_TOOL, json!({ "tool_use_id": "t" })),
            ("elicitation", json!({})),
        ] {
            assert!(
                ClaudePermissionRequest::read(&json!("q"), method, &params).is_none(),
                "{method} {params}"
            );
        }
        let refused: Value = serde_json::from_str(&refuse(&json!("q"), HOOK_CALLBACK, "no")).unwrap();
        assert_eq!(refused["response"]["subtype"], "success", "an error lets the call go on");
        let refused: Value = serde_json::from_str(&refuse(&json!("q"), "elicitation", "no")).unwrap();
        assert_eq!(refused["response"]["subtype"], "error");
    }
}
