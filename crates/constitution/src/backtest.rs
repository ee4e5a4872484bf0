//! Decides recorded calls again under another law: where it contradicts what people answered, what it would newly deny or
//! allow, and how many questions it would add or save.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::bundle::Constitution;
use crate::facts::{DecisionStage, Facts};
use crate::verdict::{Decision, Verdict};

/// Examples that are kept of each kind of change: enough to investigate, few enough to read.
const MAX_EXAMPLES: usize = 3;

/// What a law would change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Backtest {
    /// Calls that a person denied and that would now run without one. Counted nowhere else.
    pub overrides_denials: VerdictChanges,
    /// Calls that a person allowed and that would now be denied. Counted nowhere else.
    pub overrides_approvals: VerdictChanges,
    /// Calls that were decided again. Offers, and the second decision right before an effect, do not count.
    pub calls: u64,
    pub unchanged: u64,
    pub newly_denied: VerdictChanges,
    pub newly_allowed: VerdictChanges,
    /// Calls that a person would now have to decide.
    pub prompts_added: VerdictChanges,
    /// Calls that needed a person's approval and would now run without one.
    pub prompts_saved: VerdictChanges,
}

/// A recorded call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    pub facts: Facts,
    pub verdict: Verdict,
    /// Whether a person allowed it, if one was asked and answered.
    pub answer: Option<bool>,
}

/// The calls that changed in one way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictChanges {
    pub count: u64,
    pub by_tool: BTreeMap<String, u64>,
    pub by_agent: BTreeMap<String, u64>,
    /// The first of these calls.
    pub examples: Vec<ChangedCall>,
}

/// One call with both verdicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedCall {
    pub facts: Facts,
    pub before: Verdict,
    pub after: Verdict,
}

/// Decides recorded calls again under `candidate`. An exception whose uses the record did not count covers nothing.
pub fn backtest<C: Borrow<RecordedCall>>(
    candidate: &Constitution,
    recorded: impl IntoIterator<Item = C>,
) -> Backtest {
    let mut result = Backtest::default();
    for call in recorded {
        let RecordedCall { facts, verdict: before, answer } = call.borrow();
        match facts.stage {
            DecisionStage::Call => {}
            DecisionStage::Offer | DecisionStage::Dispatch => continue,
        }
        let after = candidate.decide(facts);
        result.calls += 1;
        let changes = match (before.decision, after.decision, answer) {
            (Decision::Allow, Decision::Allow, _)
            | (Decision::Ask, Decision::Ask, _)
            | (Decision::Deny, Decision::Deny, _) => {
                result.unchanged += 1;
                continue;
            }
            (Decision::Ask, Decision::Allow, Some(false)) => &mut result.overrides_denials,
            (Decision::Ask, Decision::Deny, Some(true)) => &mut result.overrides_approvals,
            (Decision::Allow | Decision::Ask, Decision::Deny, _) => &mut result.newly_denied,
            (Decision::Deny, Decision::Allow, _) => &mut result.newly_allowed,
            (Decision::Allow | Decision::Deny, Decision::Ask, _) => &mut result.prompts_added,
            (Decision::Ask, Decision::Allow, _) => &mut result.prompts_saved,
        };
        changes.add(facts, before, after);
    }
    result
}

impl VerdictChanges {
    fn add(&mut self, facts: &Facts, before: &Verdict, after: Verdict) {
        self.count += 1;
        *self.by_tool.entry(facts.tool.clone()).or_default() += 1;
        *self.by_agent.entry(facts.agent.clone()).or_default() += 1;
        if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(ChangedCall { facts: facts.clone(), before: before.clone(), after });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{call, law};

    #[test]
    fn every_kind_of_change_is_counted() {
        let old = law(
            "",
            r#"@id("a") forbid(principal, action == Tribune::Action::"search", resource);
               @id("b") forbid(principal, action == Tribune::Action::"memory", resource);"#,
        );
        let new = law(
            "",
            r#"@id("b") forbid(principal, action == Tribune::Action::"memory", resource) unless { context.approved };
               @id("c") forbid(principal, action == Tribune::Action::"read", resource);
               @id("d") forbid(principal, action == Tribune::Action::"write", resource) unless { context.approved };
               @id("e") permit(principal, action == Tribune::Action::"exec", resource);
               @id("f") forbid(principal, action == Tribune::Action::"cron", resource);"#,
        );
        let mut calls: Vec<Facts> =
            ["search", "memory", "read", "write", "exec", "exec", "exec", "exec", "cron", "edit"]
                .map(call)
                .to_vec();
        calls.push(Facts { stage: DecisionStage::Offer, ..call("read") });
        calls.push(Facts { stage: DecisionStage::Dispatch, ..call("read") });
        calls[2].agent = "clerk".to_owned();
        let record = |facts: Facts| RecordedCall { verdict: old.decide(&facts), facts, answer: None };
        let recorded: Vec<RecordedCall> = calls.into_iter().map(record).collect();
        let result = backtest(&new, &recorded);
        assert_eq!((result.calls, result.unchanged), (10, 1));
        let counts = |changes: &VerdictChanges| {
            changes.by_tool.iter().map(|(tool, n)| format!("{tool} {n}")).collect::<Vec<_>>()
        };
        assert_eq!(counts(&result.newly_allowed), ["search 1"]);
        assert_eq!(counts(&result.prompts_added), ["memory 1", "write 1"]);
        assert_eq!(counts(&result.newly_denied), ["cron 1", "read 1"]);
        assert_eq!(counts(&result.prompts_saved), ["exec 4"]);
        assert_eq!((result.prompts_saved.count, result.prompts_saved.examples.len()), (4, MAX_EXAMPLES));
        assert_eq!(result.newly_denied.by_agent["clerk"], 1);
        let same = backtest(&old, recorded);
        assert_eq!((same.calls, same.unchanged), (10, 10));
    }

    #[test]
    fn what_people_answered_is_compared_first() {
        let old = law("", "");
        let permissive = law("", "permit(principal, action == Tribune::Action::\"exec\", resource);");
        let strict = law("", "forbid(principal, action == Tribune::Action::\"exec\", resource);");
        let recorded: Vec<RecordedCall> = [Some(false), Some(false), Some(true), None]
            .map(|answer| RecordedCall { facts: call("exec"), verdict: old.decide(&call("exec")), answer })
            .to_vec();
        let result = backtest(&permissive, &recorded);
        assert_eq!((result.overrides_denials.count, result.prompts_saved.count), (2, 2));
        assert_eq!((result.overrides_approvals.count, result.newly_allowed.count), (0, 0));
        let result = backtest(&strict, &recorded);
        assert_eq!((result.overrides_approvals.count, result.newly_denied.count), (1, 3));
        assert_eq!(result.overrides_denials.count, 0);
    }
}
