//! Texts that people write in JSON5: settings and manifests. Every refusal says file, line and column, and ends with
//! what to do.
//!
//! A text goes through two readings: the first knows no keys and finds broken syntax and keys given twice ([`tree`]), the
//! second reads the keys, and goes on behind a mistake to find the next ([`lenient`]). Plain JSON is JSON5, so manifests
//! pass with and without comments.

mod lenient;
mod tree;

use std::fmt;

use ::json5::{ErrorCode, Position};
use serde::de::DeserializeOwned;

use crate::mandate::shown;
use crate::suggest_name::nearest;
pub(crate) use lenient::Mends;
use lenient::Mistake;
use tree::{Place, Planted};

/// Mistakes of one kind that are told at once: more than anybody mends in one go, and each is looked for in the text.
pub(crate) const MAX_MISTAKES: usize = 100;

/// Why a text is refused, and where. Line and column count from 1, the column in characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct TextError {
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub message: String,
}

/// A text that cannot be read as it is.
#[derive(Debug)]
pub(crate) struct Refused<T> {
    /// Everything that is wrong with it.
    pub(crate) errors: Vec<TextError>,
    /// What could be read, if the rest was mended; only good for finding more that is wrong.
    pub(crate) mended: Option<(T, Mends)>,
}

impl<T> Refused<T> {
    fn whole(error: TextError) -> Self {
        Self { errors: vec![error], mended: None }
    }
}

/// Reads a text of at most `max_bytes`.
pub(crate) fn read<T: DeserializeOwned>(file: &str, text: &str, max_bytes: usize) -> Result<T, Refused<T>> {
    if text.len() > max_bytes {
        let message = format!("the file has {} bytes: shorten it to at most {max_bytes}", text.len());
        return Err(Refused::whole(at(file, None, message)));
    }
    let Planted { tree, twice } = ::json5::from_str(text).map_err(|error| {
        let message = error.code().map_or_else(|| text_of(&error), syntax);
        // What is not closed is told at the end, where something is missing, and not where it was opened.
        let has_ended = error.code().is_some_and(|code| code.to_string().starts_with("EOF"));
        let place = if has_ended { Some(end_of(text)) } else { error.position() };
        Refused::whole(at(file, place, message))
    })?;
    let (mistakes, mended) = lenient::read(&tree);
    let twice = twice.iter().take(MAX_MISTAKES).map(|path| {
        let message = format!("`{}` is given twice: remove one of them", shown(path));
        at(file, tree::locate(text, path, Place::SecondKey), message)
    });
    let unread = mistakes.iter().map(|Mistake { path, text: said }| {
        let place = if said.starts_with("unknown field") { Place::Key } else { Place::Value };
        at(file, tree::locate(text, path, place), complaint(path, "the file", said))
    });
    let errors: Vec<TextError> = twice.chain(unread).collect();
    match mended {
        Some((value, _)) if errors.is_empty() => Ok(value),
        mended => Err(Refused { errors, mended }),
    }
}

/// Reads a value that stands in another text, which messages call `whole`. A refusal is a sentence about the key.
pub(crate) fn read_value<T: DeserializeOwned>(whole: &str, value: serde_json::Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| complaint(&error.path().to_string(), whole, &error.inner().to_string()))
}

/// What a message is about: the value at `path`, or everything.
fn subject(path: &str, whole: &str) -> String {
    if path.is_empty() || path == "." { whole.to_owned() } else { format!("`{}`", shown(path)) }
}

/// What `serde` says of the value at `path`, in our words.
fn complaint(path: &str, whole: &str, text: &str) -> String {
    let subject = subject(path, whole);
    if text.starts_with("unknown field") {
        unknown_key(path, text)
    } else if text.starts_with("unknown variant") {
        unknown_word(&subject, text)
    } else if text.starts_with("missing field") {
        format!("{subject}: {}", missing_key(text))
    } else if text.starts_with("invalid") {
        format!("{subject} cannot be read ({text}): correct it")
    } else {
        format!("{subject} {text}")
    }
}

/// A refusal of the value at `path` (such as `exceptions[0].tool`) of a text that was already read.
pub(crate) fn refusal(file: &str, text: &str, path: &str, message: impl fmt::Display) -> TextError {
    at(file, tree::locate(text, path, Place::Key), format!("`{}` {message}", shown(path)))
}

/// "did you mean `x`? The names are a, b" or "the names are a, b".
pub(crate) fn suggestion(word: &str, names: &[&str], what: &str) -> String {
    let meant =
        nearest(word, names).map_or_else(|| "the".to_owned(), |name| format!("did you mean `{name}`? The"));
    format!("{meant} {what} are {}", names.join(", "))
}

fn at(file: &str, position: Option<Position>, message: String) -> TextError {
    let Position { line, column } = position.unwrap_or(Position { line: 0, column: 0 });
    TextError { file: file.to_owned(), line: line + 1, column: column + 1, message }
}

/// The place behind everything that is written.
fn end_of(text: &str) -> Position {
    let text = text.trim_end();
    let line = text.rsplit('\n').next().unwrap_or_default();
    Position { line: text.matches('\n').count(), column: line.chars().count() }
}

/// The message without the position that `json5` puts behind it.
fn text_of(error: &::json5::Error) -> String {
    let text = error.to_string();
    let behind = error.position().map(|position| format!(" at {position}")).unwrap_or_default();
    text.strip_suffix(behind.as_str()).unwrap_or(&text).to_owned()
}

/// The names in the list at the end of what `serde` says; they are ours and hold no backtick.
fn listed(text: &str) -> Vec<&str> {
    let listed = text.rsplit_once("`, expected ").map_or("", |(_, listed)| listed);
    listed.split('`').skip(1).step_by(2).collect()
}

/// `serde` says: unknown field `x`, expected one of `a`, `b`.
fn unknown_key(path: &str, text: &str) -> String {
    let key = path.rsplit('.').next().unwrap_or(path);
    format!("unknown key `{}`: {}", shown(path), suggestion(key, &listed(text), "keys here"))
}

/// `serde` says: unknown variant `x`, expected one of `a`, `b`.
fn unknown_word(subject: &str, text: &str) -> String {
    let word = text.split('`').nth(1).unwrap_or_default();
    format!("{subject} is `{}`: {}", shown(word), suggestion(word, &listed(text), "words"))
}

/// `serde` says: missing field `x`.
fn missing_key(text: &str) -> String {
    let key = text.split('`').nth(1).unwrap_or_default();
    format!("the key `{key}` is missing: add it")
}

fn syntax(code: ErrorCode) -> String {
    format!("this is not valid JSON5 ({code}): correct the text here")
}
