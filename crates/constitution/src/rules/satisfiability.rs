//! Whether conditions can hold together: finds rules that never match, and rules that others make redundant.
//!
//! This is a tableau: each way in which the conditions can become true is a branch, expanded until its constraints
//! on one attribute contradict each other. A condition that is not understood can have any value. So "cannot hold"
//! is certain, and "can hold" is not.

use super::attribute_domain::AttributeDomain;
use super::condition::{AttributeRef, Condition};

/// Expansions before the search gives up and takes the conditions to be satisfiable.
const MAX_EXPANSIONS: usize = 512;

/// Branches of one rule that are distinguished; each is compared with every other rule.
const MAX_BRANCHES: usize = 16;

/// The possible values of the attributes before any condition constrains them.
#[derive(Debug, Clone, Default)]
pub(crate) struct InitialDomains(Vec<(AttributeRef, ValueSet)>);

/// The values that an attribute can have.
#[derive(Debug, Clone)]
enum ValueSet {
    Between(i64, i64),
    OneOf(Vec<String>),
    Flag(bool),
}

/// One way in which conditions hold: its constraints on each attribute.
#[derive(Debug, Clone)]
pub(crate) struct Branch<'c> {
    initial: &'c InitialDomains,
    domains: Vec<(AttributeRef, AttributeDomain<'c>)>,
}

/// The result of the evaluation of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evaluation {
    Holds,
    Refuted,
    /// It has no value, because a part of it overflows.
    Fails,
}

/// Conditions, each with the result that it is to have.
type Goals<'c> = Vec<(&'c Condition, Evaluation)>;

/// The number of branches or expansions exceeds its limit.
#[derive(Debug)]
struct BranchLimit;

impl InitialDomains {
    /// A number between two bounds.
    pub(crate) fn int_range(mut self, attribute: AttributeRef, least: i64, most: i64) -> Self {
        self.0.push((attribute, ValueSet::Between(least, most)));
        self
    }

    /// One of these texts.
    pub(crate) fn one_of<'w>(
        mut self,
        attribute: AttributeRef,
        words: impl IntoIterator<Item = &'w str>,
    ) -> Self {
        self.0.push((attribute, ValueSet::OneOf(words.into_iter().map(str::to_owned).collect())));
        self
    }

    pub(crate) fn flag(mut self, attribute: AttributeRef, flag: bool) -> Self {
        self.0.push((attribute, ValueSet::Flag(flag)));
        self
    }

    /// The branches in which all conditions hold: none if they cannot, `None` if there are too many.
    pub(crate) fn branches<'c>(&'c self, conditions: &'c [Condition]) -> Option<Vec<Branch<'c>>> {
        let (mut branches, mut budget) = (Vec::new(), MAX_EXPANSIONS);
        let goals = conditions.iter().map(|condition| (condition, Evaluation::Holds)).collect();
        let expanded = self.root().expand(goals, &mut budget, &mut |branch| {
            branches.push(branch);
            if branches.len() > MAX_BRANCHES { Err(BranchLimit) } else { Ok(()) }
        });
        expanded.is_ok().then_some(branches)
    }

    /// Whether evaluating the conditions one after the other can fail.
    pub(crate) fn can_fail(&self, conditions: &[Condition]) -> bool {
        self.root().can_evaluate_to(conditions, Evaluation::Fails)
    }

    /// Whether the conditions can be false.
    pub(crate) fn can_be_false(&self, conditions: &[Condition]) -> bool {
        self.root().can_be_false(conditions)
    }

    fn root(&self) -> Branch<'_> {
        Branch { initial: self, domains: Vec::new() }
    }

    fn initial_domain(&self, attribute: AttributeRef) -> AttributeDomain<'_> {
        let mut domain = AttributeDomain::default();
        for (_, values) in self.0.iter().filter(|(own, _)| *own == attribute) {
            match values {
                ValueSet::Between(least, most) => (domain.least, domain.most) = (Some(*least), Some(*most)),
                ValueSet::OneOf(words) => domain.words = Some(words),
                ValueSet::Flag(flag) => domain.flag = Some(*flag),
            }
        }
        domain
    }
}

impl<'c> Branch<'c> {
    /// Whether the conditions can be false in this branch.
    pub(crate) fn can_be_false(&self, conditions: &'c [Condition]) -> bool {
        self.can_evaluate_to(conditions, Evaluation::Refuted)
    }

    /// Whether conditions that are evaluated one after the other can end with this result at one of them.
    fn can_evaluate_to(&self, conditions: &'c [Condition], end: Evaluation) -> bool {
        let mut budget = MAX_EXPANSIONS;
        (0..conditions.len()).any(|at| {
            let held = conditions.iter().take(at).map(|condition| (condition, Evaluation::Holds));
            let last = conditions.iter().skip(at).take(1).map(|condition| (condition, end));
            // The first branch ends the search with an error, as does the limit.
            self.clone().expand(held.chain(last).collect(), &mut budget, &mut |_| Err(BranchLimit)).is_err()
        })
    }

    /// Passes every branch in which the conditions have the wanted results to `found`.
    fn expand(
        mut self,
        mut goals: Goals<'c>,
        budget: &mut usize,
        found: &mut dyn FnMut(Self) -> Result<(), BranchLimit>,
    ) -> Result<(), BranchLimit> {
        while let Some((condition, end)) = goals.pop() {
            let (left, right, continues) = match (condition, end) {
                (Condition::Unknown, _) | (Condition::Opaque, Evaluation::Holds | Evaluation::Refuted) => {
                    continue;
                }
                (Condition::Always(true), Evaluation::Holds)
                | (Condition::Always(false), Evaluation::Refuted) => continue,
                (Condition::Opaque | Condition::Always(_), _) => return Ok(()),
                (Condition::Not(inner), end) => {
                    goals.push((inner, end.negated()));
                    continue;
                }
                (Condition::And(left, right), Evaluation::Holds)
                | (Condition::Or(left, right), Evaluation::Refuted) => {
                    goals.extend([(&**left, end), (&**right, end)]);
                    continue;
                }
                (Condition::And(left, right), _) => (left, right, Evaluation::Holds),
                (Condition::Or(left, right), _) => (left, right, Evaluation::Refuted),
                (comparison, end) => {
                    if !self.assume(comparison, end) {
                        return Ok(());
                    }
                    continue;
                }
            };
            // It ends so at its left side, or the evaluation continues and ends so at its right side.
            *budget = budget.checked_sub(1).ok_or(BranchLimit)?;
            let mut left_goals = goals.clone();
            left_goals.push((left, end));
            goals.extend([(&**left, continues), (&**right, end)]);
            self.clone().expand(left_goals, budget, found)?;
        }
        found(self)
    }

    /// Adds a comparison; returns whether the branch is still satisfiable. A comparison that passed the schema
    /// never fails.
    fn assume(&mut self, comparison: &'c Condition, end: Evaluation) -> bool {
        let want = match end {
            Evaluation::Holds => true,
            Evaluation::Refuted => false,
            Evaluation::Fails => return false,
        };
        match comparison {
            Condition::Has(attribute) => self.domain_mut(*attribute).set_presence(want),
            Condition::Text(attribute, _)
            | Condition::Flag(attribute, _)
            | Condition::Less(attribute, _)
            | Condition::AtMost(attribute, _)
            | Condition::Like(attribute, _)
            | Condition::Contains(attribute, _)
            | Condition::Set(attribute, _) => {
                let domain = self.domain_mut(*attribute);
                // Only an attribute that is present can be compared.
                domain.set_presence(true) && domain.restrict(comparison, want)
            }
            Condition::Unknown
            | Condition::Opaque
            | Condition::Always(_)
            | Condition::And(_, _)
            | Condition::Or(_, _)
            | Condition::Not(_) => true,
        }
    }

    fn domain_mut(&mut self, attribute: AttributeRef) -> &mut AttributeDomain<'c> {
        let at = self.domains.iter().position(|(own, _)| *own == attribute).unwrap_or_else(|| {
            self.domains.push((attribute, self.initial.initial_domain(attribute)));
            self.domains.len() - 1
        });
        &mut self.domains[at].1
    }
}

impl Evaluation {
    const fn negated(self) -> Self {
        match self {
            Self::Holds => Self::Refuted,
            Self::Refuted => Self::Holds,
            Self::Fails => Self::Fails,
        }
    }
}

#[cfg(test)]
mod tests {
    use cedar_policy::Policy;

    use super::*;

    fn conditions(text: &str) -> Vec<Condition> {
        let text = format!("forbid(principal, action, resource) when {{ {text} }};");
        Condition::all_of(&Policy::parse(None, text).unwrap().to_json().unwrap())
    }

    fn initial() -> InitialDomains {
        InitialDomains::default()
            .int_range(AttributeRef::Context("trust"), 0, 3)
            .one_of(AttributeRef::Agent("kind"), ["main", "subagent"])
    }

    fn is_possible(condition: &str) -> bool {
        initial().branches(&conditions(condition)).is_none_or(|branches| !branches.is_empty())
    }

    #[test]
    fn contradictions_are_found() {
        for (condition, possible) in [
            ("true", true),
            ("false", false),
            ("1 > 2", false),
            ("1 <= 2", true),
            ("context.trust > 3", false),
            ("context.trust >= 3", true),
            ("context.trust < 0", false),
            ("context.trust < 2 && context.trust > 1", false),
            ("context.trust < 2 || context.trust > 3", true),
            ("context.trust < 0 || context.trust > 3", false),
            ("context has path && !(context has path)", false),
            ("!(context has path) && context.path == \"a\"", false),
            ("context.host == \"a\" && context.host == \"b\"", false),
            ("context.host == \"a\" && context.host != \"a\"", false),
            ("context.host == \"a\" && context.port == 1", true),
            ("context.host == \"ab\" && context.host like \"b*\"", false),
            ("context.host like \"b*\" && !(context.host like \"*\")", false),
            ("context.host like \"b*\" && context.host like \"*c\"", true),
            ("context.private && !context.private", false),
            ("!(context.private || !context.private)", false),
            ("principal.kind == \"mian\"", false),
            ("principal.kind != \"main\" && principal.kind != \"subagent\"", false),
            ("principal.kind like \"sub*\"", true),
            ("principal.kind like \"sup*\"", false),
            ("context.programs.contains(\"rm\") && !context.programs.contains(\"rm\")", false),
            ("context.programs == [\"ls\"] && context.programs.contains(\"rm\")", false),
            ("context.programs == [\"ls\"] && !context.programs.contains(\"ls\")", false),
            ("context.programs == [\"ls\", \"rm\"] && context.programs == [\"rm\", \"ls\"]", true),
            ("context.programs == [\"ls\"] && context.programs == [\"rm\"]", false),
            // A condition that is not understood can have any value.
            ("context.bytes + 1 < context.bytes", true),
            ("false && context.bytes + 1 == 2", false),
        ] {
            assert_eq!(is_possible(condition), possible, "{condition}");
        }
    }

    #[test]
    fn implied_conditions_are_found() {
        for (narrow, wide, covered) in [
            ("context.trust < 1", "context.trust < 2", true),
            ("context.trust < 2", "context.trust < 1", false),
            ("context.private && context.trust < 2", "context.private", true),
            ("context.private", "true", true),
            ("context.path like \"secrets/keys/*\"", "context.path like \"secrets/*\"", true),
            ("context.path like \"secrets/*\"", "context.path like \"secrets/keys/*\"", false),
            ("context.path like \"*.pem\"", "context.path like \"*.p*\"", true),
            ("context.path == \"secrets/a\"", "context has path && context.path like \"secrets/*\"", true),
            ("context.host == \"a\"", "context.host == \"a\" || context.host == \"b\"", true),
            ("context.bytes + 1 < 5", "context.bytes + 1 < 5", false),
            ("context has path && !(context has host)", "!(context has host && context.host == \"a\")", true),
            ("context.path like \"a*\"", "context.path like \"a\\u{10ffff}*\"", false),
        ] {
            let (initial, narrow, wide) = (initial(), conditions(narrow), conditions(wide));
            let covers = initial
                .branches(&narrow)
                .is_some_and(|branches| !branches.iter().any(|branch| branch.can_be_false(&wide)));
            assert_eq!(covers, covered, "{narrow:?} within {wide:?}");
        }
        assert!(!initial().can_be_false(&[]));
    }

    #[test]
    fn many_branches_terminate() {
        let choices: Vec<String> =
            (0..600).map(|n| format!("(context.bytes == {n} || context.trust < {})", n % 3 + 1)).collect();
        assert!(is_possible(&choices.join(" && ")));
    }

    #[test]
    fn reachable_failures_are_found() {
        for (condition, fails) in [
            ("context.bytes + 1 < 5", true),
            ("context.bytes * 2 < 5 && false", true),
            ("false && context.bytes + 1 < 5", false),
            ("true || context.bytes + 1 < 5", false),
            ("context.trust > 3 && -context.bytes < 5", false),
            ("!(context has bytes && context.bytes - 1 == 2)", true),
            ("if context.private then context.trust == 1 else context.owner_args", false),
            ("[\"a\", \"b\"].containsAll(context.programs)", false),
            ("action in Tribune::Action::\"side_effect\" && principal == Tribune::Agent::\"main\"", false),
            ("ip(\"10.0.0.1\").isLoopback()", true),
        ] {
            assert_eq!(initial().can_fail(&conditions(condition)), fails, "{condition}");
        }
    }
}
