//! Errors of the configuration: file, line, column, and a sentence with the next step.

use std::io;
use std::path::PathBuf;

use json5::{ErrorCode, Position};
use tribune_constitution::suggest_name::nearest;

use super::MAX_CONFIG_BYTES;

/// Longest key path shown in a message, in characters.
const MAX_SHOWN_CHARS: usize = 120;

/// Why a configuration is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("`{path}` cannot be read ({error}): check its mode and owner, or move it away to run without it")]
    Io { path: PathBuf, error: io::Error },
    #[error("{file}: the configuration is larger than {MAX_CONFIG_BYTES} bytes: shorten it")]
    TooLarge { file: String },
    /// Line and column count from 1, the column in characters.
    #[error("{file}:{line}:{column}: {message}")]
    At { file: String, line: usize, column: usize, message: String },
}

/// Converts an error of the first pass: a syntax error, or a complete sentence.
pub(super) fn in_walk(file: &str, error: &json5::Error) -> ConfigError {
    let message = match error.code() {
        Some(code) => syntax(code, error.position().is_some()),
        None => text_of(error),
    };
    at(file, error.position(), message)
}

/// Converts an error of the second pass, whose input is known to be valid JSON5.
pub(super) fn in_value(file: &str, error: &serde_path_to_error::Error<json5::Error>) -> ConfigError {
    let (inner, path) = (error.inner(), shown(&error.path().to_string()));
    let subject = if path == "." { "the configuration".to_owned() } else { format!("`{path}`") };
    let text = text_of(inner);
    let message = match inner.code() {
        Some(code) => format!("{subject} {}", wrong_type(code)),
        None if text.starts_with("unknown field") => unknown_key(&path, &text),
        None if text.starts_with("missing field") => missing_key(&path, &subject, &text),
        None => format!("{subject} {text}"),
    };
    at(file, inner.position(), message)
}

/// The error for a file that is not UTF-8; `valid` is its longest valid prefix.
pub(super) fn not_utf8(file: &str, valid: &[u8]) -> ConfigError {
    let text = String::from_utf8_lossy(valid);
    let position = Position::from_offset(text.len(), &text);
    at(file, Some(position), "this is not UTF-8: save the file as UTF-8 text".to_owned())
}

/// The path of `key` in the object at `parent`, shortened for a message.
pub(super) fn joined(parent: &str, key: &str) -> String {
    let dot = if parent.is_empty() { "" } else { "." };
    shown(&format!("{parent}{dot}{key}"))
}

/// An error at a position; without one, at the start of the file.
pub(super) fn at(file: &str, position: Option<Position>, message: String) -> ConfigError {
    let Position { line, column } = position.unwrap_or(Position { line: 0, column: 0 });
    ConfigError::At { file: file.to_owned(), line: line + 1, column: column + 1, message }
}

/// The message without the position that `json5` appends.
fn text_of(error: &json5::Error) -> String {
    let text = error.to_string();
    let suffix = error.position().map(|position| format!(" at {position}")).unwrap_or_default();
    text.strip_suffix(suffix.as_str()).unwrap_or(&text).to_owned()
}

/// Common words for a key that has another name here.
const OTHER_WORDS: [(&str, &str); 3] = [("port", "address"), ("bind", "address"), ("listen", "address")];

/// Parses serde's message: unknown field `x`, expected one of `a`, `b`. The listed names are field names and contain no
/// backtick.
fn unknown_key(path: &str, text: &str) -> String {
    let listed = text.rsplit_once("`, expected ").map_or("", |(_, listed)| listed);
    let names: Vec<&str> = listed.split('`').skip(1).step_by(2).collect();
    let key = path.rsplit('.').next().unwrap_or(path);
    let other_word = OTHER_WORDS.iter().find(|(word, name)| *word == key && names.contains(name));
    let meant = other_word.map(|(_, name)| *name).or_else(|| nearest(key, &names));
    let meant = meant.map_or_else(|| "the".to_owned(), |name| format!("did you mean `{name}`? The"));
    format!("unknown key `{path}`: {meant} keys here are {}", names.join(", "))
}

/// Parses serde's message: missing field `x`. The name is a field name.
fn missing_key(path: &str, subject: &str, text: &str) -> String {
    let name = text.split('`').nth(1).unwrap_or_default();
    let how = match path.starts_with("spend.prices.") {
        true => format!(
            "`{name}: 15` means that a million such tokens cost 15; write `{name}: 0` if they are free"
        ),
        false => format!("write `{name}: …` there"),
    };
    format!("{subject} has no `{name}`: add it; {how}")
}

fn wrong_type(code: ErrorCode) -> String {
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

fn syntax(code: ErrorCode, has_position: bool) -> String {
    let opened = match code {
        ErrorCode::EofParsingValue if !has_position => {
            return "the file contains no configuration: write at least `{}`, or remove it".to_owned();
        }
        ErrorCode::EofParsingArray => "a list",
        ErrorCode::EofParsingComment => "a comment",
        ErrorCode::EofParsingObject => "an object",
        ErrorCode::EofParsingEscapeSequence | ErrorCode::EofParsingString => "a string",
        ErrorCode::EofParsingIdentifier => "a key",
        ErrorCode::EofParsingBool
        | ErrorCode::EofParsingNull
        | ErrorCode::EofParsingNumber
        | ErrorCode::EofParsingValue => "a value",
        other => return format!("this is not valid JSON5 ({other}): correct the text here"),
    };
    format!("the file ends in the middle of {opened}: complete it, and close what is opened here")
}

fn shown(path: &str) -> String {
    path.chars().take(MAX_SHOWN_CHARS).map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}
