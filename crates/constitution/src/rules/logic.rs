//! Whether conditions can hold together: finds rules that never match, and rules whose work others do already.
//!
//! Every way in which the conditions could come true is followed until what they say of one attribute contradicts itself.
//! What is not understood could be anything. So "cannot hold" is certain, and "can hold" is not.

use std::collections::BTreeMap;

use super::condition::{Condition, Piece, Subject, matches};

/// Ways that are followed before it is given up and the conditions are taken to be possible.
const MAX_WAYS: usize = 512;

/// What is known of the attributes before any condition speaks.
#[derive(Debug, Clone, Default)]
pub(crate) struct World(BTreeMap<Subject, Known>);

/// What is known of one attribute.
#[derive(Debug, Clone, Default)]
struct Known {
    present: Option<bool>,
    flag: Option<bool>,
    text: Option<String>,
    /// Texts that it is not.
    other_than: Vec<String>,
    /// The only texts there are, if they can be told.
    words: Option<Vec<String>>,
    least: Option<i64>,
    most: Option<i64>,
    like: Vec<Vec<Piece>>,
    unlike: Vec<Vec<Piece>>,
    holds: Vec<String>,
    lacks: Vec<String>,
    is_set: Option<Vec<String>>,
}

/// A condition, and whether it is to hold.
type Wanted<'c> = (&'c Condition, bool);

impl World {
    /// A number between two bounds.
    pub(crate) fn between(mut self, subject: Subject, least: i64, most: i64) -> Self {
        let known = self.0.entry(subject).or_default();
        (known.least, known.most) = (Some(least), Some(most));
        self
    }

    /// One of these texts.
    pub(crate) fn one_of<'w>(mut self, subject: Subject, words: impl IntoIterator<Item = &'w str>) -> Self {
        let words = words.into_iter().map(str::to_owned).collect();
        self.0.entry(subject).or_default().words = Some(words);
        self
    }

    pub(crate) fn flag(mut self, subject: Subject, flag: bool) -> Self {
        self.0.entry(subject).or_default().flag = Some(flag);
        self
    }

    /// Whether all of `held` can hold while those of `refuted`, together, do not.
    pub(crate) fn allows(&self, held: &[Condition], refuted: Option<&[Condition]>) -> bool {
        let held: Vec<Wanted<'_>> = held.iter().map(|condition| (condition, true)).collect();
        let mut ways = MAX_WAYS;
        let Some(refuted) = refuted else { return self.clone().possible(held, &mut ways) };
        // They do not hold together when one of them does not.
        refuted.iter().any(|one| {
            let mut wanted = held.clone();
            wanted.push((one, false));
            self.clone().possible(wanted, &mut ways)
        })
    }

    fn possible(mut self, mut wanted: Vec<Wanted<'_>>, ways: &mut usize) -> bool {
        while let Some((condition, want)) = wanted.pop() {
            match condition {
                Condition::Unknown => {}
                Condition::Always(always) if *always == want => {}
                Condition::Always(_) => return false,
                Condition::Not(inner) => wanted.push((inner, !want)),
                Condition::And(left, right) if want => wanted.extend([(&**left, true), (&**right, true)]),
                Condition::Or(left, right) if !want => wanted.extend([(&**left, false), (&**right, false)]),
                Condition::And(left, right) | Condition::Or(left, right) => {
                    let Some(fewer) = ways.checked_sub(1) else { return true };
                    *ways = fewer;
                    let mut first = wanted.clone();
                    first.push((left, want));
                    wanted.push((right, want));
                    return self.clone().possible(first, ways) || self.possible(wanted, ways);
                }
                Condition::Has(subject) => {
                    if !self.known(subject).is_present(want) {
                        return false;
                    }
                }
                Condition::Text(subject, _)
                | Condition::Flag(subject, _)
                | Condition::Less(subject, _)
                | Condition::AtMost(subject, _)
                | Condition::Like(subject, _)
                | Condition::Contains(subject, _)
                | Condition::Set(subject, _) => {
                    let known = self.known(subject);
                    // Only what is there can be compared.
                    if !known.is_present(true) || !known.learn(condition, want) {
                        return false;
                    }
                }
            }
        }
        true
    }

    fn known(&mut self, subject: &Subject) -> &mut Known {
        self.0.entry(subject.clone()).or_default()
    }
}

impl Known {
    fn is_present(&mut self, present: bool) -> bool {
        *self.present.get_or_insert(present) == present
    }

    /// Takes in a comparison; says whether it agrees with what was known.
    fn learn(&mut self, comparison: &Condition, want: bool) -> bool {
        match (comparison, want) {
            (Condition::Flag(_, flag), want) => {
                let flag = *flag == want;
                return *self.flag.get_or_insert(flag) == flag;
            }
            (Condition::Text(_, text), true) => {
                if self.text.get_or_insert_with(|| text.clone()) != text {
                    return false;
                }
            }
            (Condition::Text(_, text), false) => self.other_than.push(text.clone()),
            (Condition::Less(_, bound), true) => self.at_most(bound.checked_sub(1)),
            (Condition::Less(_, bound), false) => self.at_least(Some(*bound)),
            (Condition::AtMost(_, bound), true) => self.at_most(Some(*bound)),
            (Condition::AtMost(_, bound), false) => self.at_least(bound.checked_add(1)),
            (Condition::Like(_, pattern), true) => self.like.push(pattern.clone()),
            (Condition::Like(_, pattern), false) => self.unlike.push(pattern.clone()),
            (Condition::Contains(_, text), true) => self.holds.push(text.clone()),
            (Condition::Contains(_, text), false) => self.lacks.push(text.clone()),
            (Condition::Set(_, texts), true) => {
                let same = |own: &Vec<String>| {
                    own.iter().all(|own| texts.contains(own)) && texts.iter().all(|text| own.contains(text))
                };
                if self.is_set.as_ref().is_some_and(|own| !same(own)) {
                    return false;
                }
                self.is_set = Some(texts.clone());
            }
            // That a set is another one says little, and nothing is made of it.
            (Condition::Set(_, _), false) => {}
            (
                Condition::Unknown
                | Condition::Always(_)
                | Condition::And(_, _)
                | Condition::Or(_, _)
                | Condition::Not(_)
                | Condition::Has(_),
                _,
            ) => {}
        }
        self.agrees()
    }

    fn at_least(&mut self, bound: Option<i64>) {
        // No number is beyond the largest.
        let bound = bound.unwrap_or(i64::MAX);
        self.least = Some(self.least.map_or(bound, |own| own.max(bound)));
    }

    fn at_most(&mut self, bound: Option<i64>) {
        let bound = bound.unwrap_or(i64::MIN);
        self.most = Some(self.most.map_or(bound, |own| own.min(bound)));
    }

    /// Whether some value is all that is known of it.
    fn agrees(&self) -> bool {
        if let (Some(least), Some(most)) = (self.least, self.most)
            && least > most
        {
            return false;
        }
        let fits = |text: &String| {
            !self.other_than.contains(text)
                && self.like.iter().all(|pattern| matches(pattern, text))
                && !self.unlike.iter().any(|pattern| matches(pattern, text))
        };
        let texts = match (&self.text, &self.words) {
            (Some(text), Some(words)) => words.contains(text) && fits(text),
            (Some(text), None) => fits(text),
            (None, Some(words)) => words.iter().any(fits),
            (None, None) => {
                !self.like.iter().any(|like| self.unlike.iter().any(|unlike| within(like, unlike)))
            }
        };
        let listed = |text: &String| self.is_set.as_ref().is_none_or(|own| own.contains(text));
        let lacking = |text: &String| self.is_set.as_ref().is_some_and(|own| own.contains(text));
        texts
            && self.holds.iter().all(|text| listed(text) && !self.lacks.contains(text))
            && !self.lacks.iter().any(lacking)
    }
}

/// Whether every text that fits `narrow` fits `wide`: a wildcard of the one is taken by a wildcard of the other.
fn within(narrow: &[Piece], wide: &[Piece]) -> bool {
    // No rule can hold this character, so only a wildcard takes it.
    const ANYTHING: &str = "\u{10FFFF}";
    let sample: String = narrow
        .iter()
        .map(|piece| match piece {
            Piece::Literal(literal) => literal.as_str(),
            Piece::Wildcard => ANYTHING,
        })
        .collect();
    matches(wide, &sample)
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
            .between(Subject::Context("trust".to_owned()), 0, 3)
            .one_of(Subject::Agent("kind".to_owned()), ["main", "subagent"])
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
            assert_eq!(world().allows(&conditions(condition), None), possible, "{condition}");
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
        ] {
            let covers = !world().allows(&conditions(narrow), Some(&conditions(wide)));
            assert_eq!(covers, covered, "{narrow} within {wide}");
        }
        assert!(!world().allows(&conditions("context.private"), Some(&[])));
    }

    #[test]
    fn many_ways_end() {
        let choices: Vec<String> =
            (0..600).map(|n| format!("(context.bytes == {n} || context.trust < {})", n % 3 + 1)).collect();
        assert!(world().allows(&conditions(&choices.join(" && ")), None));
    }
}
