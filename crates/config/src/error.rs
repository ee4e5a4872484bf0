//! Errors of the configuration: file, line, column, and a sentence with the next step.

use std::io;
use std::path::PathBuf;

use tribune_constitution::TextError;
use tribune_constitution::json5::{self, ValueError, ValueProblem};
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
    #[error(transparent)]
    Text(#[from] TextError),
}

/// Converts an error of the second pass, whose input is known to be valid JSON5.
pub(super) fn in_value(file: &str, error: &ValueError) -> ConfigError {
    let path = shown(&error.path);
    let subject = if path == "." { "the configuration".to_owned() } else { format!("`{path}`") };
    let message = match &error.problem {
        ValueProblem::UnknownKey { known } => unknown_key(&path, known),
        ValueProblem::UnknownWord { word, known } => json5::unknown_word(&subject, word, known),
        ValueProblem::MissingKey(key) => missing_key(&path, &subject, key),
        ValueProblem::Other(text) => format!("{subject} {text}"),
    };
    error.with_message(file, message).into()
}

/// The error for a file that is not UTF-8; `valid` is its longest valid prefix.
pub(super) fn not_utf8(file: &str, valid: &[u8]) -> ConfigError {
    let text = String::from_utf8_lossy(valid);
    let message = "this is not UTF-8: save the file as UTF-8 text".to_owned();
    json5::error_at_offset(file, &text, text.len(), message).into()
}

/// Common words for a key that has another name here.
const OTHER_WORDS: [(&str, &str); 3] = [("port", "address"), ("bind", "address"), ("listen", "address")];

fn unknown_key(path: &str, known: &[String]) -> String {
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let key = path.rsplit('.').next().unwrap_or(path);
    let other_word = OTHER_WORDS.iter().find(|(word, name)| *word == key && names.contains(name));
    let meant = other_word.map(|(_, name)| *name).or_else(|| nearest(key, &names));
    let meant = meant.map_or_else(|| "the".to_owned(), |name| format!("did you mean `{name}`? The"));
    format!("unknown key `{path}`: {meant} keys here are {}", names.join(", "))
}

fn missing_key(path: &str, subject: &str, key: &str) -> String {
    let how = match path.starts_with("spend.prices.") {
        true => {
            format!("`{key}: 15` means that a million such tokens cost 15; write `{key}: 0` if they are free")
        }
        false => format!("write `{key}: …` there"),
    };
    format!("{subject} has no `{key}`: add it; {how}")
}

/// A key path as a message repeats it.
pub(super) fn shown(path: &str) -> String {
    path.chars().take(MAX_SHOWN_CHARS).map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}
