//! Whether conditions can hold together: finds rules that never match, and rules whose work others do already.
//!
//! Every way in which the conditions could come true is followed until what they say of one attribute contradicts itself.
//! What is not understood could be anything. So "cannot hold" is certain, and "can hold" is not.

use super::attribute_domain::Known;
use super::condition::{Condition, Subject};

/// Ways that are followed before it is given up and the conditions are taken to be possible.
const MAX_WAYS: usize = 512;

/// Ways in which one rule can match that are told apart; each is held against every other rule.
const MAX_CASES: usize = 16;

/// What is known of the attributes before any condition speaks.
#[derive(Debug, Clone, Default)]
pub(crate) struct World(Vec<(Subject, Domain)>);

/// The values that an attribute can have.
#[derive(Debug, Clone)]
enum Domain {
    Between(i64, i64),
    OneOf(Vec<String>),
    Flag(bool),
}

/// One way in which conditions hold: what it says of each attribute.
#[derive(Debug, Clone)]
pub(crate) struct Case<'c> {
    world: &'c World,
    known: Vec<(Subject, Known<'c>)>,
}

/// What becomes of a condition when it is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Holds,
    Refuted,
    /// It has no value, because something in it overflows.
    Fails,
}

/// Conditions, and how each is to end.
type Wanted<'c> = Vec<(&'c Condition, End)>;

/// There are more ways than are followed.
#[derive(Debug)]
struct TooMany;

impl World {
    /// A number between two bounds.
    pub(crate) fn between(mut self, subject: Subject, least: i64, most: i64) -> Self {
        self.0.push((subject, Domain::Between(least, most)));
        self
    }

    /// One of these texts.
    pub(crate) fn one_of<'w>(mut self, subject: Subject, words: impl IntoIterator<Item = &'w str>) -> Self {
        self.0.push((subject, Domain::OneOf(words.into_iter().map(str::to_owned).collect())));
        self
    }

    pub(crate) fn flag(mut self, subject: Subject, flag: bool) -> Self {
        self.0.push((subject, Domain::Flag(flag)));
        self
    }

    /// The ways in which all conditions hold: none if they cannot, `None` if there are too many to tell apart.
    pub(crate) fn cases<'c>(&'c self, conditions: &'c [Condition]) -> Option<Vec<Case<'c>>> {
        let (mut cases, mut ways) = (Vec::new(), MAX_WAYS);
        let wanted = conditions.iter().map(|condition| (condition, End::Holds)).collect();
        let followed = self.anything().follow(wanted, &mut ways, &mut |case| {
            cases.push(case);
            if cases.len() > MAX_CASES { Err(TooMany) } else { Ok(()) }
        });
        followed.is_ok().then_some(cases)
    }

    /// Whether evaluating the conditions one after the other can fail.
    pub(crate) fn can_fail(&self, conditions: &[Condition]) -> bool {
        self.anything().can_end(conditions, End::Fails)
    }

    /// Whether the conditions can come out as not holding.
    pub(crate) fn can_refute(&self, conditions: &[Condition]) -> bool {
        self.anything().can_refute(conditions)
    }

    fn anything(&self) -> Case<'_> {
        Case { world: self, known: Vec::new() }
    }

    fn known(&self, subject: Subject) -> Known<'_> {
        let mut known = Known::default();
        for (_, domain) in self.0.iter().filter(|(own, _)| *own == subject) {
            match domain {
                Domain::Between(least, most) => (known.least, known.most) = (Some(*least), Some(*most)),
                Domain::OneOf(words) => known.words = Some(words),
                Domain::Flag(flag) => known.flag = Some(*flag),
            }
        }
        known
    }
}

impl<'c> Case<'c> {
    /// Whether the conditions can come out as not holding in this case.
    pub(crate) fn can_refute(&self, conditions: &'c [Condition]) -> bool {
        self.can_end(conditions, End::Refuted)
    }

    /// Whether conditions that are evaluated one after the other can end like this at one of them.
    fn can_end(&self, conditions: &'c [Condition], end: End) -> bool {
        let mut ways = MAX_WAYS;
        (0..conditions.len()).any(|at| {
            let held = conditions.iter().take(at).map(|condition| (condition, End::Holds));
            let last = conditions.iter().skip(at).take(1).map(|condition| (condition, end));
            // The first way that is found ends the search, like giving it up.
            self.clone().follow(held.chain(last).collect(), &mut ways, &mut |_| Err(TooMany)).is_err()
        })
    }

    /// Hands every way in which the conditions end as wanted to `found`.
    fn follow(
        mut self,
        mut wanted: Wanted<'c>,
        ways: &mut usize,
        found: &mut dyn FnMut(Self) -> Result<(), TooMany>,
    ) -> Result<(), TooMany> {
        while let Some((condition, end)) = wanted.pop() {
            let (left, right, passing) = match (condition, end) {
                (Condition::Unknown, _) | (Condition::Opaque, End::Holds | End::Refuted) => continue,
                (Condition::Always(true), End::Holds) | (Condition::Always(false), End::Refuted) => continue,
                (Condition::Opaque | Condition::Always(_), _) => return Ok(()),
                (Condition::Not(inner), end) => {
                    wanted.push((inner, end.negated()));
                    continue;
                }
                (Condition::And(left, right), End::Holds) | (Condition::Or(left, right), End::Refuted) => {
                    wanted.extend([(&**left, end), (&**right, end)]);
                    continue;
                }
                (Condition::And(left, right), _) => (left, right, End::Holds),
                (Condition::Or(left, right), _) => (left, right, End::Refuted),
                (comparison, end) => {
                    if !self.takes_in(comparison, end) {
                        return Ok(());
                    }
                    continue;
                }
            };
            // It ends so at its left side, or gets past that and ends so at its right.
            *ways = ways.checked_sub(1).ok_or(TooMany)?;
            let mut at_left = wanted.clone();
            at_left.push((left, end));
            wanted.extend([(&**left, passing), (&**right, end)]);
            self.clone().follow(at_left, ways, found)?;
        }
        found(self)
    }

    /// Takes in a comparison; says whether it agrees with what was known. One that passed the schema never fails.
    fn takes_in(&mut self, comparison: &'c Condition, end: End) -> bool {
        let want = match end {
            End::Holds => true,
            End::Refuted => false,
            End::Fails => return false,
        };
        match comparison {
            Condition::Has(subject) => self.known(*subject).is_present(want),
            Condition::Text(subject, _)
            | Condition::Flag(subject, _)
            | Condition::Less(subject, _)
            | Condition::AtMost(subject, _)
            | Condition::Like(subject, _)
            | Condition::Contains(subject, _)
            | Condition::Set(subject, _) => {
                let known = self.known(*subject);
                // Only what is there can be compared.
                known.is_present(true) && known.learn(comparison, want)
            }
            Condition::Unknown
            | Condition::Opaque
            | Condition::Always(_)
            | Condition::And(_, _)
            | Condition::Or(_, _)
            | Condition::Not(_) => true,
        }
    }

    fn known(&mut self, subject: Subject) -> &mut Known<'c> {
        let at = self.known.iter().position(|(own, _)| *own == subject).unwrap_or_else(|| {
            self.known.push((subject, self.world.known(subject)));
            self.known.len() - 1
        });
        &mut self.known[at].1
    }
}

impl End {
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

    fn world() -> World {
        World::default()
            .between(Subject::Context("trust"), 0, 3)
            .one_of(Subject::Agent("kind"), ["main", "subagent"])
    }

    fn is_possible(condition: &str) -> bool {
        world().cases(&conditions(condition)).is_none_or(|cases| !cases.is_empty())
    }

    #[test]
    fn what_contradicts_itself_is_found() {
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
            // What is not understood may be anything.
            ("context.bytes + 1 < context.bytes", true),
            ("false && context.bytes + 1 == 2", false),
        ] {
            assert_eq!(is_possible(condition), possible, "{condition}");
        }
    }

    #[test]
    fn what_others_say_already_is_found() {
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
            let (world, narrow, wide) = (world(), conditions(narrow), conditions(wide));
            let covers =
                world.cases(&narrow).is_some_and(|cases| !cases.iter().any(|case| case.can_refute(&wide)));
            assert_eq!(covers, covered, "{narrow:?} within {wide:?}");
        }
        assert!(!world().can_refute(&[]));
    }

    #[test]
    fn many_ways_end() {
        let choices: Vec<String> =
            (0..600).map(|n| format!("(context.bytes == {n} || context.trust < {})", n % 3 + 1)).collect();
        assert!(is_possible(&choices.join(" && ")));
    }

    #[test]
    fn what_can_fail_is_found_where_it_is_reached() {
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
            assert_eq!(world().can_fail(&conditions(condition)), fails, "{condition}");
        }
    }
}
