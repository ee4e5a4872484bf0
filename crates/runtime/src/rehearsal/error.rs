//! Errors of a script, worded so that its writer can correct it.

use super::limits::{MAX_LINES, MAX_REPEAT_DEPTH, MAX_SCRIPT_BYTES, MAX_TOGETHER, MAX_WAIT, MAX_WORD_BYTES};
use super::text::cut_chars;

/// The error of a script, and its place. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {problem}", .place.line, .place.column)]
pub struct ScriptError {
    pub place: ScriptPosition,
    pub problem: ScriptProblem,
}

/// A place in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptPosition {
    pub line: usize,
    pub column: usize,
}

/// The error there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptProblem {
    #[error("a script has at most {MAX_SCRIPT_BYTES} bytes. Shorten it, or use `repeat`.")]
    TooManyBytes,
    #[error("a script has at most {MAX_LINES} lines. Shorten it, or use `repeat`.")]
    TooManyLines,
    /// A word from a fixed set was expected: a command, or what follows one.
    #[error("`{word}` is not {what}. {}", advice(.nearest, .words))]
    UnknownWord {
        what: &'static str,
        word: String,
        nearest: Option<&'static str>,
        words: &'static [&'static str],
    },
    #[error("this needs {what}. Write it as `{form}`.")]
    Missing { what: &'static str, form: &'static str },
    #[error("nothing may follow here. Write it as `{form}`.")]
    Extra { form: &'static str },
    #[error("this is not JSON: {0}. Write one JSON value on the same line, or none for `{{}}`.")]
    Json(String),
    #[error("`{word}` is not a number from {least} to {most}. Write it in digits.")]
    NotBetween { word: String, least: u32, most: u32 },
    #[error(
        "`{0}` is not a time. Write it as `200ms` or `2s`, at most `{max}s`.",
        max = MAX_WAIT.as_secs()
    )]
    NotATime(String),
    #[error(
        "`{0}` is not a code. Use lowercase letters, digits and `_`, at most {MAX_WORD_BYTES}, such as `overloaded`."
    )]
    NotACode(String),
    #[error("the name of a tool has at most {MAX_WORD_BYTES} bytes. Use a shorter one.")]
    LongTool,
    #[error("`repeat` nests at most {MAX_REPEAT_DEPTH} deep. Take one level out.")]
    TooDeep,
    #[error("only `call` and `arguments` may stand in `together`. Move this before it, or after its `end`.")]
    NotInTogether,
    #[error("`together` holds at most {MAX_TOGETHER} calls. Split it in two.")]
    TooManyTogether,
    #[error("there is no block to end here. Remove this `end`, or begin one with `repeat` or `together`.")]
    StrayEnd,
    #[error("this block does not end. Write `end` on a line of its own after its last command.")]
    NoEnd,
    #[error("this block is empty. Put a command between it and its `end`.")]
    EmptyBlock,
    #[error("nothing was called yet. Put a `call` before this.")]
    NothingCalled,
}

impl ScriptProblem {
    /// A word that is not in the fixed set.
    pub(super) fn unknown(what: &'static str, word: &str, words: &'static [&'static str]) -> Self {
        let nearest = tribune_nearest_name::nearest(word, words);
        Self::UnknownWord { what, word: quoted(word), nearest, words }
    }

    pub(super) const fn at(self, place: ScriptPosition) -> ScriptError {
        ScriptError { place, problem: self }
    }
}

/// The start of a word, for a message, without characters that would move a terminal's cursor.
pub(super) fn quoted(word: &str) -> String {
    const SHOWN: usize = 40;
    cut_chars(word, SHOWN).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn advice(nearest: &Option<&str>, words: &[&str]) -> String {
    match nearest {
        Some(word) => format!("Did you mean `{word}`?"),
        None => format!("Use one of: {}.", words.join(", ")),
    }
}
