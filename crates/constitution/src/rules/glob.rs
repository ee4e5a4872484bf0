//! Patterns of `like`: literals with `*` between them.
//!
//! The text comes from an agent and may be made to be slow to match. Therefore matching never backtracks: it passes
//! over a text once, whatever the pattern.

/// A pattern, split at its wildcards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    head: String,
    /// The literals between two wildcards.
    between: Vec<String>,
    /// The literal after the last wildcard; `None` in a pattern without wildcards.
    tail: Option<String>,
}

impl Glob {
    /// The pattern with a wildcard between each of these literals and the next.
    pub(crate) fn of(mut literals: Vec<String>) -> Self {
        let tail = if literals.len() > 1 { literals.pop() } else { None };
        let mut literals = literals.into_iter();
        let head = literals.next().unwrap_or_default();
        Self { head, between: literals.filter(|literal| !literal.is_empty()).collect(), tail }
    }

    /// Whether a text matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(self.head.as_str()) else { return false };
        let Some(tail) = &self.tail else { return rest.is_empty() };
        let Some(mut rest) = rest.strip_suffix(tail.as_str()) else { return false };
        // Between two wildcards the first occurrence is as good as any.
        self.between.iter().all(|literal| match rest.split_once(literal.as_str()) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        })
    }

    /// Whether every text that matches this pattern certainly matches `wide`.
    pub(crate) fn is_within(&self, wide: &Self) -> bool {
        // A character that only a wildcard of `wide` can match.
        let foreign = |c: &char| !wide.literals().any(|literal| literal.contains(*c));
        let Some(anything) = ('\u{F0000}'..='\u{FFFFD}').find(foreign) else { return false };
        let mut sample = self.head.clone();
        for literal in self.between.iter().chain(&self.tail) {
            sample.push(anything);
            sample.push_str(literal);
        }
        wide.matches(&sample)
    }

    /// All literals, in order.
    pub(crate) fn literals(&self) -> impl Iterator<Item = &String> {
        [&self.head].into_iter().chain(&self.between).chain(&self.tail)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn glob(pattern: &str) -> Glob {
        Glob::of(pattern.split('*').map(str::to_owned).collect())
    }

    /// The definition of a match, without regard to speed.
    fn fits(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|at| fits(rest, &text[at..])),
            [first, rest @ ..] => {
                text.split_first().is_some_and(|(own, text)| own == first && fits(rest, text))
            }
        }
    }

    #[test]
    fn literals_and_wildcards() {
        for (pattern, text, held) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("ab*ba", "aba", false),
            ("*a*a*", "aa", true),
            ("*a*a*", "a", false),
            ("**", "x", true),
            ("*\u{fc}*", "b\u{fc}cher", true),
        ] {
            assert_eq!(glob(pattern).matches(text), held, "{pattern} {text}");
        }
    }

    /// Backtracking over every way to place the wildcards would take too long to finish.
    #[test]
    fn l9_a_hostile_text_is_matched_in_linear_time() {
        let text = "a".repeat(1024 * 1024);
        assert!(!glob("*a*a*a*a*b").matches(&text));
        assert!(!glob(&format!("{}b", "*a".repeat(1000))).matches(&text));
        assert!(!glob(&format!("*{}b*c", "a".repeat(1000))).matches(&text));
        assert!(glob(&"*a".repeat(1000)).matches(&text));
    }

    #[test]
    fn no_character_stands_for_a_wildcard() {
        assert!(glob("a*").is_within(&glob("a*")) && glob("a*c").is_within(&glob("a*")));
        for c in ["\u{10FFFF}", "\u{F0000}"] {
            assert!(!glob("a*").is_within(&glob(&format!("a{c}"))));
            assert!(!glob("a*").is_within(&glob(&format!("a*{c}*"))));
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_by_its_definition(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            prop_assert_eq!(glob(&pattern).matches(&text), fits(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn a_match_of_the_narrow_pattern_matches_the_wide(narrow in "[ab*]{0,5}", wide in "[ab*]{0,5}", text in "[ab]{0,6}") {
            if glob(&narrow).is_within(&glob(&wide)) && glob(&narrow).matches(&text) {
                prop_assert!(glob(&wide).matches(&text), "{} within {}", narrow, wide);
            }
        }
    }
}
