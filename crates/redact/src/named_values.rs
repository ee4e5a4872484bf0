//! Values after a name that says that they are secret: `api_key = "…"`, `--token …`, `"password":"…"`, `JSESSIONID=…`.
//!
//! The name alone is not enough, because code and prose follow such names far more often than secrets. The value must
//! look random; a password must have more than letters. A password of letters only is found in a connection string and
//! nowhere else.

use crate::bytes::{ByteClass, InputText, MatchResult, NoMatch};
use crate::entropy;
use crate::secret::{Core, Tail};

/// A name of secret values, found by a part of it.
#[derive(Clone, Copy)]
pub(crate) struct SecretName {
    /// The literal to search for: without its first letter if that may be a capital, so that one literal finds both.
    pub(crate) anchor: &'static str,
    /// The letter that must precede the anchor.
    first: Option<u8>,
    kind: NameKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NameKind {
    /// The value is secret if it looks like a key.
    Secret,
    /// The same, but only after one of [`SECRET_KEYS`]: `api_key` matches, `cache_key` does not.
    Key,
    Password,
    /// The same where the name is the last word of a longer one: `smtp_pass` and `dbPass` match, `bypass` does not.
    PasswordSuffix,
    /// A session cookie of a well-known name.
    SessionCookie,
    /// A session cookie if `=` follows: other separators have identifiers behind such a name.
    SessionWord,
}

pub(crate) const NAMES: &[SecretName] = &[
    name("oken", Some(b't'), NameKind::Secret),
    name("OKEN", Some(b't'), NameKind::Secret),
    name("ecret", Some(b's'), NameKind::Secret),
    name("ECRET", Some(b's'), NameKind::Secret),
    name("redential", Some(b'c'), NameKind::Secret),
    name("redentials", Some(b'c'), NameKind::Secret),
    name("REDENTIALS", Some(b'c'), NameKind::Secret),
    name("uthorization", Some(b'a'), NameKind::Secret),
    name("UTHORIZATION", Some(b'a'), NameKind::Secret),
    name("key", None, NameKind::Key),
    name("Key", None, NameKind::Key),
    name("KEY", None, NameKind::Key),
    name("assword", Some(b'p'), NameKind::Password),
    name("ASSWORD", Some(b'p'), NameKind::Password),
    name("asswd", Some(b'p'), NameKind::Password),
    name("ASSWD", Some(b'p'), NameKind::Password),
    name("assphrase", Some(b'p'), NameKind::Password),
    name("ASSPHRASE", Some(b'p'), NameKind::Password),
    name("wd", Some(b'p'), NameKind::Password),
    name("WD", Some(b'p'), NameKind::Password),
    name("ass", Some(b'p'), NameKind::PasswordSuffix),
    name("ASS", Some(b'p'), NameKind::PasswordSuffix),
    name("SESSID", None, NameKind::SessionCookie),
    name("SESSIONID", None, NameKind::SessionCookie),
    name("NET_SessionId", None, NameKind::SessionCookie),
    name("connect.sid", None, NameKind::SessionCookie),
    name("essionid", Some(b's'), NameKind::SessionWord),
    name("essionId", Some(b's'), NameKind::SessionWord),
    name("ession", Some(b's'), NameKind::SessionWord),
];

/// Words before `pass` that make it something else than a password.
const OTHER_PASSES: [&[u8]; 36] = [
    b"all",
    b"analysis",
    b"back",
    b"backward",
    b"band",
    b"by",
    b"codegen",
    b"color",
    b"compute",
    b"depth",
    b"did",
    b"does",
    b"final",
    b"first",
    b"forward",
    b"high",
    b"last",
    b"lighting",
    b"low",
    b"main",
    b"multi",
    b"must",
    b"next",
    b"one",
    b"opt",
    b"post",
    b"pre",
    b"render",
    b"second",
    b"shader",
    b"shadow",
    b"should",
    b"single",
    b"test",
    b"tests",
    b"two",
];

/// The words that precede `key` if the value is secret.
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

/// The longest of them with its separator before `key`.
const LONGEST_KEY: usize = 13;

/// The longest indentation of a line in a file of settings.
const MOST_INDENT: usize = 32;

/// The longest command-line option.
const LONGEST_OPTION: usize = 32;

/// Quotes on one side of a separator.
const MOST_QUOTES: usize = 3;

/// White space on one side of a separator.
const MOST_SPACE: usize = 8;

/// The longest escape of a quote, in backslashes.
const MOST_ESCAPES: usize = 3;

const QUOTES: [&[u8]; 3] = [b"%22", b"%27", b"&quot;"];

const SCHEMES: [&[u8]; 5] = [b"bearer", b"basic", b"token", b"bot", b"apikey"];

const fn name(anchor: &'static str, first: Option<u8>, kind: NameKind) -> SecretName {
    SecretName { anchor, first, kind }
}

impl SecretName {
    /// The value after the name whose anchor is at `anchor`.
    pub(crate) fn value(self, input: InputText<'_>, anchor: usize) -> MatchResult<Core> {
        let is_named = match self.first {
            Some(first) => {
                input.byte_before(anchor).is_some_and(|before| before.eq_ignore_ascii_case(&first))
            }
            None => true,
        };
        if !is_named {
            return Err(NoMatch::Never);
        }
        let after = anchor + self.anchor.len();
        let start = anchor - usize::from(self.first.is_some());
        // Most names are part of a longer word; this is the cheapest way to tell.
        if input.bytes.get(after).is_some_and(|next| ByteClass::TOKEN.has(*next)) {
            return Err(NoMatch::Never);
        }
        if self.kind == NameKind::Key && !is_secret_key(input, start) {
            return Err(NoMatch::Never);
        }
        let separator = match self.kind {
            // A file of cookies has tabs between its columns.
            NameKind::SessionCookie if input.byte(after, after)? == Some(b'\t') => {
                Separator { end: after + 1, is_bare_equals: false }
            }
            _ => separator(input, after, is_option(input, start))?,
        };
        let is_apart = match self.kind {
            NameKind::SessionWord => separator.is_bare_equals && is_session_word(input, start),
            NameKind::PasswordSuffix => is_password_suffix(input, start, after, &separator),
            NameKind::Secret | NameKind::Key | NameKind::Password | NameKind::SessionCookie => true,
        };
        if !is_apart {
            return Err(NoMatch::Never);
        }
        let at = skip_scheme(input, separator.end)?;
        match self.kind {
            NameKind::Secret | NameKind::Key => {
                let end = input.passes(at, ByteClass::HEADER, entropy::SAMPLE_BYTES, entropy::is_random)?;
                Ok(Core { start: at, end, kind: "secret", tail: Tail::Header })
            }
            NameKind::SessionCookie | NameKind::SessionWord => {
                let end = input.passes(at, ByteClass::HEADER, entropy::SAMPLE_BYTES, entropy::is_random)?;
                Ok(Core { start: at, end, kind: "cookie", tail: Tail::Header })
            }
            NameKind::Password | NameKind::PasswordSuffix => {
                let quote = |byte: u8| matches!(byte, b'"' | b'\'');
                let is_literal = separator.is_bare_equals || input.byte_before(at).is_some_and(quote);
                let in_connection = separator.is_bare_equals && is_in_connection(input, start);
                let found = password(input, at, is_literal, in_connection)?;
                if self.kind == NameKind::PasswordSuffix && input.byte(found.end, at)? == Some(b'(') {
                    // A call of a function is code.
                    return Err(NoMatch::Never);
                }
                Ok(found)
            }
        }
    }
}

fn password(input: InputText<'_>, at: usize, is_literal: bool, in_connection: bool) -> MatchResult<Core> {
    // A path, a variable or a placeholder.
    if let Some(b'$' | b'/' | b'.' | b'~' | b'[') = input.byte(at, at)? {
        return Err(NoMatch::Never);
    }
    let end = input.passes(at, ByteClass::PLAIN_VALUE, entropy::SAMPLE_BYTES, |run| {
        entropy::is_password(run)
            || is_literal && entropy::is_mixed_case(run)
            || in_connection && run.len() >= 4
    })?;
    Ok(Core { start: at, end, kind: "password", tail: Tail::Value })
}

/// Whether `pass` at `at` ends a name such as `smtp_pass`, or is one by itself.
fn is_password_suffix(input: InputText<'_>, at: usize, after: usize, separator: &Separator) -> bool {
    let before = &input.bytes[..at];
    let is_camel = input.bytes[at] == b'P' && input.bytes[at + 1] == b'a';
    match before.last() {
        Some(b'_' | b'-' | b'.') => !ends_with_other(&before[..at - 1]),
        Some(letter) if is_camel && (letter.is_ascii_lowercase() || letter.is_ascii_digit()) => {
            !ends_with_other(before)
        }
        Some(letter) if letter.is_ascii_alphanumeric() => false,
        // By itself it is a name in quotes, or of an assignment, or of a line in a file of settings.
        Some(b'"' | b'\'') => input.bytes[after..].starts_with(&before[at - 1..]),
        _ if separator.is_bare_equals => true,
        _ => {
            let line = input.context_before(at);
            let is_indent = |byte: &u8| matches!(byte, b' ' | b'\t' | b'-');
            input.bytes[at] == b'p' && line.len() < MOST_INDENT && line.iter().all(is_indent)
        }
    }
}

/// Whether a name's part before `pass` ends with one of [`OTHER_PASSES`].
fn ends_with_other(before: &[u8]) -> bool {
    let text = &before[before.len().saturating_sub(LONGEST_OPTION)..];
    // The last word of `myDepth` begins with its capital.
    let start = text.iter().rposition(|byte| !byte.is_ascii_alphanumeric()).map_or(0, |at| at + 1);
    let word = &text[start..];
    let is_camel = word.iter().any(u8::is_ascii_lowercase);
    let capital = word.iter().rposition(u8::is_ascii_uppercase).filter(|_| is_camel);
    let word = &word[capital.unwrap_or(0)..];
    OTHER_PASSES.iter().any(|other| word.eq_ignore_ascii_case(other))
}

/// Whether the word that begins at `at` is not the end of a longer one. `jsessionid` is what servers put into addresses.
fn is_session_word(input: InputText<'_>, at: usize) -> bool {
    input.byte_before(at).is_none_or(|before| !before.is_ascii_alphanumeric() || before == b'j')
}

fn is_secret_key(input: InputText<'_>, at: usize) -> bool {
    let from = at.saturating_sub(LONGEST_KEY);
    let before = input.bytes[from..at].to_ascii_lowercase();
    let before = before
        .strip_suffix(b"_")
        .or(before.strip_suffix(b"-"))
        .or(before.strip_suffix(b" "))
        .unwrap_or(&before);
    SECRET_KEYS.iter().any(|name| before.ends_with(name.as_bytes()))
}

/// Whether the name is a command-line option, whose value follows after a space.
fn is_option(input: InputText<'_>, at: usize) -> bool {
    let length = input.run_before(at, ByteClass::TOKEN, LONGEST_OPTION);
    input.bytes[at - length..at].windows(2).any(|pair| pair == b"--")
}

/// Whether the name is one of several in a connection string: `Server=…;Password=…`.
fn is_in_connection(input: InputText<'_>, at: usize) -> bool {
    let before = &input.bytes[..at];
    input.bytes[at].is_ascii_uppercase() && (before.ends_with(b";") || before.ends_with(b"; "))
}

/// What separates a name from its value.
struct Separator {
    /// Where the value starts.
    end: usize,
    /// It is `=` and nothing else.
    is_bare_equals: bool,
}

/// Matches the quotes, white space and punctuation between a name and its value.
fn separator(input: InputText<'_>, after: usize, is_option: bool) -> MatchResult<Separator> {
    let mut at = skip_quotes(input, after)?;
    let is_quoted = at > after;
    if is_quoted && input.byte(at, at)? == Some(b']') {
        at += 1;
    }
    let spaced = skip_space(input, at)?;
    let is_spaced = spaced > at;
    at = spaced;
    let joined = match input.byte(at, at)? {
        Some(b':') => match input.byte(at + 1, at + 1)? {
            // A path in code.
            Some(b':') => return Err(NoMatch::Never),
            Some(b'=') => at + 2,
            _ => at + 1,
        },
        Some(b'=') => match input.byte(at + 1, at + 1)? {
            Some(b'=' | b'>') => at + 2,
            _ => at + 1,
        },
        Some(b'>') if !is_quoted && !is_spaced => at + 1,
        Some(b'%') if input.has_literal(at, b"%3D", at)? || input.has_literal(at, b"%3A", at)? => at + 3,
        _ if is_option && is_spaced => at,
        _ => return Err(NoMatch::Never),
    };
    let end = skip_quotes(input, skip_space(input, joined)?)?;
    Ok(Separator { end, is_bare_equals: end == after + 1 && input.bytes[after] == b'=' })
}

fn skip_space(input: InputText<'_>, at: usize) -> MatchResult<usize> {
    let end = at + input.run_while(at, MOST_SPACE, is_space).len();
    input.byte(end, end)?;
    Ok(end)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The position after any quotes, escaped or encoded.
fn skip_quotes(input: InputText<'_>, from: usize) -> MatchResult<usize> {
    let mut at = from;
    for _ in 0..MOST_QUOTES {
        let escapes = input.run_while(at, MOST_ESCAPES, |byte| byte == b'\\').len();
        match input.byte(at + escapes, at)? {
            Some(b'"' | b'\'' | b'`') => at += escapes + 1,
            Some(b'%' | b'&') if escapes == 0 => {
                let mut encoded = None;
                for quote in QUOTES {
                    if input.has_literal(at, quote, at)? {
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

/// The position after the name of an authentication scheme, if the value starts with one.
fn skip_scheme(input: InputText<'_>, at: usize) -> MatchResult<usize> {
    for scheme in SCHEMES {
        if input.has_literal(at, scheme, at)? {
            let after = at + scheme.len();
            let end = after + input.run_while(after, MOST_SPACE, is_space).len();
            input.byte(end, at)?;
            if end > after {
                return Ok(end);
            }
        }
    }
    Ok(at)
}
