//! The user name and password behind an option of curl: `-u`, `--user`, `--proxy-user`.

use crate::bytes::{ByteClass, InputText, MatchResult, NoMatch};
use crate::entropy;
use crate::secret::{Core, Tail};

/// The end of the option's name: `-u`, `--user` and `-U`, or the last of several short options (`-su `).
pub(crate) const ANCHORS: [&str; 4] = ["-u", "-U", "u ", "U "];

/// The program. `-u` of another one is no password.
const PROGRAM: &[u8] = b"curl";

/// The longest user name. A longer one does not count as a user name.
const LONGEST_NAME: usize = 64;

/// Short options before `u` in one word.
const MOST_SHORT: usize = 8;

/// Quotes, commas and white space between the option and its value.
const MOST_BETWEEN: usize = 8;

/// The password whose option's anchor is at `start`.
pub(crate) fn password(input: InputText<'_>, start: usize, end: usize) -> MatchResult<Core> {
    let Some(option) = option_start(input, start) else { return Err(NoMatch::Never) };
    if memchr::memmem::find(input.context_before(option), PROGRAM).is_none() {
        return Err(NoMatch::Never);
    }
    let is_word = input.bytes[end - 1] == b' ';
    let after = match is_word {
        true => end - 1,
        // `--user`, and every longer word is another option.
        false if matches!(input.byte_before(start), Some(b'-' | b'y')) => {
            if !input.has_literal(end, b"ser", end)? {
                return Err(NoMatch::Never);
            }
            end + 3
        }
        false => end,
    };
    let between = input.run_while(after, MOST_BETWEEN, |byte| b" =\"',\\".contains(&byte)).len();
    let at = after + between;
    let name = input.run_while(at, LONGEST_NAME + 1, |byte| !ends_name(byte));
    let colon = at + name.len();
    if name.len() > LONGEST_NAME || input.byte(colon, at)? != Some(b':') {
        return Err(NoMatch::Never);
    }
    let value = colon + 1;
    match input.byte(value, at)? {
        // A variable, or an address.
        Some(b'$') => return Err(NoMatch::Never),
        Some(b'/') if input.byte(value + 1, at)? == Some(b'/') => return Err(NoMatch::Never),
        // A token that stands alone has an empty password behind it.
        None | Some(b' ' | b'"' | b'\'' | b'\n') if entropy::is_random(name) => {
            return Ok(Core { start: at, end: colon, kind: "password", tail: Tail::Token });
        }
        _ => {}
    }
    let is_value = |run: &[u8]| run.iter().any(|byte| byte.is_ascii_alphanumeric() || *byte >= 0x80);
    let end = input.passes(value, ByteClass::PLAIN_VALUE, entropy::SAMPLE_BYTES, is_value)?;
    Ok(Core { start: value, end, kind: "password", tail: Tail::Value })
}

/// Where the option starts whose name ends with this anchor.
fn option_start(input: InputText<'_>, anchor: usize) -> Option<usize> {
    let starts_word = |at: usize| input.byte_before(at).is_none_or(|before| !ByteClass::TOKEN.has(before));
    if input.bytes[anchor] != b'-' {
        let length = input.run_before(anchor, ByteClass::ALNUM, MOST_SHORT);
        let dash = (anchor - length).checked_sub(1)?;
        return (length > 0 && input.bytes[dash] == b'-' && starts_word(dash)).then_some(dash);
    }
    let before = &input.bytes[..anchor];
    let long = [b"--proxy".as_slice(), b"-"].into_iter().find(|long| before.ends_with(long));
    let option = anchor - long.map_or(0, <[u8]>::len);
    starts_word(option).then_some(option)
}

fn ends_name(byte: u8) -> bool {
    byte.is_ascii_whitespace()
        || matches!(byte, b':' | b'"' | b'\'' | b'\\' | b'[' | b'$' | b'<' | b'>' | b'`')
}
