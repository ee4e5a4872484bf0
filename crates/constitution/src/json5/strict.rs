//! Reads a text in two passes and stops at the first error: [`check`], then [`deserialize`]. A caller puts its own checks
//! in between, and words the errors of values itself.

use serde::de::DeserializeOwned;

use super::messages::{ValueProblem, error_text, wrong_type};
use super::tree::{Observer, walk};
use super::{TextError, UnfinishedAt, syntax_error, text_error};

/// Why a value cannot be deserialized.
#[derive(Debug)]
pub struct ValueError {
    /// Its path, such as `exceptions[0].tool`; `.` for the whole text.
    pub path: String,
    pub problem: ValueProblem,
    position: Option<::json5::Position>,
}

impl ValueError {
    /// The error with this message.
    pub fn with_message(&self, file: &str, message: String) -> TextError {
        text_error(file, self.position, message)
    }
}

/// The first pass: the text is valid JSON5, lists and objects nest at most `max_depth` levels deep, and the observer, which
/// sees every key and value, finds no error. Keys have no meaning here.
pub fn check(file: &str, text: &str, max_depth: usize, observer: &Observer<'_>) -> Result<(), TextError> {
    walk(text, max_depth, observer)
        .map(drop)
        .map_err(|error| syntax_error(file, text, &error, UnfinishedAt::Start))
}

/// The second pass: deserializes a text that passed [`check`].
pub fn deserialize<T: DeserializeOwned>(text: &str) -> Result<T, ValueError> {
    let mut deserializer = ::json5::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|found| {
        let path = found.path().to_string();
        let error = found.inner();
        let problem = match error.code() {
            Some(code) => ValueProblem::Other(wrong_type(code)),
            None => ValueProblem::new(&error_text(error)),
        };
        ValueError { path, problem, position: error.position() }
    })
}

/// An error at a byte offset of a text.
pub fn error_at_offset(file: &str, text: &str, offset: usize, message: String) -> TextError {
    text_error(file, Some(::json5::Position::from_offset(offset, text)), message)
}
