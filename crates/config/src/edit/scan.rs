//! Where the members of an object are in a JSON5 text.
//!
//! The text was read by the real reader before, so nothing is checked here: what does not look as expected gives `None`, and
//! the text is left alone.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::IgnoredAny;

/// An object in a text.
#[derive(Debug)]
pub(super) struct Object {
    /// Where its `}` is.
    pub(super) close: usize,
    pub(super) members: Vec<Member>,
    /// Whether a comma stands behind the last member.
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

/// The object that begins at or behind a place.
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
        let behind = tokens.next()?;
        if tokens.is(&behind, "}") {
            return Some(Object { close: behind.start, members, ends_with_comma: false });
        }
        if !tokens.is(&behind, ",") {
            return None;
        }
        ends_with_comma = true;
    }
}

/// What stands between the tokens of a text: blanks and comments. Of a text that is no JSON5, as far as it is.
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

/// What a key says, whichever way it is written.
fn name(key: &str) -> Option<String> {
    let members: BTreeMap<String, IgnoredAny> = json5::from_str(&format!("{{{key}: 0}}")).ok()?;
    members.into_keys().next()
}

/// Punctuation, strings and words, without blanks and comments.
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
        // A word that has no length would be found for ever.
        (length > 0).then_some(start..self.at)
    }

    /// A whole value, whatever is in it.
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

    /// Goes past blanks and comments.
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

/// Bytes of the string at the beginning of a text.
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
