//! Locates the members of an object in a JSON5 text.
//!
//! The real parser has accepted the text before, so this does not validate: an unexpected form gives `None`, and the text is
//! left unchanged.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::IgnoredAny;
use tribune_constitution::json5;

/// An object in a text.
#[derive(Debug)]
pub(super) struct Object {
    /// Offset of its `}`.
    pub(super) close: usize,
    pub(super) members: Vec<Member>,
    /// Whether a comma follows the last member.
    pub(super) ends_with_comma: bool,
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) key: Range<usize>,
    name: String,
    pub(super) value: Range<usize>,
}

impl Object {
    /// The value of the member of this name.
    pub(super) fn member(&self, name: &str) -> Option<Range<usize>> {
        self.members.iter().find(|member| member.name == name).map(|member| member.value.clone())
    }
}

/// The object that begins at `from` or after the blanks and comments there.
pub(super) fn object(text: &str, from: usize) -> Option<Object> {
    let mut tokens = Tokens { text, at: from };
    let open = tokens.next()?;
    if !tokens.is(&open, "{") {
        return None;
    }
    let (mut members, mut ends_with_comma) = (Vec::new(), false);
    loop {
        let key = tokens.next()?;
        if tokens.is(&key, "}") {
            return Some(Object { close: key.start, members, ends_with_comma });
        }
        let colon = tokens.next()?;
        if !tokens.is(&colon, ":") {
            return None;
        }
        let value = tokens.value()?;
        members.push(Member { name: name(&text[key.clone()])?, key, value });
        let next = tokens.next()?;
        if tokens.is(&next, "}") {
            return Some(Object { close: next.start, members, ends_with_comma: false });
        }
        if !tokens.is(&next, ",") {
            return None;
        }
        ends_with_comma = true;
    }
}

/// The gaps between the tokens of a text: blanks and comments. In a text that is not JSON5, the gaps up to the first error.
pub(crate) fn between(text: &str) -> Vec<Range<usize>> {
    let mut tokens = Tokens { text, at: 0 };
    let mut gaps = Vec::new();
    let mut from = 0;
    while let Some(token) = tokens.next() {
        gaps.push(from..token.start);
        from = token.end;
    }
    gaps.push(from..text.len());
    gaps
}

/// The name that a key stands for, however it is quoted or escaped.
fn name(key: &str) -> Option<String> {
    let members: BTreeMap<String, IgnoredAny> = json5::deserialize(&format!("{{{key}: 0}}")).ok()?;
    members.into_keys().next()
}

/// A tokenizer: punctuation, strings and words, without blanks and comments.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl Tokens<'_> {
    fn is(&self, token: &Range<usize>, what: &str) -> bool {
        &self.text[token.clone()] == what
    }

    fn next(&mut self) -> Option<Range<usize>> {
        self.skip()?;
        let start = self.at;
        let rest = &self.text[start..];
        let first = rest.chars().next()?;
        let length = match first {
            '{' | '}' | '[' | ']' | ':' | ',' => 1,
            '"' | '\'' => string(rest, first)?,
            _ => rest.find(ends_word).unwrap_or(rest.len()),
        };
        self.at = start + length;
        // An empty word would never advance.
        (length > 0).then_some(start..self.at)
    }

    /// The next complete value, including nested ones.
    fn value(&mut self) -> Option<Range<usize>> {
        let first = self.next()?;
        let mut depth = 0_usize;
        let mut token = first.clone();
        loop {
            match &self.text[token.clone()] {
                "{" | "[" => depth += 1,
                "}" | "]" => depth = depth.checked_sub(1)?,
                _ => {}
            }
            if depth == 0 {
                return Some(first.start..self.at);
            }
            token = self.next()?;
        }
    }

    /// Skips blanks and comments.
    fn skip(&mut self) -> Option<()> {
        loop {
            let rest = &self.text[self.at..];
            let blanks = rest.len() - rest.trim_start_matches(is_blank).len();
            let rest = &rest[blanks..];
            let comment = if rest.starts_with("//") {
                rest.find(['\n', '\r', '\u{2028}', '\u{2029}']).unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/")? + 2
            } else {
                0
            };
            self.at += blanks + comment;
            if comment == 0 {
                return Some(());
            }
        }
    }
}

/// Length in bytes of the string that begins the text.
fn string(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, char) in text.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            char if char == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn is_blank(char: char) -> bool {
    char.is_whitespace() || char == '\u{feff}'
}

fn ends_word(char: char) -> bool {
    is_blank(char) || matches!(char, '{' | '}' | '[' | ']' | ':' | ',' | '"' | '\'' | '/')
}
