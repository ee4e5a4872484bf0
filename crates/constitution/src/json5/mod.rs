//! JSON5 texts that people write: settings and manifests. Every error has a file, a line and a column, and ends with the
//! next step.
//!
//! A text is read in two passes. [`walk`] knows no keys: it finds syntax errors and duplicate keys. The second pass
//! deserializes the tree and continues behind an error to find the next ([`lenient`]). JSON is JSON5, so manifests can be
//! plain JSON or have comments.
//!
//! [`walk`] and [`error_text`] are public for other crates that read JSON5, such as the configuration of the daemon.

mod lenient;
mod tree;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use ::json5::{ErrorCode, Position};
use serde::de::DeserializeOwned;

use self::lenient::ReadError;
use self::tree::{LocateTarget, locate};
use crate::suggest_name::suggestion;
use crate::text::sanitize;

pub(crate) use self::lenient::Repairs;
pub use self::tree::{Json5Value, Observer, WalkEvent, walk};

/// Errors of one kind that are reported at once: more than anyone fixes in one go, and each is located in the text.
pub(crate) const MAX_ERRORS: usize = 100;

/// Nesting of objects and lists: the keys of these texts need four levels, and each level costs stack.
const MAX_DEPTH: usize = 16;

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
pub(crate) struct ReadFailure<T> {
    /// Everything that is wrong with it.
    pub(crate) errors: Vec<TextError>,
    /// What it is once the errors are repaired; only good for finding further errors.
    pub(crate) repaired: Option<(T, Repairs)>,
}

impl<T> ReadFailure<T> {
    fn whole(error: TextError) -> Self {
        Self { errors: vec![error], repaired: None }
    }
}

/// Reads a text of at most `max_bytes`.
pub(crate) fn read<T: DeserializeOwned>(
    file: &str,
    text: &str,
    max_bytes: usize,
) -> Result<T, ReadFailure<T>> {
    if text.len() > max_bytes {
        let message = format!("the file has {} bytes: shorten it to at most {max_bytes}", text.len());
        return Err(ReadFailure::whole(error_at(file, None, message)));
    }
    let duplicates = RefCell::new(BTreeSet::new());
    let note_duplicate = |path: &str, event: WalkEvent<'_>| {
        if let WalkEvent::Key { is_duplicate: true, .. } = event {
            duplicates.borrow_mut().insert(path.to_owned());
        }
        Ok(())
    };
    let tree = walk(text, MAX_DEPTH, &note_duplicate).map_err(|error| {
        let message = error.code().map_or_else(|| error_text(&error), syntax_message);
        // An unclosed object or list is reported at the end, where the bracket is missing, not where it opens.
        let has_ended = error.code().is_some_and(|code| code.to_string().starts_with("EOF"));
        let position = if has_ended { Some(end_of(text)) } else { error.position() };
        ReadFailure::whole(error_at(file, position, message))
    })?;
    let (errors, repaired) = lenient::read(&tree);
    let duplicates = duplicates.borrow();
    let duplicates = duplicates.iter().take(MAX_ERRORS).map(|path| {
        let message = format!("`{}` is given twice: remove one of them", sanitize(path));
        error_at(file, locate(text, path, LocateTarget::DuplicateKey), message)
    });
    let unreadable = errors.iter().map(|ReadError { path, text: said }| {
        let target = if said.starts_with("unknown field") { LocateTarget::Key } else { LocateTarget::Value };
        error_at(file, locate(text, path, target), message_of(path, "the file", said))
    });
    let errors: Vec<TextError> = duplicates.chain(unreadable).collect();
    match repaired {
        Some((value, _)) if errors.is_empty() => Ok(value),
        repaired => Err(ReadFailure { errors, repaired }),
    }
}

/// Reads a value that is part of another text, which messages call `whole`. The error is a sentence about the key.
pub(crate) fn read_value<T: DeserializeOwned>(whole: &str, value: serde_json::Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| message_of(&error.path().to_string(), whole, &error.inner().to_string()))
}

/// What a message is about: the value at `path`, or everything.
fn subject(path: &str, whole: &str) -> String {
    if path.is_empty() || path == "." { whole.to_owned() } else { format!("`{}`", sanitize(path)) }
}

/// The message for what `serde` says of the value at `path`.
fn message_of(path: &str, whole: &str, text: &str) -> String {
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

/// The error about the value at `path` (such as `exceptions[0].tool`) in a text that was already read.
pub(crate) fn error_at_path(file: &str, text: &str, path: &str, message: impl fmt::Display) -> TextError {
    error_at(file, locate(text, path, LocateTarget::Key), format!("`{}` {message}", sanitize(path)))
}

fn error_at(file: &str, position: Option<Position>, message: String) -> TextError {
    let Position { line, column } = position.unwrap_or(Position { line: 0, column: 0 });
    TextError { file: file.to_owned(), line: line + 1, column: column + 1, message }
}

/// The position behind the last character that is no blank.
fn end_of(text: &str) -> Position {
    let text = text.trim_end();
    let line = text.rsplit('\n').next().unwrap_or_default();
    Position { line: text.matches('\n').count(), column: line.chars().count() }
}

/// The message of an error without the position that `json5` appends to it.
pub fn error_text(error: &::json5::Error) -> String {
    let text = error.to_string();
    let behind = error.position().map(|position| format!(" at {position}")).unwrap_or_default();
    text.strip_suffix(behind.as_str()).unwrap_or(&text).to_owned()
}

/// The names in the list at the end of a message of `serde`. They are names of this program and contain no backtick.
fn expected_names(text: &str) -> Vec<&str> {
    let listed = text.rsplit_once("`, expected ").map_or("", |(_, listed)| listed);
    listed.split('`').skip(1).step_by(2).collect()
}

/// `serde` says: unknown field `x`, expected one of `a`, `b`.
fn unknown_key(path: &str, text: &str) -> String {
    let key = path.rsplit('.').next().unwrap_or(path);
    format!("unknown key `{}`: {}", sanitize(path), suggestion(key, &expected_names(text), "keys here"))
}

/// `serde` says: unknown variant `x`, expected one of `a`, `b`.
fn unknown_word(subject: &str, text: &str) -> String {
    let word = text.split('`').nth(1).unwrap_or_default();
    format!("{subject} is `{}`: {}", sanitize(word), suggestion(word, &expected_names(text), "words"))
}

/// `serde` says: missing field `x`.
fn missing_key(text: &str) -> String {
    let key = text.split('`').nth(1).unwrap_or_default();
    format!("the key `{key}` is missing: add it")
}

fn syntax_message(code: ErrorCode) -> String {
    format!("this is not valid JSON5 ({code}): correct the text here")
}
