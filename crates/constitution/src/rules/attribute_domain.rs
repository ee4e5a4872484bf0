//! The possible values of one attribute under a set of comparisons.

use super::condition::Condition;
use super::glob::Glob;

/// The constraints on one attribute.
#[derive(Debug, Clone, Default)]
pub(super) struct AttributeDomain<'c> {
    present: Option<bool>,
    pub(super) flag: Option<bool>,
    text: Option<&'c str>,
    /// Texts that it is not.
    other_than: Vec<&'c str>,
    /// The only possible texts, if they are known.
    pub(super) words: Option<&'c [String]>,
    pub(super) least: Option<i64>,
    pub(super) most: Option<i64>,
    like: Vec<&'c Glob>,
    unlike: Vec<&'c Glob>,
    holds: Vec<&'c String>,
    lacks: Vec<&'c String>,
    is_set: Option<&'c [String]>,
}

impl<'c> AttributeDomain<'c> {
    pub(super) fn set_presence(&mut self, present: bool) -> bool {
        *self.present.get_or_insert(present) == present
    }

    /// Adds a comparison or its negation; returns whether a value can still satisfy all constraints.
    pub(super) fn restrict(&mut self, comparison: &'c Condition, want: bool) -> bool {
        match (comparison, want) {
            (Condition::Flag(_, flag), want) => {
                let flag = *flag == want;
                return *self.flag.get_or_insert(flag) == flag;
            }
            (Condition::Text(_, text), true) => {
                if *self.text.get_or_insert(text) != text {
                    return false;
                }
            }
            (Condition::Text(_, text), false) => self.other_than.push(text),
            (Condition::Less(_, bound), true) => self.at_most(bound.checked_sub(1)),
            (Condition::Less(_, bound), false) => self.at_least(Some(*bound)),
            (Condition::AtMost(_, bound), true) => self.at_most(Some(*bound)),
            (Condition::AtMost(_, bound), false) => self.at_least(bound.checked_add(1)),
            (Condition::Like(_, pattern), true) => self.like.push(pattern),
            (Condition::Like(_, pattern), false) => self.unlike.push(pattern),
            (Condition::Contains(_, text), true) => self.holds.push(text),
            (Condition::Contains(_, text), false) => self.lacks.push(text),
            (Condition::Set(_, texts), true) => {
                let same = |own: &[String]| {
                    own.iter().all(|own| texts.contains(own)) && texts.iter().all(|text| own.contains(text))
                };
                if self.is_set.is_some_and(|own| !same(own)) {
                    return false;
                }
                self.is_set = Some(texts);
            }
            // The negation of a set comparison excludes too little to be tracked.
            (Condition::Set(_, _), false) => {}
            (
                Condition::Unknown
                | Condition::Opaque
                | Condition::Always(_)
                | Condition::And(_, _)
                | Condition::Or(_, _)
                | Condition::Not(_)
                | Condition::Has(_),
                _,
            ) => {}
        }
        self.is_satisfiable()
    }

    fn at_least(&mut self, bound: Option<i64>) {
        // No number is larger than the maximum.
        let bound = bound.unwrap_or(i64::MAX);
        self.least = Some(self.least.map_or(bound, |own| own.max(bound)));
    }

    fn at_most(&mut self, bound: Option<i64>) {
        let bound = bound.unwrap_or(i64::MIN);
        self.most = Some(self.most.map_or(bound, |own| own.min(bound)));
    }

    /// Whether some value may satisfy all constraints. False only if there is certainly none.
    fn is_satisfiable(&self) -> bool {
        if let (Some(least), Some(most)) = (self.least, self.most)
            && least > most
        {
            return false;
        }
        let fits = |text: &str| {
            !self.other_than.contains(&text)
                && self.like.iter().all(|pattern| pattern.matches(text))
                && !self.unlike.iter().any(|pattern| pattern.matches(text))
        };
        let texts = match (self.text, self.words) {
            (Some(text), Some(words)) => words.iter().any(|word| word == text) && fits(text),
            (Some(text), None) => fits(text),
            (None, Some(words)) => words.iter().any(|word| fits(word)),
            (None, None) => {
                !self.like.iter().any(|like| self.unlike.iter().any(|unlike| like.is_within(unlike)))
            }
        };
        let listed = |text: &String| self.is_set.is_none_or(|own| own.contains(text));
        let lacking = |text: &String| self.is_set.is_some_and(|own| own.contains(text));
        texts
            && self.holds.iter().all(|text| listed(text) && !self.lacks.contains(text))
            && !self.lacks.iter().any(|text| lacking(text))
    }
}
