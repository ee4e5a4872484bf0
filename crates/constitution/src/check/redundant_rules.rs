//! Redundant rules, which can be removed without a change to any decision: their conditions never hold, or other
//! rules have the same effect. And the opposite, a permit that holds for everything.
//!
//! Only what is certain is reported. A rule that can fail is never redundant, because a rule that fails denies.

use std::sync::Arc;

use crate::bundle::Constitution;
use crate::facts::SessionKind;
use crate::rules::Rule;
use crate::rules::condition::AttributeRef;
use crate::rules::satisfiability::{Branch, InitialDomains};
use crate::settings::UNCLASSIFIED;
use crate::trust::Trust;

/// Why a rule is redundant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Redundancy {
    NeverHolds,
    /// By the rule at this index in the order of the files.
    CoveredBy(usize),
}

/// The attribute values that calls under a law can have.
pub(super) struct RuleDomains {
    any: InitialDomains,
    /// For a permit: it only matters for calls that no one approved.
    unapproved: InitialDomains,
}

/// The rules of a law, prepared for comparison with each other.
pub(super) struct RuleComparison<'w> {
    domains: &'w RuleDomains,
    all: &'w [Arc<Rule>],
    analyses: Vec<RuleAnalysis<'w>>,
}

struct RuleAnalysis<'w> {
    can_fail: bool,
    /// The branches in which the rule matches; `None` if there are too many.
    branches: Option<Vec<Branch<'w>>>,
}

impl RuleDomains {
    pub(super) fn of(law: &Constitution) -> Self {
        let highest = Trust::ALL.map(|trust| i64::from(trust.level())).into_iter().max().unwrap_or_default();
        let classes = law.settings().channels.classes.values().map(String::as_str);
        let any = InitialDomains::default()
            .int_range(AttributeRef::Context("trust"), 0, highest)
            .int_range(AttributeRef::Context("bytes"), 0, i64::MAX)
            .int_range(AttributeRef::Context("port"), 0, i64::from(u16::MAX))
            .one_of(AttributeRef::Context("mandate"), law.mandates().keys().map(String::as_str))
            .one_of(AttributeRef::Agent("kind"), SessionKind::ALL.map(SessionKind::as_str))
            .one_of(AttributeRef::Session("class"), classes.chain([UNCLASSIFIED]));
        Self { unapproved: any.clone().flag(AttributeRef::Context("approved"), false), any }
    }

    fn of_rule(&self, rule: &Rule) -> &InitialDomains {
        if rule.forbids { &self.any } else { &self.unapproved }
    }
}

impl<'w> RuleComparison<'w> {
    pub(super) fn new(all: &'w [Arc<Rule>], domains: &'w RuleDomains) -> Self {
        let analyze = |rule: &'w Arc<Rule>| {
            let (initial, conditions) = (domains.of_rule(rule), rule.prefilter.conditions());
            RuleAnalysis { can_fail: initial.can_fail(conditions), branches: initial.branches(conditions) }
        };
        Self { domains, all, analyses: all.iter().map(analyze).collect() }
    }

    /// Whether the rule at this index can fail, and so deny.
    pub(super) fn can_fail(&self, at: usize) -> bool {
        self.analyses.get(at).is_none_or(|own| own.can_fail)
    }

    /// Whether the rule holds for every call of its tools.
    pub(super) fn always_holds(&self, at: usize) -> bool {
        self.all.get(at).is_some_and(|rule| {
            let initial = self.domains.of_rule(rule);
            rule.scope.is_for_everyone()
                && !self.can_fail(at)
                && !initial.can_be_false(rule.prefilter.conditions())
        })
    }

    /// Why each rule is redundant, if it is. All redundant rules can be removed together.
    pub(super) fn find_redundant(&self) -> Vec<Option<Redundancy>> {
        let mut found: Vec<Option<Redundancy>> = Vec::new();
        for at in 0..self.all.len() {
            let own = if self.never_holds(at) {
                Some(Redundancy::NeverHolds)
            } else {
                let cover = (0..self.all.len()).find(|other| self.is_kept_for(*other, at, &found));
                cover.map(Redundancy::CoveredBy)
            };
            found.push(own);
        }
        found
    }

    fn never_holds(&self, at: usize) -> bool {
        let is_impossible = self.all.get(at).is_some_and(|rule| rule.is_impossible);
        let has_no_branch =
            self.analyses.get(at).and_then(|own| own.branches.as_ref()).is_some_and(Vec::is_empty);
        !self.can_fail(at) && (is_impossible || has_no_branch)
    }

    /// Whether the rule at `other` covers the one at `at`, and is not itself covered by it, nor by a rule that it
    /// covers. Of two rules that cover each other, the first is kept.
    fn is_kept_for(&self, other: usize, at: usize, found: &[Option<Redundancy>]) -> bool {
        if other == at || !self.covers(other, at) || other > at && self.covers(at, other) {
            return false;
        }
        let mut last = other;
        while let Some(Some(Redundancy::CoveredBy(next))) = found.get(last) {
            last = *next;
            if last == at {
                return false;
            }
        }
        true
    }

    /// Whether the rule at `other` makes the one at `at` redundant for every call that it matches.
    fn covers(&self, other: usize, at: usize) -> bool {
        let (Some(cover), Some(own), Some(analysis)) =
            (self.all.get(other), self.all.get(at), self.analyses.get(at))
        else {
            return false;
        };
        // Rules that read arguments do not decide about offers.
        let speaks = cover.forbids || !own.forbids;
        let as_early = own.usage.args || !cover.usage.args;
        if !speaks || !as_early || analysis.can_fail || !cover.scope.contains(&own.scope) {
            return false;
        }
        let Some(branches) = &analysis.branches else { return false };
        !branches.iter().any(|branch| branch.can_be_false(cover.prefilter.conditions()))
    }
}
