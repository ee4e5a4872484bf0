//! JSON5 texts that people write: the configuration, settings, manifests and profiles. Every error has a file, a line and a
//! column, and ends with the next step. No other crate reads JSON5.
//!
//! A text is read in two passes. The first knows no keys: it finds syntax errors and duplicate keys. The second deserializes
//! the values. [`read`] continues behind an error to find the next ([`lenient`]); [`check`] and [`deserialize`] are the two
//! passes for callers with checks of their own, and stop at the first error. JSON is JSON5, so manifests can be plain JSON or
//! have comments.

mod lenient;
mod messages;
mod strict;
mod tree;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use ::json5::{ErrorCode, Position};
use serde::de::DeserializeOwned;

use self::lenient::ReadError;
use self::messages::{error_text, message_of, unfinished};
use self::tree::{LocateTarget, locate, walk};
use crate::text::sanitize;

pub(crate) use self::lenient::Repairs;
pub use self::messages::{ValueProblem, unknown_word};
pub use self::strict::{ValueError, check, deserialize, error_at_offset};
pub use self::tree::{Observer, WalkEvent};

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
        return Err(ReadFailure::whole(text_error(file, None, message)));
    }
    let duplicates = RefCell::new(BTreeSet::new());
    let note_duplicate = |path: &str, event: WalkEvent<'_>| {
        if let WalkEvent::Key { is_duplicate: true, .. } = event {
            duplicates.borrow_mut().insert(path.to_owned());
        }
        Ok(())
    };
    let tree = walk(text, MAX_DEPTH, &note_duplicate)
        .map_err(|error| ReadFailure::whole(syntax_error(file, text, &error, UnfinishedAt::End)))?;
    let (errors, repaired) = lenient::read(&tree);
    let duplicates = duplicates.borrow();
    let duplicates = duplicates.iter().take(MAX_ERRORS).map(|path| {
        let message = format!("`{}` is given twice: remove one of them", sanitize(path));
        text_error(file, locate(text, path, LocateTarget::DuplicateKey), message)
    });
    let unreadable = errors.iter().map(|ReadError { path, text: said }| {
        let target = if said.starts_with("unknown field") { LocateTarget::Key } else { LocateTarget::Value };
        text_error(file, locate(text, path, target), message_of(path, "the file", said))
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

/// The error about the value at `path` (such as `exceptions[0].tool`) in a text that was already read.
pub(crate) fn error_at_path(file: &str, text: &str, path: &str, message: impl fmt::Display) -> TextError {
    text_error(file, locate(text, path, LocateTarget::Key), format!("`{}` {message}", sanitize(path)))
}

/// An error at a position; without one, at the start of the file.
fn text_error(file: &str, position: Option<Position>, message: String) -> TextError {
    let Position { line, column } = position.unwrap_or(Position { line: 0, column: 0 });
    TextError { file: file.to_owned(), line: line + 1, column: column + 1, message }
}

/// Where to report that a text ends too early.
#[derive(Debug, Clone, Copy)]
enum UnfinishedAt {
    /// Where the unfinished part begins.
    Start,
    /// Behind the last character, where something is missing.
    End,
}

/// The error of the first pass: a syntax error, or a complete sentence.
fn syntax_error(file: &str, text: &str, error: &::json5::Error, unfinished_at: UnfinishedAt) -> TextError {
    let position = error.position();
    let Some(code) = error.code() else { return text_error(file, position, error_text(error)) };
    let Some(part) = unfinished(code) else {
        let message = format!("this is not valid JSON5 ({code}): correct the text here");
        return text_error(file, position, message);
    };
    if position.is_none() && code == ErrorCode::EofParsingValue {
        let message = "the file contains no configuration: write at least `{}`, or remove it".to_owned();
        return text_error(file, None, message);
    }
    match unfinished_at {
        UnfinishedAt::Start => {
            let message =
                format!("the file ends in the middle of {part}: complete it, and close what is opened here");
            text_error(file, position, message)
        }
        UnfinishedAt::End => {
            let message = format!("the file ends in the middle of {part}: complete it");
            text_error(file, Some(end_of(text)), message)
        }
    }
}

/// The position behind the last character that is no blank.
fn end_of(text: &str) -> Position {
    let text = text.trim_end();
    let line = text.rsplit('\n').next().unwrap_or_default();
    Position { line: text.matches('\n').count(), column: line.chars().count() }
}
