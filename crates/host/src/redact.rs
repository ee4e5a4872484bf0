//! Takes secrets out of text before it is kept or shown.
//!
//! A secret is known by its shape, or by its value where the host holds it. Shapes are those of keys that grant access
//! by themselves; a password in a sentence has none, so this is the last net and not the first. Matching takes linear
//! time whatever the text.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Regex, RegexSet};

/// Known values shorter than this are not looked for: they would blank out ordinary words.
pub const MIN_KNOWN_BYTES: usize = 8;

/// Kind and pattern. The group `secret` is what goes; where there is none, the whole match does.
///
/// Prefixes that nothing else uses are found anywhere, in the middle of a word too: a secret often follows an escaped
/// `\n`. Lengths are the shortest that providers issue or less.
const SHAPES: [(&str, &str); 13] = [
    (
        "private-key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.)*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z)",
    ),
    ("operator-token", r"trb_[0-9A-Fa-f]{64}"),
    ("api-key", r"sk-(?:ant|proj|svcacct|admin|or)-[A-Za-z0-9_-]{16,}"),
    // `task-…` is a word, `\nsk-…` in JSON is not.
    ("api-key", r"(?:^|[^A-Za-z0-9]|\\[nrt])(?P<secret>sk-[A-Za-z0-9_-]{20,})"),
    ("github-token", r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
    ("aws-key-id", r"(?:AKIA|ASIA)[A-Z0-9]{16}"),
    ("slack-token", r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"),
    ("google-key", r"AIza[A-Za-z0-9_-]{30,}"),
    ("stripe-key", r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    ("telegram-token", r"[0-9]{6,12}:[A-Za-z0-9_-]{35,}"),
    ("jwt", r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    ("bearer", r"(?i-u:bearer)[ \t]+(?P<secret>[A-Za-z0-9._~+/=-]{16,})"),
    // The bracket is left out so that what is redacted already is no user name.
    ("url-password", r"://(?P<secret>[^\s/:@\[]*:[^\s/@]+)@"),
];

/// The patterns, compiled once.
struct Shapes {
    /// One pass over the text says which of them occur; for most texts that is none.
    any: RegexSet,
    each: Vec<Regex>,
}

#[expect(clippy::expect_used, reason = "the patterns are constants; every test of this module compiles them")]
static COMPILED: LazyLock<Shapes> = LazyLock::new(|| {
    let patterns = SHAPES.map(|(_, pattern)| pattern);
    let any = RegexSet::new(patterns).expect("the patterns are valid");
    let each = patterns.map(|pattern| Regex::new(pattern).expect("the pattern is valid")).to_vec();
    Shapes { any, each }
});

/// Finds and removes secrets.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Vec<String>,
}

impl Redactor {
    /// Knows the shapes only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks for these values too, whatever their shape.
    #[must_use]
    pub fn with_known(mut self, values: Vec<String>) -> Self {
        self.known.extend(values.into_iter().filter(|value| value.len() >= MIN_KNOWN_BYTES));
        self.known.sort_unstable();
        self.known.dedup();
        self
    }

    /// The text with `[redacted:KIND]` in place of every secret.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let secrets = self.secrets(text);
        if secrets.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut redacted = String::with_capacity(text.len());
        let mut done = 0;
        for (secret, kind) in secrets {
            if secret.start >= done {
                redacted.push_str(&text[done..secret.start]);
                redacted.push_str("[redacted:");
                redacted.push_str(kind);
                redacted.push(']');
            }
            // Secrets may overlap; what any of them covers is gone.
            done = done.max(secret.end);
        }
        redacted.push_str(&text[done..]);
        Cow::Owned(redacted)
    }

    /// Whether there is anything to redact.
    pub fn finds(&self, text: &str) -> bool {
        COMPILED.any.is_match(text) || self.known.iter().any(|value| text.contains(value.as_str()))
    }

    /// Where the first secret begins, in bytes.
    pub fn first(&self, text: &str) -> Option<usize> {
        self.secrets(text).first().map(|(secret, _)| secret.start)
    }

    /// Every secret with its kind, in order of place; of those that begin together, the longest first. All are looked
    /// for in the text as it came: taking out one must not hide another.
    fn secrets(&self, text: &str) -> Vec<(Range<usize>, &'static str)> {
        let mut secrets = Vec::new();
        for value in &self.known {
            secrets.extend(text.match_indices(value.as_str()).map(|(at, _)| (at..at + value.len(), "known")));
        }
        for index in COMPILED.any.matches(text) {
            let kind = SHAPES[index].0;
            for found in COMPILED.each[index].captures_iter(text) {
                secrets
                    .extend(found.name("secret").or_else(|| found.get(0)).map(|found| (found.range(), kind)));
            }
        }
        secrets.sort_by_key(|(secret, _)| (secret.start, Reverse(secret.end)));
        secrets
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} known values)", self.known.len())
    }
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
