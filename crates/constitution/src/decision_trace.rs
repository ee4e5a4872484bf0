//! The trace of one decision: the objections of its rules, and on request every step.

use std::fmt;

use serde::Serialize;

use crate::verdict::{Decision, Verdict};

/// Rules that one verdict names: as many as a person still reads.
const MAX_RULES: usize = 16;

/// What a rule said of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceStep {
    pub rule: String,
    pub outcome: RuleOutcome,
    /// The reason, as a sentence.
    pub why: String,
}

/// The outcome of one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleOutcome {
    /// No objection.
    Passed,
    Asked,
    Denied,
    /// A note, without an effect on the decision.
    Noted,
}

impl fmt::Display for RuleOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Asked => "asked",
            Self::Denied => "denied",
            Self::Noted => "noted",
        })
    }
}

/// One objection.
#[derive(Debug)]
struct Objection {
    decision: Decision,
    rule: String,
    reason: String,
    would_allow: Option<String>,
}

/// Collects the objections of a decision, and its steps if they are wanted.
#[derive(Debug)]
pub(crate) struct DecisionTrace<'a> {
    objections: Vec<Objection>,
    steps: Option<&'a mut Vec<TraceStep>>,
}

impl<'a> DecisionTrace<'a> {
    /// Collects only what the verdict needs.
    pub(crate) const fn without_steps() -> Self {
        Self { objections: Vec::new(), steps: None }
    }

    /// Records every step.
    pub(crate) const fn with_steps(steps: &'a mut Vec<TraceStep>) -> Self {
        Self { objections: Vec::new(), steps: Some(steps) }
    }

    pub(crate) fn record_pass(&mut self, rule: &str, why: impl FnOnce() -> String) {
        if let Some(steps) = &mut self.steps {
            steps.push(TraceStep { rule: rule.to_owned(), outcome: RuleOutcome::Passed, why: why() });
        }
    }

    pub(crate) fn record_note(&mut self, rule: &str, why: &str) {
        if let Some(steps) = &mut self.steps {
            steps.push(TraceStep { rule: rule.to_owned(), outcome: RuleOutcome::Noted, why: why.to_owned() });
        }
    }

    pub(crate) fn object(
        &mut self,
        decision: Decision,
        rule: impl Into<String>,
        reason: impl Into<String>,
        would_allow: Option<String>,
    ) {
        let (rule, reason) = (rule.into(), reason.into());
        if let Some(steps) = &mut self.steps {
            let outcome = match decision {
                Decision::Allow => RuleOutcome::Passed,
                Decision::Ask => RuleOutcome::Asked,
                Decision::Deny => RuleOutcome::Denied,
            };
            steps.push(TraceStep { rule: rule.clone(), outcome, why: reason.clone() });
        }
        self.objections.push(Objection { decision, rule, reason, would_allow });
    }

    /// A denial that ends the decision.
    pub(crate) fn deny(
        &mut self,
        rule: &str,
        reason: impl Into<String>,
        would_allow: Option<&str>,
    ) -> Verdict {
        let reason = reason.into();
        self.object(Decision::Deny, rule, reason.clone(), None);
        Verdict::deny(rule, reason, would_allow.map(str::to_owned))
    }

    /// The strictest of the objections as a verdict; `None` without an objection.
    pub(crate) fn take_verdict(&mut self) -> Option<Verdict> {
        let decision = self.objections.iter().map(|objection| objection.decision).max()?;
        let (mut rules, mut reasons, mut would_allow) = (Vec::new(), Vec::new(), Vec::new());
        let strictest = self.objections.drain(..).filter(|objection| objection.decision == decision);
        for objection in strictest.take(MAX_RULES) {
            rules.push(objection.rule);
            reasons.push(objection.reason);
            if let Some(would) = objection.would_allow
                && !would_allow.contains(&would)
            {
                would_allow.push(would);
            }
        }
        let would_allow = (!would_allow.is_empty()).then(|| would_allow.join("; "));
        let reason = reasons.join("; ");
        Some(Verdict { decision, rules, reason, would_allow, audited: None, waived_by: None })
    }
}
