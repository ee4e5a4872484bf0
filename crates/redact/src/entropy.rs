//! Whether a run of characters looks drawn by lot rather than written.
//!
//! Every test here is passed for good once a beginning passes it: whoever reads a text piece by piece may decide as soon
//! as it does. None knows any language; a random word of small letters passes for a word.

/// How many bytes of a value are judged.
pub(crate) const JUDGED: usize = 64;

/// Shorter values are not judged by their looks.
const SHORTEST: usize = 16;

/// Changes between letters and digits. Names have one or two: `base64_url`, `utf8`.
const DIGIT_TURNS: usize = 3;

/// One change of kind in so many characters. Words have more than four letters on average, and `camelCase` changes once a word.
const CHARACTERS_A_TURN: usize = 4;

/// Letters and digits mixed as chance mixes them.
pub(crate) fn is_random(run: &[u8]) -> bool {
    let (mut turns, mut digit_turns) = (0, 0);
    run.windows(2).enumerate().any(|(index, pair)| {
        if let Some(turn) = Turn::between(pair[0], pair[1]) {
            turns += 1;
            digit_turns += usize::from(turn == Turn::Digit);
        }
        let seen = index + 2;
        seen >= SHORTEST && (digit_turns >= DIGIT_TURNS || turns * CHARACTERS_A_TURN >= seen)
    })
}

/// Has a digit or looks random: what a key after a short prefix does, and a word does not.
pub(crate) fn is_mixed(run: &[u8]) -> bool {
    run.iter().any(u8::is_ascii_digit) || is_random(run)
}

/// Looks like base64 of a name and a password.
pub(crate) fn is_basic(run: &[u8]) -> bool {
    let turns = run.windows(2).filter(|pair| Turn::between(pair[0], pair[1]).is_some()).count();
    let is_mixed = run.iter().any(|byte| byte.is_ascii_digit() || *byte == b'=')
        || run.windows(2).any(|pair| pair[0].is_ascii_uppercase() && pair[1].is_ascii_uppercase());
    run.len() >= 12 && turns >= 2 && is_mixed
}

/// Has letters, and something that is none: what a password has, and `required` has not.
pub(crate) fn is_password(run: &[u8]) -> bool {
    run.len() >= 8
        && run.iter().any(u8::is_ascii_alphabetic)
        && run.iter().any(|byte| byte.is_ascii_digit() || b"!#%^*?+@~=|$".contains(byte))
}

/// A change of kind from one character to the next.
#[derive(PartialEq, Eq)]
enum Turn {
    Digit,
    Case,
}

impl Turn {
    /// A capital before a small letter begins a word and is no change.
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
