//! Checks, in one pass and without building anything, that a text is the canonical form of an object, and says where
//! the object's own members stand. A verifier reads millions of entries; parsing and printing each again would take
//! most of its time.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use super::{compare_keys, plain_prefix, short_escape, write_double};
use crate::limits::{MAX_DEPTH, MAX_SAFE_INTEGER};

/// Where and why a text stops being canonical.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not canonical JSON at byte {at}: {what}")]
pub struct NotCanonical {
    pub at: usize,
    pub what: &'static str,
}

/// One member of the outermost object, as byte ranges of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The key between its quotes, escapes kept.
    pub key: Range<usize>,
    pub value: Range<usize>,
}

impl Member {
    /// Where the member begins: the opening quote of its key.
    pub fn start(&self) -> usize {
        self.key.start - 1
    }
}

/// The members of the object that `text` is the canonical form of.
pub fn object(text: &str) -> Result<Vec<Member>, NotCanonical> {
    let mut scanner = Scanner { text: text.as_bytes(), at: 0 };
    let mut members = Vec::with_capacity(16);
    scanner.object(MAX_DEPTH, Some(&mut members))?;
    if scanner.at < text.len() {
        return Err(scanner.wrong("text after the end of the object"));
    }
    Ok(members)
}

/// The text that a canonical JSON string stands for, given what is between its quotes.
pub fn unescape(inner: &str) -> Cow<'_, str> {
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    // `inner` passed the scanner, so it is a valid JSON string and this cannot fail.
    serde_json::from_str(&format!("\"{inner}\"")).map_or(Cow::Borrowed(inner), Cow::Owned)
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
        // NUL never stands in canonical text, so it can mean the end.
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

    fn object(&mut self, depth: usize, mut members: Option<&mut Vec<Member>>) -> Result<(), NotCanonical> {
        let depth = self.deeper(depth)?;
        self.take(b'{', "`{` was expected")?;
        if self.peek() == b'}' {
            self.at += 1;
            return Ok(());
        }
        let mut previous: Option<Range<usize>> = None;
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
                members.push(Member { key: key.clone(), value: value..self.at });
            }
            previous = Some(key);
            if self.peek() != b',' {
                return self.take(b'}', "`,` or `}` was expected");
            }
            self.at += 1;
        }
    }

    fn compare(&self, a: &Range<usize>, b: &Range<usize>) -> Ordering {
        let (a, b) = (&self.text[a.clone()], &self.text[b.clone()]);
        // Keys nearly always differ in a plain character, and then nothing else matters.
        if let Some((x, y)) = a.iter().zip(b).find(|(x, y)| x != y)
            && x.is_ascii_alphanumeric()
            && y.is_ascii_alphanumeric()
            && !a.contains(&b'\\')
        {
            return x.cmp(y);
        }
        let text = |key| std::str::from_utf8(key).unwrap_or_default();
        compare_keys(&unescape(text(a)), &unescape(text(b)))
    }

    /// A string; returns what is between its quotes.
    fn string(&mut self) -> Result<Range<usize>, NotCanonical> {
        self.take(b'"', "a string was expected")?;
        let start = self.at;
        loop {
            self.at += plain_prefix(&self.text[self.at..]);
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(start..self.at - 1);
                }
                b'\\' => self.escape()?,
                _ => return Err(self.wrong("a string that does not end, or a bare control character")),
            }
        }
    }

    /// Only the escapes the writer would use: short ones, and `\u00xx` in lowercase for other control characters.
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
