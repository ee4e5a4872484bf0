//! What Claude Code asks, and how it is answered. It asks twice about many calls: with the callback before each of them, and for
//! leave if its settings say so. Both name the same call.

use serde_json::{Value, json};

use super::handshake::HOOK;
use super::{tool_kinds, wire};
use crate::permissions::{Question, Ruling};

/// The callback before a call.
const BEFORE: &str = "hook_callback";

/// Leave for a call.
const LEAVE: &str = "can_use_tool";

/// What is told to a call that nobody decides about any more.
const OVER: &str = "the turn was cancelled: this call is not made";

/// A question about a call.
pub(super) struct Asked {
    id: Value,
    way: &'static str,
    /// The call's input, which goes back with leave.
    input: Value,
}

impl Asked {
    /// The question, and the call as it is told; `None` if it is none about a call.
    pub(super) fn read(id: &Value, method: &str, params: &Value) -> Option<(Self, Value)> {
        let (way, of, input) = match method {
            BEFORE if params["callback_id"] == HOOK => (BEFORE, &params["input"], "tool_input"),
            LEAVE => (LEAVE, params, "input"),
            _ => return None,
        };
        // The callback has it in both places.
        let call = of.get("tool_use_id").or_else(|| params.get("tool_use_id"))?.as_str()?;
        let told = tool_kinds::told(call, of["tool_name"].as_str()?, &of[input]);
        Some((Self { id: id.clone(), way, input: of[input].clone() }, told))
    }

    pub(super) fn is(&self, id: &Value) -> bool {
        self.id == *id
    }
}

impl Question for Asked {
    fn way(&self) -> &'static str {
        self.way
    }

    fn answer(&self, ruling: &Ruling) -> (String, bool) {
        match ruling {
            Ruling::Allow if self.way == BEFORE => (wire::response(&self.id, &decision("allow", None)), true),
            Ruling::Allow => {
                (wire::response(&self.id, &json!({ "behavior": "allow", "updatedInput": self.input })), true)
            }
            Ruling::Refuse(why) => (refuse(&self.id, self.way, why), false),
            Ruling::Cancelled => (refuse(&self.id, self.way, OVER), false),
        }
    }
}

/// The line that refuses whatever is asked.
pub(super) fn refuse(id: &Value, method: &str, why: &str) -> String {
    match method {
        // An error would not hold the call: it would go on to its settings.
        BEFORE => wire::response(id, &decision("deny", Some(why))),
        LEAVE => wire::response(id, &json!({ "behavior": "deny", "message": why })),
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

    fn answered(asked: &Asked, ruling: &Ruling) -> (Value, bool) {
        let (line, allows) = asked.answer(ruling);
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["response"]["subtype"], "success");
        assert_eq!(line["response"]["request_id"], "q");
        (line["response"]["response"].clone(), allows)
    }

    #[test]
    fn both_ways_of_asking_name_the_same_call_and_are_answered_each_in_its_own() {
        let input = json!({ "command": "ls" });
        let hook = json!({ "callback_id": HOOK, "tool_use_id": "t",
                           "input": { "tool_name": "Bash", "tool_input": input, "tool_use_id": "t" } });
        let leave = json!({ "tool_name": "Bash", "input": input, "tool_use_id": "t" });
        let (hook, told) = Asked::read(&json!("q"), BEFORE, &hook).unwrap();
        let (leave, told_again) = Asked::read(&json!("q"), LEAVE, &leave).unwrap();
        assert_eq!(told, told_again);
        assert_ne!(hook.way(), leave.way());
        let no = Ruling::Refuse("the law".into());
        let decided = |word: &str| json!({ "hookEventName": "PreToolUse", "permissionDecision": word });
        assert_eq!(
            answered(&hook, &Ruling::Allow),
            (json!({ "hookSpecificOutput": decided("allow") }), true)
        );
        let mut denied = decided("deny");
        denied["permissionDecisionReason"] = json!("the law");
        assert_eq!(answered(&hook, &no), (json!({ "hookSpecificOutput": denied }), false));
        let allowed = json!({ "behavior": "allow", "updatedInput": input });
        assert_eq!(answered(&leave, &Ruling::Allow), (allowed, true));
        assert_eq!(answered(&leave, &no), (json!({ "behavior": "deny", "message": "the law" }), false));
        assert_eq!(answered(&leave, &Ruling::Cancelled).0["behavior"], "deny");
    }

    #[test]
    fn what_is_no_question_about_a_call_is_refused() {
        for (method, params) in [
            (BEFORE, json!({ "callback_id": "other", "input": { "tool_name": "Bash", "tool_use_id": "t" } })),
            (BEFORE, json!({ "callback_id": HOOK, "input": { "tool_name": "Bash" } })),
            (LEAVE, json!({ "tool_use_id": "t" })),
            ("elicitation", json!({})),
        ] {
            assert!(Asked::read(&json!("q"), method, &params).is_none(), "{method} {params}");
        }
        let refused: Value = serde_json::from_str(&refuse(&json!("q"), BEFORE, "no")).unwrap();
        assert_eq!(refused["response"]["subtype"], "success", "an error lets the call go on");
        let refused: Value = serde_json::from_str(&refuse(&json!("q"), "elicitation", "no")).unwrap();
        assert_eq!(refused["response"]["subtype"], "error");
    }
}
