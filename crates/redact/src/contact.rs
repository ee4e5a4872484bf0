//! Mail addresses and telephone numbers. They are no secrets, so they are looked for only where that is asked for.

use crate::bytes::{Class, Step, Stop, TAKEN_OUT, View};
use crate::secret::{Core, Tail};

/// The longest part before the `@` that mail allows.
const LONGEST_LOCAL: usize = 64;

/// The longest name of a host.
const LONGEST_DOMAIN: usize = 253;

/// Digits of a number with its country.
const MOST_DIGITS: usize = 15;
const LEAST_DIGITS: usize = 8;

/// Groups that such a number may be written in.
const MOST_GROUPS: usize = 10;

/// The address whose `@` stands at a place.
pub(crate) fn email(view: View<'_>, at: usize) -> Step<Core> {
    let local = view.run_before(at, Class::LOCAL, LONGEST_LOCAL);
    if local == 0 {
        return Err(Stop::No);
    }
    let start = at - local;
    let domain = view.run(at + 1, Class::DOTTED, LONGEST_DOMAIN);
    let end = at + 1 + domain.len();
    if domain.len() < LONGEST_DOMAIN && view.goes_on(end) {
        return Err(Stop::More(start));
    }
    let dots = domain.iter().rev().take_while(|byte| **byte == b'.').count();
    let domain = &domain[..domain.len() - dots];
    let has_top =
        domain.windows(3).any(|part| part[0] == b'.' && part[1..].iter().all(u8::is_ascii_alphabetic));
    let is_name = domain.first().is_some_and(u8::is_ascii_alphanumeric);
    if !has_top || !is_name {
        return Err(Stop::No);
    }
    Ok(Core { start, end: end - dots, kind: "email", tail: Tail::Token })
}

/// From where on a text may yet turn out to end in an address.
pub(crate) fn email_begun(view: View<'_>) -> usize {
    let end = view.bytes.len();
    end - view.run_before(end, Class::LOCAL, LONGEST_LOCAL)
}

/// Whether a telephone number may begin with this.
pub(crate) fn may_begin_phone(byte: u8) -> bool {
    matches!(byte, b'+' | b'(' | b'0'..=b'9')
}

/// The telephone number that begins at a place: `+49 30 1234567`, `(415) 555-2671`, `415-555-2671`.
pub(crate) fn phone(view: View<'_>, at: usize) -> Step<Core> {
    let is_inside = |before: u8| {
        Class::TOKEN.has(before) || matches!(before, b'.' | b'+' | b'/' | b']' | b'#') || before >= 0x80
    };
    if view.before(at).is_some_and(is_inside) {
        return Err(Stop::No);
    }
    let end = match view.byte(at, at)? {
        Some(b'+') => with_country(view, at)?,
        Some(b'(') => {
            let area = digits(view, at + 1, 3, at)?;
            if view.byte(area, at)? != Some(b')') {
                return Err(Stop::No);
            }
            let space = usize::from(matches!(view.byte(area + 1, at)?, Some(b' ' | b'-')));
            local(view, area + 1 + space, at)?
        }
        Some(b'0'..=b'9') => {
            let area = digits(view, at, 3, at)?;
            match view.byte(area, at)? {
                Some(b'-' | b' ' | b'.') => local(view, area + 1, at)?,
                _ => return Err(Stop::No),
            }
        }
        _ => return Err(Stop::No),
    };
    Ok(Core { start: at, end, kind: "phone", tail: Tail::Token })
}

/// `555-2671`.
fn local(view: View<'_>, at: usize, held: usize) -> Step<usize> {
    let exchange = digits(view, at, 3, held)?;
    match view.byte(exchange, held)? {
        Some(b'-' | b' ' | b'.') => digits(view, exchange + 1, 4, held),
        _ => Err(Stop::No),
    }
}

fn digits(view: View<'_>, at: usize, count: usize, held: usize) -> Step<usize> {
    let found = view.run_of(at, count, |byte| byte.is_ascii_digit()).len();
    if found == count {
        return Ok(at + count);
    }
    Err(if view.goes_on(at + found) { Stop::More(held) } else { Stop::No })
}

/// Groups of digits behind a `+`, joined by one separator each, as many as a number can have.
fn with_country(view: View<'_>, held: usize) -> Step<usize> {
    let (mut at, mut end, mut count) = (held + 1, held, 0);
    for _ in 0..MOST_GROUPS {
        let group = view.run_of(at, MOST_DIGITS + 1, |byte| byte.is_ascii_digit()).len();
        if count + group > MOST_DIGITS {
            break;
        }
        let next = view.byte(at + group, held)?;
        if group > 0 && next == Some(b'[') && view.literal(at + group, TAKEN_OUT, held)? {
            return Err(Stop::No);
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
                let space = usize::from(matches!(view.byte(at + group + 1, held)?, Some(b' ' | b'-')));
                at += group + 1 + space;
            }
            _ => break,
        }
    }
    if count >= LEAST_DIGITS { Ok(end) } else { Err(Stop::No) }
}
