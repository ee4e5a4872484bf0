//! Validates the fields of an entry, on write and on read.

use crate::cid::Cid;
use crate::envelope::Envelope;
use crate::jcs::JcsError;
use crate::jcs::scan::NotCanonical;
use crate::limits::{MAX_AUDIENCE, MAX_ID_BYTES, MAX_PARENTS, MAX_TAG_BYTES, MAX_TAGS};

/// Why a value is not an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("the entry has {bytes} bytes; the limit is {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error(transparent)]
    NotCanonical(#[from] NotCanonical),
    #[error("`{0}` is not a field of an entry, or a field before it is missing")]
    UnknownField(String),
    #[error("`{0}` is missing")]
    MissingField(&'static str),
    #[error("`{field}`: {what}")]
    Bad { field: &'static str, what: String },
    #[error("`payload`: {0}")]
    Payload(JcsError),
}

pub(super) fn bad(field: &'static str, what: impl ToString) -> FieldError {
    FieldError::Bad { field, what: what.to_string() }
}

pub(super) fn check_id(field: &'static str, id: &str) -> Result<(), FieldError> {
    match id.len() {
        0 => Err(bad(field, "it is empty")),
        // Ids are printed in tables and log lines.
        _ if has_control(id) => Err(bad(field, "it has a control character")),
        1..=MAX_ID_BYTES => Ok(()),
        bytes => Err(bad(field, format_args!("it has {bytes} bytes; the limit is {MAX_ID_BYTES}"))),
    }
}

fn has_control(text: &str) -> bool {
    // The UTF-8 form of a C1 control starts with 0xC2; without that byte, only ASCII controls are possible.
    let suspicious =
        text.bytes().fold(false, |found, byte| found | (byte < 0x20) | (byte == 0x7F) | (byte == 0xC2));
    suspicious && text.chars().any(char::is_control)
}

pub(super) fn check_parents(parents: &[Cid]) -> Result<(), FieldError> {
    if parents.len() > MAX_PARENTS {
        return Err(bad("parents", format_args!("there are {}; the limit is {MAX_PARENTS}", parents.len())));
    }
    match parents.iter().enumerate().find(|(i, parent)| parents[..*i].contains(parent)) {
        Some((_, twice)) => Err(bad("parents", format_args!("{twice} is listed twice"))),
        None => Ok(()),
    }
}

pub(super) fn check_tags<'t>(tags: impl ExactSizeIterator<Item = &'t str>) -> Result<(), FieldError> {
    if tags.len() > MAX_TAGS {
        return Err(bad("tags", format_args!("there are {}; the limit is {MAX_TAGS}", tags.len())));
    }
    for tag in tags {
        if has_control(tag) {
            return Err(bad("tags", "a tag has a control character"));
        }
        if tag.is_empty() || tag.len() > MAX_TAG_BYTES {
            return Err(bad(
                "tags",
                format_args!("a tag has 1 to {MAX_TAG_BYTES} bytes, this one {}", tag.len()),
            ));
        }
    }
    Ok(())
}

pub(super) fn check_envelope(envelope: &Envelope) -> Result<(), FieldError> {
    if envelope.audience.len() > MAX_AUDIENCE {
        return Err(bad(
            "envelope",
            format_args!("its audience is {}; the limit is {MAX_AUDIENCE}", envelope.audience.len()),
        ));
    }
    Ok(())
}
