//! Names and passwords in addresses: `postgres://user:password@host`, `https://token@host`.

use crate::bytes::{Step, Stop, TAKEN_OUT, View};
use crate::entropy;
use crate::secret::{Core, Tail};

pub(crate) const ANCHOR: &str = "://";

/// The longest user name. What is longer is no name.
const LONGEST_NAME: usize = 256;

/// The longest password that is waited for. What is longer is taken for one.
const LONGEST_PASSWORD: usize = 1024;

/// The name and password that begin here.
pub(crate) fn credentials(view: View<'_>, at: usize) -> Step<Core> {
    let name = view.run_of(at, LONGEST_NAME + 1, |byte| !ends_name(byte));
    let end = at + name.len();
    match view.byte(end, at)? {
        Some(b':') if name.len() <= LONGEST_NAME => password(view, at, end + 1),
        Some(b'@') if entropy::is_random(&name[..name.len().min(entropy::JUDGED)]) => {
            Ok(found(at, end, Tail::Token))
        }
        _ => Err(Stop::No),
    }
}

fn password(view: View<'_>, start: usize, at: usize) -> Step<Core> {
    let run = view.run_of(at, LONGEST_PASSWORD, |byte| !ends_password(byte));
    // A password that holds a bracket is one; a place where something was taken out is none.
    for bracket in memchr::memchr_iter(b'[', run) {
        if view.literal(at + bracket, TAKEN_OUT, start)? {
            return Err(Stop::No);
        }
    }
    let end = at + run.len();
    if run.len() == LONGEST_PASSWORD {
        return Ok(found(start, end, Tail::Value));
    }
    match view.byte(end, start)? {
        Some(b'@') if !run.is_empty() => Ok(found(start, end, Tail::Token)),
        _ => Err(Stop::No),
    }
}

fn found(start: usize, end: usize, tail: Tail) -> Core {
    Core { start, end, kind: "url-password", tail }
}

fn ends_name(byte: u8) -> bool {
    matches!(byte, b':' | b'[' | b'#') || ends_password(byte)
}

/// Quotes and backslashes are no part of an address; other text stands behind them.
fn ends_password(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b'/' | b'@' | b'?' | b'"' | b'<' | b'>' | b'`' | b'\\')
}
