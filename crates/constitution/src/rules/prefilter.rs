//! A fast check whether a rule can match, before Cedar evaluates it.
//!
//! Most rules are simple comparisons (`context has path && context.path like "secrets/*"`), and most calls fail
//! them. The part of a rule's condition that is understood is stored in a form that is evaluated in nanoseconds, in
//! the order in which Cedar evaluates it. If it is false, so is the rule. The rest can have any value, and only
//! Cedar decides about what passes: the prefilter never makes a rule match.

use cedar_policy::{EntityId, EntityTypeName, EntityUid, Policy, PrincipalConstraint};

use super::call_view::CallView;
use super::condition::Condition;

/// The understood part of what must hold for a rule to match.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prefilter {
    agent: Option<String>,
    conditions: Vec<Condition>,
}

impl Prefilter {
    pub(crate) fn of(policy: &Policy) -> Self {
        let mut prefilter = Self::default();
        if let PrincipalConstraint::Eq(agent) = policy.principal_constraint()
            && let Ok(kind) = "Tribune::Agent".parse::<EntityTypeName>()
        {
            let id = agent.id().unescaped().to_owned();
            let same = agent == EntityUid::from_type_name_and_id(kind, EntityId::new(&id));
            prefilter.agent = same.then_some(id);
        }
        prefilter.conditions = Condition::all_of(&policy.to_json().unwrap_or_default());
        prefilter
    }

    /// The one agent that the rule is for.
    pub(crate) fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// The understood part of what must hold.
    pub(crate) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Whether the rule may match.
    pub(crate) fn may_match(&self, view: &CallView<'_>) -> bool {
        if self.agent.as_ref().is_some_and(|agent| *agent != view.facts.agent) {
            return false;
        }
        for condition in &self.conditions {
            match condition.holds(view) {
                Some(true) => {}
                Some(false) => return false,
                // A later condition may be false, but this one may fail before it, which only Cedar can tell.
                None => return true,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::attribute_usage::AttributeUsage;
    use super::super::call_view::call_views;
    use super::*;
    use crate::facts::Facts;

    fn prefilter(condition: &str) -> Prefilter {
        Prefilter::of(
            &Policy::parse(None, format!("forbid(principal, action, resource) {condition};")).unwrap(),
        )
    }

    fn passes(condition: &str, facts: &Facts) -> bool {
        prefilter(condition)
            .may_match(&call_views(&AttributeUsage::default(), facts, "internal").next().unwrap())
    }

    #[test]
    fn a_false_condition_stops_a_rule() {
        let mut facts = Facts::for_owner_call("main", "s", "m", "read");
        facts.args.path = Some("secrets/key.txt".to_owned());
        facts.args.programs = Some(vec!["ls".to_owned(), "git".to_owned()]);
        facts.args.bytes = Some(5);
        for (condition, held) in [
            ("context has path", true),
            ("context has host", false),
            ("context.path like \"secrets/*\"", true),
            ("context.path like \"*.txt\"", true),
            ("context.path like \"*s/k*t\"", true),
            ("context.path like \"*txt*key\"", false),
            ("context.path like \"secrets\"", false),
            ("context.path like \"*\"", true),
            ("context.programs.contains(\"ls\")", true),
            ("context.programs.contains(\"rm\")", false),
            ("context.programs == [\"git\", \"ls\"]", true),
            ("context.programs == [\"git\"]", false),
            ("context.bytes > 5", false),
            ("context.bytes >= 5", true),
            ("context.bytes <= 4", false),
            ("context.bytes < 6", true),
            ("!context.approved", true),
            ("context.approved == true", false),
            ("resource.class == \"internal\"", true),
            ("resource.class == \"external\"", false),
            ("principal.id == \"main\"", true),
            ("principal.id != \"main\"", false),
            ("context.bytes < 5 || context has host", false),
            ("context.bytes < 5 || context has path", true),
            ("!(context has path && context.approved)", true),
            // What is not understood can have any value, and so can everything that Cedar evaluates after it.
            ("1 + 1 == 3", true),
            ("1 + 1 == 3 && context has host", true),
            ("context has host && 1 + 1 == 2", false),
            ("1 + 1 == 3 || context has host", true),
        ] {
            assert_eq!(passes(&format!("when {{ {condition} }}"), &facts), held, "{condition}");
            let understood = !condition.contains('+');
            let otherwise = passes(&format!("unless {{ {condition} }}"), &facts);
            assert_eq!(otherwise, !(understood && held), "unless {condition}");
        }
    }
}
