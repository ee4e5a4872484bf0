//! Tells values that look random from words that a person wrote.
//!
//! Every test here is monotone: once a prefix passes, every longer value passes. So a stream can decide as soon as a
//! prefix passes. The tests do not know any language; a random word of lower-case letters counts as a word.

/// How many bytes of a value are tested.
pub(crate) const SAMPLE_BYTES: usize = 64;

/// Shorter values are not tested for randomness.
const MIN_BYTES: usize = 16;

/// Changes between letters and digits. Identifiers have one or two: `base64_url`, `utf8`.
const DIGIT_CHANGES: usize = 3;

/// One change of kind in so many characters. Words have more than four letters on average, and `camelCase` changes once
/// a word.
const BYTES_PER_CHANGE: usize = 4;

/// Whether letters and digits alternate as often as in a random value.
pub(crate) fn is_random(run: &[u8]) -> bool {
    let (mut changes, mut digit_changes) = (0, 0);
    run.windows(2).enumerate().any(|(index, pair)| {
        if let Some(change) = KindChange::between(pair[0], pair[1]) {
            changes += 1;
            digit_changes += usize::from(change == KindChange::Digit);
        }
        let seen = index + 2;
        seen >= MIN_BYTES && (digit_changes >= DIGIT_CHANGES || changes * BYTES_PER_CHANGE >= seen)
    })
}

/// Whether a value has a digit or looks random. After a short prefix a key does, and a word does not.
pub(crate) fn is_mixed(run: &[u8]) -> bool {
    run.iter().any(u8::is_ascii_digit) || is_random(run)
}

/// Whether a value looks like the base64 of a user name and a password.
pub(crate) fn is_basic(run: &[u8]) -> bool {
    let changes = run.windows(2).filter(|pair| KindChange::between(pair[0], pair[1]).is_some()).count();
    let is_mixed = run.iter().any(|byte| byte.is_ascii_digit() || *byte == b'=')
        || run.windows(2).any(|pair| pair[0].is_ascii_uppercase() && pair[1].is_ascii_uppercase());
    run.len() >= 12 && changes >= 2 && is_mixed
}

/// Whether a value has letters and something else. A password does, and `required` does not.
pub(crate) fn is_password(run: &[u8]) -> bool {
    run.len() >= 8
        && run.iter().any(u8::is_ascii_alphabetic)
        && run.iter().any(|byte| byte.is_ascii_digit() || b"!#%^*?+@~=|$".contains(byte))
}

/// Whether a value of letters alone has capitals and lower-case letters in no order. Words in `CamelCase` have two lower-case
/// letters behind each capital.
pub(crate) fn is_mixed_case(run: &[u8]) -> bool {
    let starts_no_word = |three: &&[u8]| {
        three[0].is_ascii_uppercase() && !(three[1].is_ascii_lowercase() && three[2].is_ascii_lowercase())
    };
    run.len() >= 8
        && run.iter().filter(|byte| byte.is_ascii_lowercase()).count() >= 2
        && run.windows(3).filter(starts_no_word).count() >= 2
}

/// A change of kind between two adjacent characters.
#[derive(PartialEq, Eq)]
enum KindChange {
    Digit,
    Case,
}

impl KindChange {
    /// A capital before a lower-case letter starts a word and is no change.
    fn between(one: u8, next: u8) -> Option<Self> {
        if !one.is_ascii_alphanumeric() || !next.is_ascii_alphanumeric() {
            return None;
        }
        if one.is_ascii_digit() != next.is_ascii_digit() {
            return Some(Self::Digit);
        }
        (one.is_ascii_lowercase() && next.is_ascii_uppercase()).then_some(Self::Case)
    }
}
