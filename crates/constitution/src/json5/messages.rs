//! What is wrong with a text or a value, as sentences with the next step. Knows the messages of `serde` and the error codes
//! of `json5`; knows no positions.

use ::json5::ErrorCode;

use crate::suggest_name::suggestion;
use crate::text::sanitize;

/// A message of `serde` about a value, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueProblem {
    /// A key that its object does not have, and the keys that it has.
    UnknownKey {
        known: Vec<String>,
    },
    /// A word that is none of the known ones.
    UnknownWord {
        word: String,
        known: Vec<String>,
    },
    MissingKey(String),
    /// The rest of a sentence that begins with the value.
    Other(String),
}

impl ValueProblem {
    /// Takes a message apart. Names in it are names of this program and contain no backtick.
    pub(super) fn new(text: &str) -> Self {
        let quoted = || text.split('`').nth(1).unwrap_or_default().to_owned();
        let known = || {
            let listed = text.rsplit_once("`, expected ").map_or("", |(_, listed)| listed);
            listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        if text.starts_with("unknown field") {
            Self::UnknownKey { known: known() }
        } else if text.starts_with("unknown variant") {
            Self::UnknownWord { word: quoted(), known: known() }
        } else if text.starts_with("missing field") {
            Self::MissingKey(quoted())
        } else {
            Self::Other(text.to_owned())
        }
    }
}

/// What a message is about: the value at `path`, or everything.
fn subject(path: &str, whole: &str) -> String {
    if path.is_empty() || path == "." { whole.to_owned() } else { format!("`{}`", sanitize(path)) }
}

/// The message for what `serde` says of the value at `path`.
pub(super) fn message_of(path: &str, whole: &str, text: &str) -> String {
    let subject = subject(path, whole);
    match ValueProblem::new(text) {
        ValueProblem::UnknownKey { known } => {
            let key = path.rsplit('.').next().unwrap_or(path);
            format!("unknown key `{}`: {}", sanitize(path), suggest(key, &known, "keys here"))
        }
        ValueProblem::UnknownWord { word, known } => unknown_word(&subject, &word, &known),
        ValueProblem::MissingKey(key) => format!("{subject}: the key `{key}` is missing: add it"),
        ValueProblem::Other(text) if text.starts_with("invalid") => {
            format!("{subject} cannot be read ({text}): correct it")
        }
        ValueProblem::Other(text) => format!("{subject} {text}"),
    }
}

/// The message for a word that is none of the known ones.
pub fn unknown_word(subject: &str, word: &str, known: &[String]) -> String {
    format!("{subject} is `{}`: {}", sanitize(word), suggest(word, known, "words"))
}

fn suggest(name: &str, known: &[String], what: &str) -> String {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    suggestion(name, &known, what)
}

/// What a text ends in the middle of, if that is the error.
pub(super) fn unfinished(code: ErrorCode) -> Option<&'static str> {
    match code {
        ErrorCode::EofParsingArray => Some("a list"),
        ErrorCode::EofParsingComment => Some("a comment"),
        ErrorCode::EofParsingObject => Some("an object"),
        ErrorCode::EofParsingEscapeSequence | ErrorCode::EofParsingString => Some("a string"),
        ErrorCode::EofParsingIdentifier => Some("a key"),
        ErrorCode::EofParsingBool
        | ErrorCode::EofParsingNull
        | ErrorCode::EofParsingNumber
        | ErrorCode::EofParsingValue => Some("a value"),
        _ => None,
    }
}

/// The rest of a sentence about a value of the wrong type.
pub(super) fn wrong_type(code: ErrorCode) -> String {
    let expected = match code {
        ErrorCode::ExpectedNumber => "a number",
        ErrorCode::ExpectedString => "a string in quotes",
        ErrorCode::ExpectedBool => "`true` or `false`",
        ErrorCode::ExpectedOpeningBrace => "an object in `{ }`",
        ErrorCode::ExpectedOpeningBracket => "a list in `[ ]`",
        other => return format!("cannot be parsed: {other}"),
    };
    format!("has the wrong type: write {expected}")
}

/// The message of an error without the position that `json5` appends to it.
pub(super) fn error_text(error: &::json5::Error) -> String {
    let text = error.to_string();
    let behind = error.position().map(|position| format!(" at {position}")).unwrap_or_default();
    text.strip_suffix(behind.as_str()).unwrap_or(&text).to_owned()
}
