//! Chooses among the options of a permission request by their kind: names and ids differ from agent to agent. An option
//! that would keep the agent from asking the next time is never chosen.

use serde_json::{Value, json};

/// The answer to a permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionChoice {
    Allow,
    Refuse,
}

/// The outcome to answer with, and whether it allows the call.
pub(super) fn choose(options: &Value, choice: OptionChoice) -> (Value, bool) {
    let options = options.as_array().map_or(&[][..], Vec::as_slice);
    let of_kind = |kind: &str| {
        let option = options.iter().find(|option| option["kind"] == kind)?;
        option["optionId"].as_str().map(|id| json!({ "outcome": { "outcome": "selected", "optionId": id } }))
    };
    if choice == OptionChoice::Allow
        && let Some(allow) = of_kind("allow_once")
    {
        return (allow, true);
    }
    let refuse = of_kind("reject_once").or_else(|| of_kind("reject_always"));
    (refuse.unwrap_or_else(cancelled), false)
}

/// The outcome when the turn is over.
pub(super) fn cancelled() -> Value {
    json!({ "outcome": { "outcome": "cancelled" } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_option_decides() {
        let options = json!([
            { "optionId": "reject", "name": "Allow!", "kind": "allow_always" },
            { "optionId": "allow", "name": "yes", "kind": "reject_once" },
            { "optionId": "cancel", "name": "no", "kind": "allow_once" },
        ]);
        let selected = |id: &str| json!({ "outcome": { "outcome": "selected", "optionId": id } });
        assert_eq!(choose(&options, OptionChoice::Allow), (selected("cancel"), true));
        assert_eq!(choose(&options, OptionChoice::Refuse), (selected("allow"), false));
    }

    #[test]
    fn a_permanent_permission_is_never_chosen() {
        let always = json!([{ "optionId": "a", "kind": "allow_always" }, { "optionId": "r", "kind": "reject_always" }]);
        let rejected = json!({ "outcome": { "outcome": "selected", "optionId": "r" } });
        assert_eq!(choose(&always, OptionChoice::Allow), (rejected, false));
        for nothing in [json!([]), json!(null), json!([{ "kind": "allow_once" }]), json!([3])] {
            assert_eq!(choose(&nothing, OptionChoice::Allow), (cancelled(), false), "{nothing}");
        }
    }
}
