//! Where a value stands, as a whole, in a text of the owner.

use std::ops::Range;

use super::ArgumentUse;
use super::prohibition::prohibited;
use super::typed::{CalendarDate, Decimal};

/// Characters below which a word is too common to prove anything.
const MIN_CHARS: usize = 4;

/// Opening and closing quotes.
const QUOTES: [(char, char); 8] = [
    ('"', '"'),
    ('\'', '\''),
    ('`', '`'),
    ('\u{201C}', '\u{201D}'),
    ('\u{201E}', '\u{201C}'),
    ('\u{2018}', '\u{2019}'),
    ('\u{201A}', '\u{2018}'),
    ('\u{AB}', '\u{BB}'),
];

/// A single value of the arguments.
#[derive(Debug, Clone)]
pub(super) enum Scalar<'v> {
    Text(&'v str),
    Number(Decimal),
    Bool(bool),
}

impl Scalar<'_> {
    /// Whether the value can stand in a text at all. Cheap, and never false for one that does.
    pub(super) fn could_stand_in(&self, text: &str) -> bool {
        match self {
            Self::Text(value) => text.contains(value.trim()) || CalendarDate::parse(value).is_some(),
            Self::Number(_) | Self::Bool(_) => true,
        }
    }
}

/// A text of the owner, taken apart.
pub(super) struct Statement<'t> {
    text: &'t str,
    /// What stands alone between quotes, on a line, or in a fence.
    quoted: Vec<Range<usize>>,
    apart: Vec<Range<usize>>,
    prohibited: Vec<Range<usize>>,
}

impl<'t> Statement<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let quoted = quoted(text);
        let prohibited = prohibited(text, &quoted);
        Self { text, quoted, apart: lines(text).chain(fenced(text)).collect(), prohibited }
    }

    /// The places where the value stands as the owner's wish.
    pub(super) fn find(&self, value: &Scalar<'_>, taken_as: ArgumentUse) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = match value {
            Scalar::Bool(flag) => {
                self.among(&self.quoted, |text| text == if *flag { "true" } else { "false" })
            }
            Scalar::Number(number) => {
                self.among(&self.quoted, |text| Decimal::parse(text).as_ref() == Some(number))
            }
            Scalar::Text(text) => self.find_text(text, taken_as),
        };
        let is_wish = |range: &Range<usize>| !self.prohibited.iter().any(|not| overlap(not, range));
        found.retain(is_wish);
        found
    }

    fn find_text(&self, value: &str, taken_as: ArgumentUse) -> Vec<Range<usize>> {
        let date = CalendarDate::parse(value);
        let is_value = |text: &str| text == value || (date.is_some() && CalendarDate::parse(text) == date);
        let mut found = self.among(&self.quoted, is_value);
        let is_number = value.chars().all(|c| c.is_numeric() || "+-.,:/eE".contains(c));
        if date.is_none() && (is_number || value.chars().count() < MIN_CHARS) {
            return found;
        }
        found.extend(self.among(&self.apart, |text| text == value.trim() || is_value(text)));
        match (taken_as, date) {
            (ArgumentUse::Instructions, _) => {}
            (ArgumentUse::Names, Some(date)) => {
                let dates = CalendarDate::all_in(self.text).into_iter();
                found.extend(dates.filter(|(_, other)| *other == date).map(|(range, _)| range));
            }
            (ArgumentUse::Names, None) if is_prose(value) => {}
            (ArgumentUse::Names, None) => found.extend(tokens(value, self.text)),
        }
        found
    }

    fn among(&self, ranges: &[Range<usize>], is_value: impl Fn(&str) -> bool) -> Vec<Range<usize>> {
        ranges.iter().filter(|range| is_value(&self.text[(*range).clone()])).cloned().collect()
    }
}

pub(super) fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Whether a value could be one or several words of any sentence: nothing shows that it is a name.
fn is_prose(value: &str) -> bool {
    value.contains(char::is_whitespace) || value.chars().all(char::is_alphabetic)
}

/// Where a value is a whole token: between whitespace, quotes and brackets, followed by at most one punctuation mark.
fn tokens(value: &str, text: &str) -> Vec<Range<usize>> {
    let is_token = |at: usize| {
        let (before, after) = (&text[..at], &text[at + value.len()..]);
        let begins = before.chars().next_back().is_none_or(delimits);
        let rest = after.strip_prefix(['.', ',', ';', ':', '!', '?']).unwrap_or(after);
        begins
            && (after.chars().next().is_none_or(delimits)
                || rest.chars().next().is_none_or(char::is_whitespace))
    };
    let places = text.match_indices(value).map(|(at, _)| at).filter(|at| is_token(*at));
    places.map(|at| at..at + value.len()).collect()
}

pub(super) fn delimits(c: char) -> bool {
    c.is_whitespace()
        || "\"'`()[]{}<>\u{201C}\u{201D}\u{201E}\u{2018}\u{2019}\u{201A}\u{AB}\u{BB}".contains(c)
}

/// What stands between quotes or backticks on one line.
fn quoted(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        for (open, close) in QUOTES {
            let spans = quoted_by(line.trim_end_matches('\n'), open, close);
            found.extend(spans.into_iter().map(|span| start + span.start..start + span.end));
        }
        start += line.len();
    }
    found
}

/// What stands between this pair of marks. A mark between two letters is an apostrophe, and so is one at the end of a
/// word that nothing opened.
fn quoted_by(line: &str, open: char, close: char) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut opened: Option<usize> = None;
    for (at, mark) in line.char_indices().filter(|(_, c)| *c == open || *c == close) {
        let before = line[..at].chars().next_back();
        let after = line[at + mark.len_utf8()..].chars().next();
        let (ends_word, begins_word) =
            (before.is_some_and(char::is_alphanumeric), after.is_some_and(char::is_alphanumeric));
        if ends_word && begins_word {
            continue;
        }
        match opened {
            Some(from) if mark == close && !begins_word => {
                spans.push(from..at);
                opened = None;
            }
            _ if mark == open && !ends_word => opened = Some(at + mark.len_utf8()),
            _ => {}
        }
    }
    spans
}

/// The lines of a text and the whole of it, without the spaces around them.
fn lines(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    let lines = text.split_inclusive('\n').map(move |line| {
        let from = start;
        start += line.len();
        trimmed(text, from..start)
    });
    lines.chain([trimmed(text, 0..text.len())])
}

/// The contents of the fenced blocks, without the spaces around them.
pub(super) fn fenced(text: &str) -> Vec<Range<usize>> {
    let fences: Vec<usize> = text.match_indices("```").map(|(at, _)| at).collect();
    let blocks = fences.chunks(2).map(|pair| {
        let (open, close) = (pair[0] + 3, pair.get(1).copied().unwrap_or(text.len()));
        // The rest of the first line is the language.
        let from = text[open..close].find('\n').map_or(open, |line| open + line + 1);
        trimmed(text, from..close)
    });
    blocks.collect()
}

fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let inner = &text[range.clone()];
    let start = range.start + inner.len() - inner.trim_start().len();
    start..start + inner.trim().len()
}
