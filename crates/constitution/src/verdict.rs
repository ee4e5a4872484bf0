//! How a call is decided. Deciding is a pure function over facts; carrying out and recording are the caller's.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bundle::ConstitutionHash;
use crate::mandate::{Mandate, shown};
use crate::nearest::nearest;

/// Whether a call may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    Deny,
}

/// A decision with the rule that made it. A denial is an answer, not an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub decision: Decision,
    /// Which rule spoke, such as `mandate.not_listed`; stable, for the record and for machines.
    pub rule: String,
    /// Why, as a sentence for whoever asked.
    pub reason: String,
    /// What would have to be different, where anything would help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_allow: Option<String>,
}

impl Verdict {
    pub fn allow(rule: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { decision: Decision::Allow, rule: rule.into(), reason: reason.into(), would_allow: None }
    }

    pub fn deny(rule: impl Into<String>, reason: impl Into<String>, would_allow: Option<String>) -> Self {
        Self { decision: Decision::Deny, rule: rule.into(), reason: reason.into(), would_allow }
    }

    pub const fn is_allowed(&self) -> bool {
        match self.decision {
            Decision::Allow => true,
            Decision::Deny => false,
        }
    }
}

/// Everything a gate may look at. What is not here has no say.
#[derive(Debug, Clone, Copy)]
pub struct CallFacts<'a> {
    pub agent_id: &'a str,
    pub session_key: &'a str,
    pub mandate: &'a Mandate,
    pub tool: &'a str,
    /// The input of the call; `None` while the list of tools that an agent is shown is gated.
    pub input: Option<&'a Value>,
    /// The law in force; it is recorded with the verdict.
    pub constitution: ConstitutionHash,
}

/// Decides calls. The same facts always get the same verdict.
pub trait Gate: Send + Sync {
    fn decide(&self, facts: &CallFacts<'_>) -> Verdict;
}

/// The gate that knows mandates only: what is listed may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MandateGate {
    known_tools: BTreeSet<String>,
}

impl MandateGate {
    pub fn new<T: Into<String>>(known_tools: impl IntoIterator<Item = T>) -> Self {
        Self { known_tools: known_tools.into_iter().map(Into::into).collect() }
    }
}

impl Gate for MandateGate {
    fn decide(&self, facts: &CallFacts<'_>) -> Verdict {
        let (tool, mandate) = (shown(facts.tool), facts.mandate);
        if !self.known_tools.contains(facts.tool) {
            // Only what the mandate allows is suggested: the names of the other tools are none of the agent's business.
            let own: Vec<&str> = mandate.tools().iter().map(String::as_str).collect();
            let meant = nearest(facts.tool, &own)
                .map_or_else(String::new, |name| format!(", did you mean `{name}`?"));
            return Verdict::deny("tool.unknown", format!("there is no tool `{tool}`{meant}"), None);
        }
        if mandate.allows(facts.tool) {
            let reason = format!("`{tool}` is in the mandate `{}`", mandate.name);
            return Verdict::allow("mandate.allow", reason);
        }
        let allowed = match mandate.tools() {
            [] => "no tools".to_owned(),
            tools => tools.join(", "),
        };
        let reason = format!("`{tool}` is not in the mandate `{}`, which allows {allowed}", mandate.name);
        let would_allow = "an operator can give the agent another mandate in data/agent-roster.jsonl";
        Verdict::deny("mandate.not_listed", reason, Some(would_allow.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::Constitution;
    use crate::mandate::DEFAULT_MANDATE_TEXT;

    const TOOLS: [&str; 5] = ["exec", "read", "search", "send_message", "write"];

    fn decide(mandate: &Mandate, tool: &str, input: Option<&Value>) -> Verdict {
        let constitution = Constitution::built_in(&TOOLS).unwrap().hash();
        let session_key = "agent:main:cli:local:dm:op";
        let facts = CallFacts { agent_id: "main", session_key, mandate, tool, input, constitution };
        let gate = MandateGate::new(TOOLS);
        let verdict = gate.decide(&facts);
        assert_eq!(verdict, gate.decide(&facts));
        verdict
    }

    #[test]
    fn what_the_mandate_lists_is_allowed_and_nothing_else() {
        let mandate = Mandate::parse("default", DEFAULT_MANDATE_TEXT, &TOOLS).unwrap();
        let input = serde_json::json!({"path": "a"});
        for input in [None, Some(&input)] {
            assert_eq!(
                decide(&mandate, "read", input),
                Verdict::allow("mandate.allow", "`read` is in the mandate `default`")
            );
            assert_eq!(
                decide(&mandate, "exec", input),
                Verdict::deny(
                    "mandate.not_listed",
                    "`exec` is not in the mandate `default`, which allows read, search, send_message",
                    Some(
                        "an operator can give the agent another mandate in data/agent-roster.jsonl"
                            .to_owned()
                    ),
                )
            );
        }
        assert_eq!(
            decide(&mandate, "raed", None),
            Verdict::deny("tool.unknown", "there is no tool `raed`, did you mean `read`?", None)
        );
        let mute = Mandate::parse("mute", "---\ntools:\n---\n", &TOOLS).unwrap();
        assert_eq!(
            decide(&mute, "read", None).reason,
            "`read` is not in the mandate `mute`, which allows no tools"
        );
    }

    #[test]
    fn unknown_tools_learn_no_names_outside_the_mandate() {
        let mandate = Mandate::parse("default", DEFAULT_MANDATE_TEXT, &TOOLS).unwrap();
        let verdict = decide(&mandate, "exce", None);
        assert_eq!(verdict, Verdict::deny("tool.unknown", "there is no tool `exce`", None));
        let hostile = decide(&mandate, &format!("read\n{}", "x".repeat(10_000)), None);
        assert!(hostile.reason.len() < 200 && !hostile.reason.contains('\n'), "{}", hostile.reason);
        for near in ["Read", " read", "read ", "read\0", "re\u{200B}ad", ""] {
            assert_eq!(decide(&mandate, near, None).decision, Decision::Deny, "{near:?}");
        }
    }

    #[test]
    fn a_verdict_has_one_json_form() {
        let deny = Verdict::deny("tool.unknown", "there is no tool `x`", None);
        let text = serde_json::to_string(&deny).unwrap();
        assert_eq!(text, r#"{"decision":"deny","rule":"tool.unknown","reason":"there is no tool `x`"}"#);
        assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), deny);
        assert!(!deny.is_allowed() && Verdict::allow("a", "b").is_allowed());
    }
}
