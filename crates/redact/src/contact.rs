//! Mail addresses and telephone numbers. They are not secrets, so they are matched only on request.

use crate::bytes::{ByteClass, InputText, MatchResult, NoMatch, PLACEHOLDER_START};
use crate::secret::{Core, Tail};

/// The longest local part of a mail address (RFC 5321).
const LONGEST_LOCAL: usize = 64;

/// The longest host name.
const LONGEST_DOMAIN: usize = 253;

/// Digits of a number with its country code.
const MOST_DIGITS: usize = 15;
const LEAST_DIGITS: usize = 8;

/// Groups of digits in such a number.
const MOST_GROUPS: usize = 10;

/// The mail address whose `@` is at `at`.
pub(crate) fn email(input: InputText<'_>, at: usize) -> MatchResult<Core> {
    let local = input.run_before(at, ByteClass::LOCAL, LONGEST_LOCAL);
    if local == 0 {
        return Err(NoMatch::Never);
    }
    let start = at - local;
    let domain = input.run(at + 1, ByteClass::DOTTED, LONGEST_DOMAIN);
    let end = at + 1 + domain.len();
    if domain.len() < LONGEST_DOMAIN && input.may_continue(end) {
        return Err(NoMatch::NeedsMore(start));
    }
    let dots = domain.iter().rev().take_while(|byte| **byte == b'.').count();
    let domain = &domain[..domain.len() - dots];
    let has_top =
        domain.windows(3).any(|part| part[0] == b'.' && part[1..].iter().all(u8::is_ascii_alphabetic));
    let is_name = domain.first().is_some_and(u8::is_ascii_alphanumeric);
    if !has_top || !is_name {
        return Err(NoMatch::Never);
    }
    Ok(Core { start, end: end - dots, kind: "email", tail: Tail::Token })
}

/// Where a mail address may start that the end of the text cuts off.
pub(crate) fn partial_email_start(input: InputText<'_>) -> usize {
    let end = input.bytes.len();
    end - input.run_before(end, ByteClass::LOCAL, LONGEST_LOCAL)
}

/// Whether a telephone number may start with this byte.
pub(crate) fn may_start_phone(byte: u8) -> bool {
    matches!(byte, b'+' | b'(' | b'0'..=b'9')
}

/// The telephone number that starts at `at`: `+49 30 1234567`, `(415) 555-2671`, `415-555-2671`.
pub(crate) fn phone(input: InputText<'_>, at: usize) -> MatchResult<Core> {
    let is_inside = |before: u8| {
        ByteClass::TOKEN.has(before) || matches!(before, b'.' | b'+' | b'/' | b']' | b'#') || before >= 0x80
    };
    if input.byte_before(at).is_some_and(is_inside) {
        return Err(NoMatch::Never);
    }
    let end = match input.byte(at, at)? {
        Some(b'+') => with_country(input, at)?,
        Some(b'(') => {
            let area = digits(input, at + 1, 3, at)?;
            if input.byte(area, at)? != Some(b')') {
                return Err(NoMatch::Never);
            }
            let space = usize::from(matches!(input.byte(area + 1, at)?, Some(b' ' | b'-')));
            local(input, area + 1 + space, at)?
        }
        Some(b'0'..=b'9') => {
            let area = digits(input, at, 3, at)?;
            match input.byte(area, at)? {
                Some(b'-' | b' ' | b'.') => local(input, area + 1, at)?,
                _ => return Err(NoMatch::Never),
            }
        }
        _ => return Err(NoMatch::Never),
    };
    Ok(Core { start: at, end, kind: "phone", tail: Tail::Token })
}

/// `555-2671`.
fn local(input: InputText<'_>, at: usize, hold_from: usize) -> MatchResult<usize> {
    let exchange = digits(input, at, 3, hold_from)?;
    match input.byte(exchange, hold_from)? {
        Some(b'-' | b' ' | b'.') => digits(input, exchange + 1, 4, hold_from),
        _ => Err(NoMatch::Never),
    }
}

fn digits(input: InputText<'_>, at: usize, count: usize, hold_from: usize) -> MatchResult<usize> {
    let found = input.run_while(at, count, |byte| byte.is_ascii_digit()).len();
    if found == count {
        return Ok(at + count);
    }
    Err(if input.may_continue(at + found) { NoMatch::NeedsMore(hold_from) } else { NoMatch::Never })
}

/// Groups of digits after a `+`, with one separator between them.
fn with_country(input: InputText<'_>, hold_from: usize) -> MatchResult<usize> {
    let (mut at, mut end, mut count) = (hold_from + 1, hold_from, 0);
    for _ in 0..MOST_GROUPS {
        let group = input.run_while(at, MOST_DIGITS + 1, |byte| byte.is_ascii_digit()).len();
        if count + group > MOST_DIGITS {
            break;
        }
        let next = input.byte(at + group, hold_from)?;
        if group > 0 && next == Some(b'[') && input.has_literal(at + group, PLACEHOLDER_START, hold_from)? {
            return Err(NoMatch::Never);
        }
        if group == 0 && (count == 0 || next != Some(b'(')) {
            break;
        }
        count += group;
        if group > 0 {
            end = at + group;
        }
        match next {
            Some(b' ' | b'-' | b'.' | b'(') => at += group + 1,
            // `+44 (0)20 …`, `+1 (415) 555-2671`.
            Some(b')') => {
                let space = usize::from(matches!(input.byte(at + group + 1, hold_from)?, Some(b' ' | b'-')));
                at += group + 1 + space;
            }
            _ => break,
        }
    }
    if count >= LEAST_DIGITS { Ok(end) } else { Err(NoMatch::Never) }
}
