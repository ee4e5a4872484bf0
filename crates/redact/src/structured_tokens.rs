//! Tokens that are recognised by their structure and not by a prefix alone.

use crate::bytes::{ByteClass, InputText, MatchResult, NoMatch};
use crate::entropy;
use crate::secret::{Core, Tail};
use crate::tail_ends::TailEnds;

/// The longest header of a JWT. A stream buffers no more than this to confirm one.
const LONGEST_JWT_HEADER: usize = 4096;

/// How much white space may precede the value of a header.
const MOST_SPACE: usize = 8;

/// `eyJ….….…`: the first two parts confirm it. The second is empty in a JWE with a key agreement.
pub(crate) fn jwt(input: InputText<'_>, at: usize, ends: &mut TailEnds<'_>) -> MatchResult<Core> {
    let header = ends.run_end(Tail::Token, at);
    if header - at > LONGEST_JWT_HEADER || header - at < 11 && !input.may_continue(header) {
        return Err(NoMatch::Never);
    }
    if input.byte(header, at)? != Some(b'.') {
        return Err(NoMatch::Never);
    }
    let claims = header + if input.byte(header + 1, at)? == Some(b'.') { 2 } else { 1 };
    let end =
        input.passes(claims, ByteClass::TOKEN, 8, |run| run.len() == 8).map_err(|none| none.hold_from(at))?;
    Ok(Core { start: at, end, kind: "jwt", tail: Tail::Dotted })
}

/// `123456789:AA…`: the number is the public id of the bot and stays.
pub(crate) fn telegram(input: InputText<'_>, at: usize) -> MatchResult<Core> {
    let digits = input.bytes[..at].iter().rev().take(12).take_while(|byte| byte.is_ascii_digit()).count();
    if digits < 6 {
        return Err(NoMatch::Never);
    }
    let start = at + 1;
    let end = input.passes(start, ByteClass::TOKEN, 35, |run| run.len() == 35)?;
    Ok(Core { start, end, kind: "telegram-token", tail: Tail::Token })
}

/// `M….six_ch.…`: the first part is the public id of the account in base64 and stays.
pub(crate) fn discord(input: InputText<'_>, at: usize) -> MatchResult<Core> {
    const NUMBER: std::ops::RangeInclusive<usize> = 23..=28;
    let before = input.run_before(at, ByteClass::TOKEN, *NUMBER.end());
    let is_number = |length: usize| {
        let start = at - length;
        matches!(input.bytes[start], b'M' | b'N' | b'O') && input.starts_word(start, ByteClass::TOKEN)
    };
    if !NUMBER.take_while(|length| *length <= before).any(is_number) {
        return Err(NoMatch::Never);
    }
    let start = at + 1;
    let time = input.run(start, ByteClass::TOKEN, 7).len();
    if time != 6 && !input.may_continue(start + time) {
        return Err(NoMatch::Never);
    }
    if input.byte(start + time, start)? != Some(b'.') {
        return Err(NoMatch::Never);
    }
    let end = input
        .passes(start + 7, ByteClass::TOKEN, 27, |run| run.len() == 27)
        .map_err(|none| none.hold_from(start))?;
    Ok(Core { start, end, kind: "discord-token", tail: Tail::Token })
}

/// 32 hexadecimal digits and `-us12`.
pub(crate) fn mailchimp(input: InputText<'_>, at: usize) -> MatchResult<Core> {
    let digits = input.run_before(at, ByteClass::HEX, 32);
    let start = at - digits;
    if digits != 32 || !input.starts_word(start, ByteClass::TOKEN) {
        return Err(NoMatch::Never);
    }
    let end = at + "-us".len();
    match input.byte(end, start)? {
        Some(b'0'..=b'9') => Ok(Core { start, end, kind: "mailchimp-key", tail: Tail::Token }),
        _ => Err(NoMatch::Never),
    }
}

/// Where a Mailchimp key may start that the end of the text cuts off; the length of the text if there is none.
pub(crate) fn partial_mailchimp_start(bytes: &[u8]) -> usize {
    let (digits_end, has_dash) = match bytes {
        [.., b'-', b'u'] => (bytes.len() - 2, true),
        [.., b'-'] => (bytes.len() - 1, true),
        _ => (bytes.len(), false),
    };
    let digits = InputText { bytes, is_complete: false }.run_before(digits_end, ByteClass::HEX, 32);
    if digits == 0 || has_dash && digits < 32 { bytes.len() } else { digits_end - digits }
}

/// The value after `Bearer`.
pub(crate) fn bearer(input: InputText<'_>, at: usize) -> MatchResult<Core> {
    let start = skip_space(input, at)?;
    let end = input.passes(start, ByteClass::HEADER, entropy::SAMPLE_BYTES, |run| {
        run.len() >= 16 && entropy::is_mixed(run)
    })?;
    Ok(Core { start, end, kind: "bearer", tail: Tail::Header })
}

/// The value after `Basic`.
pub(crate) fn basic(input: InputText<'_>, at: usize) -> MatchResult<Core> {
    let start = skip_space(input, at)?;
    let end = input.passes(start, ByteClass::HEADER, entropy::SAMPLE_BYTES, entropy::is_basic)?;
    Ok(Core { start, end, kind: "basic", tail: Tail::Header })
}

/// The position after the white space, which must be there.
fn skip_space(input: InputText<'_>, at: usize) -> MatchResult<usize> {
    if input.has_literal(at, b"%20", at)? {
        return Ok(at + 3);
    }
    // A tab escaped in JSON.
    if input.has_literal(at, b"\\t", at)? {
        return Ok(at + 2);
    }
    let space = input.run_while(at, MOST_SPACE, |byte| matches!(byte, b' ' | b'\t')).len();
    match input.byte(at + space, at + space)? {
        Some(_) if space > 0 => Ok(at + space),
        _ => Err(NoMatch::Never),
    }
}
