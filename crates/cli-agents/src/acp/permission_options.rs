//! What an agent offers to answer, and the answer. Options are told apart by their kind: names and ids differ from agent to
//! agent. Nothing is ever chosen that would keep the agent from asking the next time.

use serde_json::{Value, json};

/// The answer to a question for leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Allow,
    Refuse,
}

/// The outcome to answer with, and whether it allows.
pub(super) fn choose(options: &Value, choice: Choice) -> (Value, bool) {
    let options = options.as_array().map_or(&[][..], Vec::as_slice);
    let of_kind = |kind: &str| {
        let option = options.iter().find(|option| option["kind"] == kind)?;
        option["optionId"].as_str().map(|id| json!({ "outcome": { "outcome": "selected", "optionId": id } }))
    };
    if choice == Choice::Allow
        && let Some(allow) = of_kind("allow_once")
    {
        return (allow, true);
    }
    let refuse = of_kind("reject_once").or_else(|| of_kind("reject_always"));
    (refuse.unwrap_or_else(cancelled), false)
}

/// What is answered when the turn is over.
pub(super) fn cancelled() -> Value {
    json!({ "outcome": { "outcome": "cancelled" } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_decides_and_never_the_name_or_the_place() {
        let options = json!([
            { "optionId": "reject", "name": "Allow!", "kind": "allow_always" },
            { "optionId": "allow", "name": "yes", "kind": "reject_once" },
            { "optionId": "cancel", "name": "no", "kind": "allow_once" },
        ]);
        let selected = |id: &str| json!({ "outcome": { "outcome": "selected", "optionId": id } });
        assert_eq!(choose(&options, Choice::Allow), (selected("cancel"), true));
        assert_eq!(choose(&options, Choice::Refuse), (selected("allow"), false));
    }

    #[test]
    fn leave_for_ever_is_no_answer() {
        let always = json!([{ "optionId": "a", "kind": "allow_always" }, { "optionId": "r", "kind": "reject_always" }]);
        let rejected = json!({ "outcome": { "outcome": "selected", "optionId": "r" } });
        assert_eq!(choose(&always, Choice::Allow), (rejected, false));
        for nothing in [json!([]), json!(null), json!([{ "kind": "allow_once" }]), json!([3])] {
            assert_eq!(choose(&nothing, Choice::Allow), (cancelled(), false), "{nothing}");
        }
    }
}
