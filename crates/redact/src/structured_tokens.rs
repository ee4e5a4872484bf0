//! Keys that are known by how they are built, and not by how they begin alone.

use crate::bytes::{Class, Step, Stop, View};
use crate::entropy;
use crate::secret::{Core, Ends, Tail};

/// The longest first part of a web token that is waited for.
const LONGEST_JWT_HEADER: usize = 4096;

/// How much white space may stand before what a header carries.
const MOST_SPACE: usize = 8;

/// `eyJ….….…`: the first two parts are enough, and the second is empty where a key is agreed on.
pub(crate) fn jwt(view: View<'_>, at: usize, ends: &mut Ends<'_>) -> Step<Core> {
    let header = ends.run_end(Tail::Token, at);
    if header - at > LONGEST_JWT_HEADER || header - at < 11 && !view.goes_on(header) {
        return Err(Stop::No);
    }
    if view.byte(header, at)? != Some(b'.') {
        return Err(Stop::No);
    }
    let claims = header + if view.byte(header + 1, at)? == Some(b'.') { 2 } else { 1 };
    let end = view.passes(claims, Class::TOKEN, 8, |run| run.len() == 8).map_err(|stop| stop_at(stop, at))?;
    Ok(Core { start: at, end, kind: "jwt", tail: Tail::Dotted })
}

/// `123456789:AA…`: the number is the bot's public name and stays.
pub(crate) fn telegram(view: View<'_>, at: usize) -> Step<Core> {
    let digits = view.bytes[..at].iter().rev().take(12).take_while(|byte| byte.is_ascii_digit()).count();
    if digits < 6 {
        return Err(Stop::No);
    }
    let start = at + 1;
    let end = view.passes(start, Class::TOKEN, 35, |run| run.len() == 35)?;
    Ok(Core { start, end, kind: "telegram-token", tail: Tail::Token })
}

/// `M….six_ch.…`: the first part is the public number of an account in base64 and stays.
pub(crate) fn discord(view: View<'_>, at: usize) -> Step<Core> {
    const NUMBER: std::ops::RangeInclusive<usize> = 23..=28;
    let before = view.run_before(at, Class::TOKEN, *NUMBER.end());
    let is_number = |length: usize| {
        let start = at - length;
        matches!(view.bytes[start], b'M' | b'N' | b'O') && view.begins_word(start, Class::TOKEN)
    };
    if !NUMBER.take_while(|length| *length <= before).any(is_number) {
        return Err(Stop::No);
    }
    let start = at + 1;
    let time = view.run(start, Class::TOKEN, 7).len();
    if time != 6 && !view.goes_on(start + time) {
        return Err(Stop::No);
    }
    if view.byte(start + time, start)? != Some(b'.') {
        return Err(Stop::No);
    }
    let end = view
        .passes(start + 7, Class::TOKEN, 27, |run| run.len() == 27)
        .map_err(|stop| stop_at(stop, start))?;
    Ok(Core { start, end, kind: "discord-token", tail: Tail::Token })
}

/// `…-us12` behind 32 hexadecimal digits.
pub(crate) fn mailchimp(view: View<'_>, at: usize) -> Step<Core> {
    let digits = view.run_before(at, Class::HEX, 32);
    let start = at - digits;
    if digits != 32 || !view.begins_word(start, Class::TOKEN) {
        return Err(Stop::No);
    }
    let end = at + "-us".len();
    match view.byte(end, start)? {
        Some(b'0'..=b'9') => Ok(Core { start, end, kind: "mailchimp-key", tail: Tail::Token }),
        _ => Err(Stop::No),
    }
}

/// From where on a text may yet turn out to end in a Mailchimp key.
pub(crate) fn mailchimp_begun(bytes: &[u8]) -> usize {
    let (digits_end, is_whole) = match bytes {
        [.., b'-', b'u'] => (bytes.len() - 2, true),
        [.., b'-'] => (bytes.len() - 1, true),
        _ => (bytes.len(), false),
    };
    let digits = View { bytes, is_whole: false }.run_before(digits_end, Class::HEX, 32);
    if digits == 0 || is_whole && digits < 32 { bytes.len() } else { digits_end - digits }
}

/// `Bearer …`, behind the word.
pub(crate) fn bearer(view: View<'_>, at: usize) -> Step<Core> {
    let start = space(view, at)?;
    let end =
        view.passes(start, Class::HEADER, entropy::JUDGED, |run| run.len() >= 16 && entropy::is_mixed(run))?;
    Ok(Core { start, end, kind: "bearer", tail: Tail::Header })
}

/// `Basic …`, behind the word.
pub(crate) fn basic(view: View<'_>, at: usize) -> Step<Core> {
    let start = space(view, at)?;
    let end = view.passes(start, Class::HEADER, entropy::JUDGED, entropy::is_basic)?;
    Ok(Core { start, end, kind: "basic", tail: Tail::Header })
}

/// Behind the white space, of which there is some.
fn space(view: View<'_>, at: usize) -> Step<usize> {
    if view.literal(at, b"%20", at)? {
        return Ok(at + 3);
    }
    // As JSON has it.
    if view.literal(at, b"\\t", at)? {
        return Ok(at + 2);
    }
    let space = view.run_of(at, MOST_SPACE, |byte| matches!(byte, b' ' | b'\t')).len();
    match view.byte(at + space, at + space)? {
        Some(_) if space > 0 => Ok(at + space),
        _ => Err(Stop::No),
    }
}

fn stop_at(stop: Stop, start: usize) -> Stop {
    match stop {
        Stop::More(_) => Stop::More(start),
        Stop::No => Stop::No,
    }
}
