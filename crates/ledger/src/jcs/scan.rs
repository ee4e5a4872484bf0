//! Checks in one pass and without a JSON tree that a text is the canonical form of an object, and returns the ranges of
//! its members. A verifier reads millions of entries; parsing and printing each one would take most of its time.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use super::{compare_keys, short_escape, write_double};
use crate::limits::{MAX_DEPTH, MAX_SAFE_INTEGER};

/// Where and why a text is not canonical.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not canonical JSON at byte {at}: {what}")]
pub struct NotCanonical {
    pub at: usize,
    pub what: &'static str,
}

/// One member of the outermost object, as byte ranges of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberSpan {
    /// The key between its quotes, escapes kept.
    pub key: Range<usize>,
    pub value: Range<usize>,
}

impl MemberSpan {
    /// Start of the member: the opening quote of its key.
    pub fn start(&self) -> usize {
        self.key.start - 1
    }
}

/// The members of the object whose canonical form is `text`.
pub fn object(text: &str) -> Result<Vec<MemberSpan>, NotCanonical> {
    // Canonical text has no control characters, inside strings or outside. One separate pass for them is faster than a
    // check at every byte.
    if text.bytes().fold(false, |found, byte| found | (byte < 0x20)) {
        let at = text.bytes().position(|byte| byte < 0x20).unwrap_or(0);
        return Err(NotCanonical { at, what: "a control character" });
    }
    let mut scanner = Scanner { text: text.as_bytes(), at: 0 };
    let mut members = Vec::with_capacity(16);
    scanner.object(MAX_DEPTH, Some(&mut members))?;
    if scanner.at < text.len() {
        return Err(scanner.wrong("text after the end of the object"));
    }
    Ok(members)
}

/// The value of a canonical JSON string, given the text between its quotes.
pub fn unescape(inner: &str) -> Cow<'_, str> {
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    // `inner` passed the scanner, so it is a valid JSON string and this cannot fail.
    serde_json::from_str(&format!("\"{inner}\"")).map_or(Cow::Borrowed(inner), Cow::Owned)
}

/// The range between two quotes.
#[derive(Clone, Copy)]
struct Quoted {
    start: usize,
    end: usize,
    escaped: bool,
}

/// How many bytes precede the next quote or backslash. Most strings end within a few words; longer ones use a
/// vectorized search.
fn plain_length(text: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    /// Words to test before the vectorized search starts.
    const NEAR: usize = 4;
    // Sets the high bit of each byte that is zero; borrows propagate upwards, so the lowest one is correct.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let (words, _) = text.as_chunks::<8>();
    for (i, word) in words.iter().take(NEAR).enumerate() {
        let word = u64::from_le_bytes(*word);
        let special = zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\')));
        if special != 0 {
            return i * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let seen = words.len().min(NEAR) * 8;
    memchr::memchr2(b'"', b'\\', &text[seen..]).map_or(text.len(), |at| seen + at)
}

/// Whether a text such as `0.25` is canonical, without converting it. A double preserves 15 digits, so the text is the
/// shortest one that reads back, and from 10^-6 up it has no exponent.
fn is_short_decimal(text: &[u8]) -> bool {
    let Some(point) = text.iter().position(|&byte| byte == b'.') else { return false };
    let (whole, fraction) = (&text[..point], &text[point + 1..]);
    let is_digits = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let leading_zeros = match whole {
        b"0" => fraction.iter().take_while(|&&digit| digit == b'0').count(),
        [b'0', ..] => return false,
        _ => 0,
    };
    is_digits(whole)
        && is_digits(fraction)
        && fraction.last() != Some(&b'0')
        && leading_zeros <= 5
        && whole.len() + fraction.len() <= 15
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn wrong(&self, what: &'static str) -> NotCanonical {
        NotCanonical { at: self.at, what }
    }

    fn peek(&self) -> u8 {
        // NUL does not occur in canonical text, so it can represent the end.
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn take(&mut self, byte: u8, what: &'static str) -> Result<(), NotCanonical> {
        if self.peek() != byte {
            return Err(self.wrong(what));
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), NotCanonical> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.wrong("an unknown word"));
        }
        self.at += word.len();
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<(), NotCanonical> {
        match self.peek() {
            b'"' => self.string().map(drop),
            b'{' => self.object(depth, None),
            b'[' => self.array(depth),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => Err(self.wrong("a value was expected")),
        }
    }

    fn deeper(&self, depth: usize) -> Result<usize, NotCanonical> {
        depth.checked_sub(1).ok_or_else(|| self.wrong("nested too deep"))
    }

    fn array(&mut self, depth: usize) -> Result<(), NotCanonical> {
        let depth = self.deeper(depth)?;
        self.at += 1;
        if self.peek() == b']' {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth)?;
            if self.peek() != b',' {
                return self.take(b']', "`,` or `]` was expected");
            }
            self.at += 1;
        }
    }

    fn object(
        &mut self,
        depth: usize,
        mut members: Option<&mut Vec<MemberSpan>>,
    ) -> Result<(), NotCanonical> {
        let depth = self.deeper(depth)?;
        self.take(b'{', "`{` was expected")?;
        if self.peek() == b'}' {
            self.at += 1;
            return Ok(());
        }
        let mut previous: Option<Quoted> = None;
        loop {
            let start = self.at;
            let key = self.string()?;
            if previous.is_some_and(|previous| self.compare(&previous, &key) != Ordering::Less) {
                return Err(NotCanonical { at: start, what: "keys are not in strictly rising order" });
            }
            self.take(b':', "`:` was expected")?;
            let value = self.at;
            self.value(depth)?;
            if let Some(members) = &mut members {
                members.push(MemberSpan { key: key.start..key.end, value: value..self.at });
            }
            previous = Some(key);
            if self.peek() != b',' {
                return self.take(b'}', "`,` or `}` was expected");
            }
            self.at += 1;
        }
    }

    fn compare(&self, a: &Quoted, b: &Quoted) -> Ordering {
        let text = |key: &Quoted| std::str::from_utf8(&self.text[key.start..key.end]).unwrap_or_default();
        if a.escaped || b.escaped {
            return compare_keys(&unescape(text(a)), &unescape(text(b)));
        }
        let bytes = self.text[a.start..a.end].iter().zip(&self.text[b.start..b.end]);
        match bytes.clone().find(|(x, y)| x != y) {
            // Fast path: keys almost always differ in an ASCII character first.
            Some((x, y)) if x.is_ascii() || y.is_ascii() => x.cmp(y),
            Some(_) => compare_keys(text(a), text(b)),
            None => (a.end - a.start).cmp(&(b.end - b.start)),
        }
    }

    fn string(&mut self) -> Result<Quoted, NotCanonical> {
        self.take(b'"', "a string was expected")?;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain_length(&self.text[self.at..]);
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(Quoted { start, end: self.at - 1, escaped });
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(self.wrong("a string that does not end")),
            }
        }
    }

    /// Accepts only the escapes that the writer uses: short ones, and lowercase `\u00xx` for other control characters.
    fn escape(&mut self) -> Result<(), NotCanonical> {
        let rest = &self.text[self.at..];
        let length = match rest {
            [b'\\', b'"' | b'\\' | b'b' | b't' | b'n' | b'f' | b'r', ..] => 2,
            [b'\\', b'u', b'0', b'0', high @ (b'0' | b'1'), low @ (b'0'..=b'9' | b'a'..=b'f'), ..] => {
                let low = if low.is_ascii_digit() { low - b'0' } else { low - b'a' + 10 };
                if short_escape((high - b'0') << 4 | low) != 0 {
                    return Err(self.wrong("a character that has a shorter escape"));
                }
                6
            }
            _ => return Err(self.wrong("an escape the canonical form does not use")),
        };
        self.at += length;
        Ok(())
    }

    fn number(&mut self) -> Result<(), NotCanonical> {
        let rest = &self.text[self.at..];
        let end = rest
            .iter()
            .position(|b| !matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e'))
            .unwrap_or(rest.len());
        let token = &rest[..end];
        let digits = token.strip_prefix(b"-").unwrap_or(token);
        let canonical = if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
            digits.len() <= 16
                && (digits[0] != b'0' || token == b"0")
                && digits.iter().fold(0_u64, |n, d| n * 10 + u64::from(d - b'0')) <= MAX_SAFE_INTEGER
        } else if is_short_decimal(digits) {
            true
        } else {
            let double = std::str::from_utf8(token).ok().and_then(|token| token.parse::<f64>().ok());
            let mut printed = Vec::with_capacity(24);
            double.is_some_and(|double| write_double(double, &mut printed).is_ok() && printed == token)
        };
        if !canonical {
            return Err(self.wrong("a number that is not in canonical form or is beyond 2^53-1"));
        }
        self.at += end;
        Ok(())
    }
}
