//! Rules that can be taken away without any call being decided otherwise: their conditions never hold, or others do what
//! they do. And the opposite, a permit that holds for everything.
//!
//! Only what is certain is told. A rule that could fail is never needless, because a rule that fails denies.

use std::sync::Arc;

use crate::bundle::Constitution;
use crate::facts::SessionKind;
use crate::rules::Rule;
use crate::rules::condition::Subject;
use crate::rules::satisfiability::{Case, World};
use crate::settings::UNCLASSIFIED;
use crate::trust::Trust;

/// Why a rule is needless.
#[derive(Debug, Clone, Copy)]
pub(super) enum Needless {
    NeverHolds,
    /// By the rule at this place in the order of the files.
    CoveredBy(usize),
}

/// What calls can be like in a house.
pub(super) struct Worlds {
    any: World,
    /// A permit is for calls that nobody approved.
    unapproved: World,
}

/// The rules of a house, ready to be held against each other.
pub(super) struct Rules<'w> {
    worlds: &'w Worlds,
    all: &'w [Arc<Rule>],
    examined: Vec<Examined<'w>>,
}

struct Examined<'w> {
    can_fail: bool,
    /// The ways in which the rule matches; `None` if there are too many.
    cases: Option<Vec<Case<'w>>>,
}

impl Worlds {
    pub(super) fn of(law: &Constitution) -> Self {
        let highest = Trust::ALL.map(|trust| i64::from(trust.level())).into_iter().max().unwrap_or_default();
        let classes = law.settings().channels.classes.values().map(String::as_str);
        let any = World::default()
            .between(Subject::Context("trust"), 0, highest)
            .between(Subject::Context("bytes"), 0, i64::MAX)
            .between(Subject::Context("port"), 0, i64::from(u16::MAX))
            .one_of(Subject::Context("mandate"), law.mandates().keys().map(String::as_str))
            .one_of(Subject::Agent("kind"), SessionKind::ALL.map(SessionKind::as_str))
            .one_of(Subject::Session("class"), classes.chain([UNCLASSIFIED]));
        Self { unapproved: any.clone().flag(Subject::Context("approved"), false), any }
    }

    fn of_rule(&self, rule: &Rule) -> &World {
        if rule.forbids { &self.any } else { &self.unapproved }
    }
}

impl<'w> Rules<'w> {
    pub(super) fn new(all: &'w [Arc<Rule>], worlds: &'w Worlds) -> Self {
        let examine = |rule: &'w Arc<Rule>| {
            let (world, conditions) = (worlds.of_rule(rule), rule.guard.conditions());
            Examined { can_fail: world.can_fail(conditions), cases: world.cases(conditions) }
        };
        Self { worlds, all, examined: all.iter().map(examine).collect() }
    }

    /// Whether the rule at this place could fail, and so deny.
    pub(super) fn can_fail(&self, at: usize) -> bool {
        self.examined.get(at).is_none_or(|own| own.can_fail)
    }

    /// Whether the rule holds for every call of its tools.
    pub(super) fn always_holds(&self, at: usize) -> bool {
        self.all.get(at).is_some_and(|rule| {
            let world = self.worlds.of_rule(rule);
            rule.scope.is_for_everyone() && !self.can_fail(at) && !world.can_refute(rule.guard.conditions())
        })
    }

    /// Why each rule is needless, where one is. All of those can be taken away together.
    pub(super) fn needless(&self) -> Vec<Option<Needless>> {
        let mut found: Vec<Option<Needless>> = Vec::new();
        for at in 0..self.all.len() {
            let own = if self.never_holds(at) {
                Some(Needless::NeverHolds)
            } else {
                let cover = (0..self.all.len()).find(|other| self.is_kept_for(*other, at, &found));
                cover.map(Needless::CoveredBy)
            };
            found.push(own);
        }
        found
    }

    fn never_holds(&self, at: usize) -> bool {
        let impossible = self.all.get(at).is_some_and(|rule| rule.impossible);
        let no_case = self.examined.get(at).and_then(|own| own.cases.as_ref()).is_some_and(Vec::is_empty);
        !self.can_fail(at) && (impossible || no_case)
    }

    /// Whether the rule at `other` covers the one at `at`, and is not itself covered by it, nor by one that it covers. Of
    /// two that cover each other, the first is kept.
    fn is_kept_for(&self, other: usize, at: usize, found: &[Option<Needless>]) -> bool {
        if other == at || !self.covers(other, at) || other > at && self.covers(at, other) {
            return false;
        }
        let mut last = other;
        while let Some(Some(Needless::CoveredBy(next))) = found.get(last) {
            last = *next;
            if last == at {
                return false;
            }
        }
        true
    }

    /// Whether the rule at `other` says of every call that the one at `at` matches what makes that one needless.
    fn covers(&self, other: usize, at: usize) -> bool {
        let (Some(cover), Some(own), Some(examined)) =
            (self.all.get(other), self.all.get(at), self.examined.get(at))
        else {
            return false;
        };
        // An offer is held only to rules that do not look at arguments.
        let speaks = cover.forbids || !own.forbids;
        let as_early = own.reads.args || !cover.reads.args;
        if !speaks || !as_early || examined.can_fail || !cover.scope.contains(&own.scope) {
            return false;
        }
        let Some(cases) = &examined.cases else { return false };
        !cases.iter().any(|case| case.can_refute(cover.guard.conditions()))
    }
}
