//! Values of cookies in a header: `Set-Cookie: id=…`, `Cookie: a=b; id=…`, and in the options of curl that send them.
//!
//! Session cookies that are known by their names are found anywhere, as [`crate::named_values`].

use crate::bytes::{ByteClass, InputText, MatchResult, NoMatch};
use crate::entropy;
use crate::secret::{Core, Tail};

/// What separates the name of a cookie from its value.
pub(crate) const ANCHOR: &str = "=";

/// The longest name of a cookie.
const LONGEST_NAME: usize = 64;

/// Attributes of a cookie whose values may look random and are no secret.
const ATTRIBUTES: [&[u8]; 2] = [b"domain", b"path"];

/// The value of the cookie whose `=` is at `at`.
pub(crate) fn value(input: InputText<'_>, at: usize) -> MatchResult<Core> {
    let name = input.run_before(at, ByteClass::DOTTED, LONGEST_NAME);
    let name_start = at - name;
    let is_attribute = ATTRIBUTES.iter().any(|word| input.bytes[name_start..at].eq_ignore_ascii_case(word));
    if name == 0 || is_attribute || !is_in_cookies(input, name_start) {
        return Err(NoMatch::Never);
    }
    let quote = usize::from(input.byte(at + 1, at + 1)? == Some(b'"'));
    let start = at + 1 + quote;
    let end = input.passes(start, ByteClass::HEADER, entropy::SAMPLE_BYTES, entropy::is_random)?;
    Ok(Core { start, end, kind: "cookie", tail: Tail::Header })
}

/// Whether a pair that starts here is one of a cookie header's.
fn is_in_cookies(input: InputText<'_>, at: usize) -> bool {
    // Most `=` are no cookies; this is the cheapest way to tell.
    let starts = |byte: u8| matches!(byte, b' ' | b';' | b':' | b'"' | b'\'' | b'=');
    if !input.byte_before(at).is_some_and(starts) {
        return false;
    }
    let context = input.context_before(at);
    let words = context.trim_ascii_end();
    let words = words.strip_suffix(b"\"").or(words.strip_suffix(b"'")).unwrap_or(words).trim_ascii_end();
    let is_option = |option: &[u8]| words.ends_with(option);
    if is_option(b"--cookie") || is_option(b"--cookie=") || is_option(b" -b") {
        return true;
    }
    let is_next = words.ends_with(b";") || words.ends_with(b":") || words.ends_with(b": \\");
    is_next
        && memchr::memmem::find_iter(context, b"ookie").any(|found| {
            let after = &context[found + b"ookie".len()..];
            let after = after.strip_prefix(b"\\").unwrap_or(after);
            let after = after.strip_prefix(b"\"").or(after.strip_prefix(b"'")).unwrap_or(after);
            after.starts_with(b":") || context[..found].ends_with(b"--c")
        })
}
