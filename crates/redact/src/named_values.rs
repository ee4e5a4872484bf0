//! Values that stand behind a name which says that they are secret: `api_key = "…"`, `--token …`, `"password":"…"`.
//!
//! The name alone is not enough, since most of what stands behind such names is code and prose: the value has to look
//! random, or for passwords have more than letters. A password of letters only is not found here, unless it stands in a
//! connection string.

use crate::bytes::{Class, Step, Stop, View};
use crate::entropy;
use crate::secret::{Core, Tail};

/// A name, by the part of it that is looked for.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    /// Without its first letter where that may be a capital, so that one literal finds both.
    pub(crate) anchor: &'static str,
    /// The first letter that belongs before the anchor.
    first: Option<u8>,
    sort: Sort,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// The value is a key if it looks like one.
    Secret,
    /// A key of those that are secret: `api_key` is one, `cache_key` is not.
    Key,
    Password,
}

pub(crate) const NAMES: &[Name] = &[
    name("oken", Some(b't'), Sort::Secret),
    name("OKEN", Some(b't'), Sort::Secret),
    name("ecret", Some(b's'), Sort::Secret),
    name("ECRET", Some(b's'), Sort::Secret),
    name("redential", Some(b'c'), Sort::Secret),
    name("redentials", Some(b'c'), Sort::Secret),
    name("REDENTIALS", Some(b'c'), Sort::Secret),
    name("uthorization", Some(b'a'), Sort::Secret),
    name("UTHORIZATION", Some(b'a'), Sort::Secret),
    name("key", None, Sort::Key),
    name("Key", None, Sort::Key),
    name("KEY", None, Sort::Key),
    name("assword", Some(b'p'), Sort::Password),
    name("ASSWORD", Some(b'p'), Sort::Password),
    name("asswd", Some(b'p'), Sort::Password),
    name("ASSWD", Some(b'p'), Sort::Password),
    name("assphrase", Some(b'p'), Sort::Password),
    name("ASSPHRASE", Some(b'p'), Sort::Password),
    name("wd", Some(b'p'), Sort::Password),
    name("WD", Some(b'p'), Sort::Password),
];

/// What stands before `key` where the value is secret.
const SECRET_KEYS: [&str; 14] = [
    "api",
    "access",
    "secret",
    "private",
    "auth",
    "account",
    "master",
    "encryption",
    "signing",
    "admin",
    "deploy",
    "subscription",
    "service",
    "client",
];

/// The longest of them with what joins it to `key`.
const LONGEST_KEY: usize = 13;

/// The longest option that `--` may begin.
const LONGEST_OPTION: usize = 32;

/// Quotes on one side of a separator, and how often each may be escaped.
const MOST_QUOTES: usize = 3;

/// White space on one side of a separator.
const MOST_SPACE: usize = 8;

/// The longest escape of a quote, in backslashes.
const MOST_ESCAPES: usize = 3;

const QUOTES: [&[u8]; 3] = [b"%22", b"%27", b"&quot;"];

const SCHEMES: [&[u8]; 5] = [b"bearer", b"basic", b"token", b"bot", b"apikey"];

const fn name(anchor: &'static str, first: Option<u8>, sort: Sort) -> Name {
    Name { anchor, first, sort }
}

impl Name {
    /// The value behind a name whose anchor stands at a place.
    pub(crate) fn value(self, view: View<'_>, anchor: usize) -> Step<Core> {
        let is_named = match self.first {
            Some(first) => view.before(anchor).is_some_and(|before| before.eq_ignore_ascii_case(&first)),
            None => true,
        };
        if !is_named {
            return Err(Stop::No);
        }
        let behind = anchor + self.anchor.len();
        let start = anchor - usize::from(self.first.is_some());
        // Most names are followed by something else; this is the cheapest way to see it.
        if view.bytes.get(behind).is_some_and(|next| Class::TOKEN.has(*next)) {
            return Err(Stop::No);
        }
        if self.sort == Sort::Key && !is_secret_key(view, start) {
            return Err(Stop::No);
        }
        let (at, joint) = separator(view, behind, is_option(view, start))?;
        let at = scheme(view, at)?;
        match self.sort {
            Sort::Secret | Sort::Key => {
                let end = view.passes(at, Class::HEADER, entropy::JUDGED, entropy::is_random)?;
                Ok(Core { start: at, end, kind: "secret", tail: Tail::Header })
            }
            Sort::Password => {
                let in_connection = joint == Joint::Tight && is_in_connection(view, start);
                password(view, at, in_connection)
            }
        }
    }
}

fn password(view: View<'_>, at: usize, in_connection: bool) -> Step<Core> {
    // A path, a variable, a place where something was taken out.
    if let Some(b'$' | b'/' | b'.' | b'~' | b'[') = view.byte(at, at)? {
        return Err(Stop::No);
    }
    let end = view.passes(at, Class::PLAIN_VALUE, entropy::JUDGED, |run| {
        entropy::is_password(run) || in_connection && run.len() >= 4
    })?;
    Ok(Core { start: at, end, kind: "password", tail: Tail::Value })
}

fn is_secret_key(view: View<'_>, at: usize) -> bool {
    let from = at.saturating_sub(LONGEST_KEY);
    let before = view.bytes[from..at].to_ascii_lowercase();
    let before = before
        .strip_suffix(b"_")
        .or(before.strip_suffix(b"-"))
        .or(before.strip_suffix(b" "))
        .unwrap_or(&before);
    SECRET_KEYS.iter().any(|name| before.ends_with(name.as_bytes()))
}

/// Whether the name is an option of a command, whose value stands behind a space.
fn is_option(view: View<'_>, at: usize) -> bool {
    let length = view.run_before(at, Class::TOKEN, LONGEST_OPTION);
    view.bytes[at - length..at].windows(2).any(|pair| pair == b"--")
}

/// Whether the name is one of several in a connection string: `Server=…;Password=…`.
fn is_in_connection(view: View<'_>, at: usize) -> bool {
    let before = &view.bytes[..at];
    view.bytes[at].is_ascii_uppercase() && (before.ends_with(b";") || before.ends_with(b"; "))
}

/// What joins a name to its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joint {
    /// `=` and nothing else.
    Tight,
    Loose,
}

/// Goes over quotes, white space and what separates a name from its value.
fn separator(view: View<'_>, behind: usize, is_option: bool) -> Step<(usize, Joint)> {
    let mut at = quotes(view, behind)?;
    let is_quoted = at > behind;
    if is_quoted && view.byte(at, at)? == Some(b']') {
        at += 1;
    }
    let spaced = space(view, at)?;
    let is_spaced = spaced > at;
    at = spaced;
    let joined = match view.byte(at, at)? {
        Some(b':') => match view.byte(at + 1, at + 1)? {
            // A path in code.
            Some(b':') => return Err(Stop::No),
            Some(b'=') => at + 2,
            _ => at + 1,
        },
        Some(b'=') => match view.byte(at + 1, at + 1)? {
            Some(b'=' | b'>') => at + 2,
            _ => at + 1,
        },
        Some(b'>') if !is_quoted && !is_spaced => at + 1,
        Some(b'%') if view.literal(at, b"%3D", at)? || view.literal(at, b"%3A", at)? => at + 3,
        _ if is_option && is_spaced => at,
        _ => return Err(Stop::No),
    };
    let end = quotes(view, space(view, joined)?)?;
    let is_tight = end == behind + 1 && view.bytes[behind] == b'=';
    Ok((end, if is_tight { Joint::Tight } else { Joint::Loose }))
}

fn space(view: View<'_>, at: usize) -> Step<usize> {
    let end = at + view.run_of(at, MOST_SPACE, is_space).len();
    view.byte(end, end)?;
    Ok(end)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Behind any quotes, escaped or encoded.
fn quotes(view: View<'_>, from: usize) -> Step<usize> {
    let mut at = from;
    for _ in 0..MOST_QUOTES {
        let escapes = view.run_of(at, MOST_ESCAPES, |byte| byte == b'\\').len();
        match view.byte(at + escapes, at)? {
            Some(b'"' | b'\'' | b'`') => at += escapes + 1,
            Some(b'%' | b'&') if escapes == 0 => {
                let mut encoded = None;
                for quote in QUOTES {
                    if view.literal(at, quote, at)? {
                        encoded = Some(quote.len());
                    }
                }
                match encoded {
                    Some(length) => at += length,
                    None => break,
                }
            }
            _ => break,
        }
    }
    Ok(at)
}

/// Behind the name of a scheme, if a value begins with one.
fn scheme(view: View<'_>, at: usize) -> Step<usize> {
    for scheme in SCHEMES {
        if view.literal(at, scheme, at)? {
            let behind = at + scheme.len();
            let end = behind + view.run_of(behind, MOST_SPACE, is_space).len();
            view.byte(end, at)?;
            if end > behind {
                return Ok(end);
            }
        }
    }
    Ok(at)
}
