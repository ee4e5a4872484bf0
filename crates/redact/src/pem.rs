//! Private keys between a first and a last line.
//!
//! A key that was begun and does not end goes on to the end of the text: half of it is as bad as the whole.

use std::ops::Range;

use memchr::memmem;

use crate::bytes::{Class, Step, Stop, View};
use crate::secret::{Core, Tail};

pub(crate) const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// The longest that what stands between the dashes may be.
const LONGEST_TITLE: usize = 56;

/// The longest first or last line.
pub(crate) const LONGEST_LINE: usize = BEGIN.len() + LONGEST_TITLE + DASHES.len();

/// A key whose first line begins here.
pub(crate) fn begin(view: View<'_>, at: usize) -> Step<Core> {
    let end = title(view, at + BEGIN.len(), at)?;
    Ok(Core { start: at, end, kind: "private-key", tail: Tail::Pem })
}

/// The first last line from here on.
pub(crate) fn last_line(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let view = View { bytes, is_whole: true };
    let rest = bytes.get(from..)?;
    memmem::find_iter(rest, END).find_map(|at| {
        let start = from + at;
        title(view, start + END.len(), start).ok().map(|end| start..end)
    })
}

/// The end of a line that names a private key.
fn title(view: View<'_>, at: usize, held: usize) -> Step<usize> {
    let title = view.run(at, Class::TITLE, LONGEST_TITLE);
    let end = at + title.len();
    if !view.literal(end, DASHES.as_bytes(), held)? {
        return Err(Stop::No);
    }
    let is_private = [&b"PRIVATE KEY"[..], b"PRIVATE KEY BLOCK"].iter().any(|name| title.ends_with(name));
    if is_private { Ok(end + DASHES.len()) } else { Err(Stop::No) }
}
