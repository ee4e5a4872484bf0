//! Private keys in PEM: from the BEGIN line to the END line.
//!
//! A key without an END line extends to the end of the text: half of a key is as bad as the whole.

use std::ops::Range;

use memchr::memmem;

use crate::bytes::{ByteClass, InputText, MatchResult, NoMatch};
use crate::secret::{Core, Tail};

pub(crate) const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// The longest label between the dashes.
const LONGEST_LABEL: usize = 56;

/// The longest BEGIN or END line.
pub(crate) const LONGEST_LINE: usize = BEGIN.len() + LONGEST_LABEL + DASHES.len();

/// A key whose BEGIN line starts here.
pub(crate) fn begin(input: InputText<'_>, at: usize) -> MatchResult<Core> {
    let end = label(input, at + BEGIN.len(), at)?;
    Ok(Core { start: at, end, kind: "private-key", tail: Tail::Pem })
}

/// The first END line from here on.
pub(crate) fn end_line(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let input = InputText { bytes, is_complete: true };
    let rest = bytes.get(from..)?;
    memmem::find_iter(rest, END).find_map(|at| {
        let start = from + at;
        label(input, start + END.len(), start).ok().map(|end| start..end)
    })
}

/// The end of a line whose label, which starts at `at`, names a private key.
fn label(input: InputText<'_>, at: usize, hold_from: usize) -> MatchResult<usize> {
    let label = input.run(at, ByteClass::LABEL, LONGEST_LABEL);
    let end = at + label.len();
    if !input.has_literal(end, DASHES.as_bytes(), hold_from)? {
        return Err(NoMatch::Never);
    }
    let is_private = [&b"PRIVATE KEY"[..], b"PRIVATE KEY BLOCK"].iter().any(|name| label.ends_with(name));
    if is_private { Ok(end + DASHES.len()) } else { Err(NoMatch::Never) }
}
