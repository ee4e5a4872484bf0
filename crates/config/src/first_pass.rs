//! The first pass over a JSON5 text, independent of what the keys mean: the text is valid JSON5, no object has a duplicate
//! key, and no string or comment looks like a secret.
//!
//! Reading and positions belong to [`tribune_constitution::json5`]; this only says what the file may not hold.

use std::ops::Range;

use tribune_constitution::TextError;
use tribune_constitution::json5::{self, WalkEvent};
use tribune_redact::Redactor;

use super::edit::scan::between;
use super::error::shown;

/// Deepest nesting of objects and lists. Each level uses stack.
const MAX_DEPTH: usize = 32;

pub(super) fn check(file: &str, text: &str) -> Result<(), TextError> {
    let redactor = Redactor::new();
    let refuse = |path: &str, event: WalkEvent<'_>| match event {
        WalkEvent::Key { key, .. } if redactor.contains_secret(key) => Err(contains_secret("this")),
        WalkEvent::Key { is_duplicate: true, .. } => {
            Err(format!("`{}` is given twice: remove one of them", shown(path)))
        }
        WalkEvent::String(value) if redactor.contains_secret(value) => {
            let what = if path.is_empty() { "this".to_owned() } else { format!("`{}`", shown(path)) };
            Err(contains_secret(&what))
        }
        WalkEvent::Key { .. } | WalkEvent::String(_) | WalkEvent::Value => Ok(()),
    };
    json5::check(file, text, MAX_DEPTH, &refuse)?;
    let first_secret = |gap: Range<usize>| Some(gap.start + redactor.first_secret(&text[gap])?);
    match between(text).into_iter().find_map(first_secret) {
        Some(offset) => Err(json5::error_at_offset(file, text, offset, contains_secret("this comment"))),
        None => Ok(()),
    }
}

/// The error for a position where a secret was found. It never repeats the secret.
fn contains_secret(what: &str) -> String {
    format!(
        "{what} contains something that looks like a secret: remove it, because secrets do not belong in this file, and \
         rotate it if anyone may have seen it"
    )
}
