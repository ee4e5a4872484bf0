//! User names and passwords in URLs: `postgres://user:password@host`, `https://token@host`.

use crate::bytes::{InputText, MatchResult, NoMatch, PLACEHOLDER_START};
use crate::entropy;
use crate::secret::{Core, Tail};

pub(crate) const ANCHOR: &str = "://";

/// The longest user name. A longer one does not count as a user name.
const LONGEST_NAME: usize = 256;

/// The longest password that a stream buffers. A longer run counts as a password.
const LONGEST_PASSWORD: usize = 1024;

/// The user name and password that start here.
pub(crate) fn credentials(input: InputText<'_>, at: usize) -> MatchResult<Core> {
    let name = input.run_while(at, LONGEST_NAME + 1, |byte| !ends_name(byte));
    let end = at + name.len();
    match input.byte(end, at)? {
        Some(b':') if name.len() <= LONGEST_NAME => password(input, at, end + 1),
        Some(b'@') if entropy::is_random(&name[..name.len().min(entropy::SAMPLE_BYTES)]) => {
            Ok(core(at, end, Tail::Token))
        }
        _ => Err(NoMatch::Never),
    }
}

fn password(input: InputText<'_>, start: usize, at: usize) -> MatchResult<Core> {
    let run = input.run_while(at, LONGEST_PASSWORD, |byte| !ends_password(byte));
    // A bracket may be part of a password; a placeholder is not.
    for bracket in memchr::memchr_iter(b'[', run) {
        if input.has_literal(at + bracket, PLACEHOLDER_START, start)? {
            return Err(NoMatch::Never);
        }
    }
    let end = at + run.len();
    if run.len() == LONGEST_PASSWORD {
        return Ok(core(start, end, Tail::Value));
    }
    match input.byte(end, start)? {
        Some(b'@') if !run.is_empty() => Ok(core(start, end, Tail::Token)),
        _ => Err(NoMatch::Never),
    }
}

fn core(start: usize, end: usize, tail: Tail) -> Core {
    Core { start, end, kind: "url-password", tail }
}

fn ends_name(byte: u8) -> bool {
    matches!(byte, b':' | b'[' | b'#') || ends_password(byte)
}

/// Quotes and backslashes are not part of a URL; other text follows them.
fn ends_password(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'/' | b'@' | b'?' | b'"' | b'<' | b'>' | b'`' | b'\\')
}
