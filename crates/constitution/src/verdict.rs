//! The verdict about a call. A denial is a value, not an error.

use serde::{Deserialize, Serialize};

/// Whether a call may run. A larger value is stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    /// A person decides.
    Ask,
    Deny,
}

impl Decision {
    /// The word in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// A decision with the rules that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Verdict {
    pub decision: Decision,
    /// The rules that made the decision, such as `mandate.not_listed`; stable, for the record and for machines. In
    /// audit mode, those that would have made it.
    pub rules: Vec<String>,
    /// The reason, as a sentence for the caller.
    pub reason: String,
    /// What would have to change for the call to be allowed, if anything helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_allow: Option<String>,
    /// In audit mode: what would have been decided. Rules and reason belong to that decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audited: Option<Decision>,
    /// The waiver that replaced a person's approval: `approval.<id>`, `grant.<id>`, `exception.<id>` or
    /// `permit.<id>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waived_by: Option<String>,
}

impl Verdict {
    pub fn allow(rule: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::of(Decision::Allow, rule, reason, None)
    }

    pub fn ask(rule: impl Into<String>, reason: impl Into<String>, would_allow: Option<String>) -> Self {
        Self::of(Decision::Ask, rule, reason, would_allow)
    }

    pub fn deny(rule: impl Into<String>, reason: impl Into<String>, would_allow: Option<String>) -> Self {
        Self::of(Decision::Deny, rule, reason, would_allow)
    }

    fn of(
        decision: Decision,
        rule: impl Into<String>,
        reason: impl Into<String>,
        would_allow: Option<String>,
    ) -> Self {
        let (rules, reason) = (vec![rule.into()], reason.into());
        Self { decision, rules, reason, would_allow, audited: None, waived_by: None }
    }

    /// Whether the call may run now.
    pub const fn is_allowed(&self) -> bool {
        match self.decision {
            Decision::Allow => true,
            Decision::Ask | Decision::Deny => false,
        }
    }

    /// Whether an agent is offered a tool with this verdict: a call that a person may still allow can be made.
    pub const fn is_offered(&self) -> bool {
        match self.decision {
            Decision::Allow | Decision::Ask => true,
            Decision::Deny => false,
        }
    }

    /// The decision of the law, whether or not it was enforced.
    pub fn decision_if_enforced(&self) -> Decision {
        self.audited.unwrap_or(self.decision)
    }

    /// The ids of the rules, for a line of text.
    pub fn rule_list(&self) -> String {
        self.rules.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_has_one_json_form() {
        let deny = Verdict::deny("tool.unknown", "there is no tool `x`", None);
        let text = serde_json::to_string(&deny).unwrap();
        assert_eq!(text, r#"{"decision":"deny","rules":["tool.unknown"],"reason":"there is no tool `x`"}"#);
        assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), deny);

        let audited = Verdict { audited: Some(Decision::Ask), ..Verdict::allow("effect.side_effect", "b") };
        let text = serde_json::to_string(&audited).unwrap();
        assert!(text.ends_with(r#","audited":"ask"}"#), "{text}");
        assert_eq!(audited.decision_if_enforced(), Decision::Ask);
    }

    #[test]
    fn stricter_is_larger() {
        assert!(Decision::Allow < Decision::Ask && Decision::Ask < Decision::Deny);
        let ask = Verdict::ask("a", "b", None);
        assert!(!ask.is_allowed() && ask.is_offered());
        assert!(!Verdict::deny("a", "b", None).is_offered() && Verdict::allow("a", "b").is_allowed());
    }
}
