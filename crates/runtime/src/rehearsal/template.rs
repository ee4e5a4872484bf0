//! Text with `$input`, `$answer` and `$result` in it.

use std::sync::Arc;

use super::limits::MAX_TEXT_BYTES;
use super::text::cut_bytes;

/// A text as its writer wrote it, with the places to fill in found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Value(Name),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Input,
    Answer,
    Result,
}

/// What the names stand for by now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    input: Option<Arc<str>>,
    answer: Option<Arc<str>>,
    result: Option<Arc<str>>,
}

impl Template {
    pub(super) fn parse(text: &str) -> Self {
        let mut parts = Vec::new();
        let (mut plain, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('$') {
            plain.push_str(&rest[..at]);
            let behind = &rest[at + 1..];
            let end = behind.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(behind.len());
            let (word, after) = behind.split_at(end);
            if let Some(name) = Name::parse(word) {
                parts.extend(text_part(&mut plain));
                parts.push(Part::Value(name));
            } else {
                plain.push('$');
                plain.push_str(word);
            }
            rest = after;
        }
        plain.push_str(rest);
        parts.extend(text_part(&mut plain));
        Self(parts)
    }

    /// The text with every name filled in that stands for something; the others stay as they are written. A value is
    /// never searched for names itself.
    pub(super) fn fill(&self, known: &Known) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Value(name) => text.push_str(known.value(*name).unwrap_or(name.written())),
            }
            if text.len() > MAX_TEXT_BYTES {
                break;
            }
        }
        cut_bytes(text, MAX_TEXT_BYTES)
    }
}

fn text_part(plain: &mut String) -> Option<Part> {
    (!plain.is_empty()).then(|| Part::Text(std::mem::take(plain).into()))
}

impl Name {
    fn parse(word: &str) -> Option<Self> {
        [Self::Input, Self::Answer, Self::Result].into_iter().find(|name| &name.written()[1..] == word)
    }

    const fn written(self) -> &'static str {
        match self {
            Self::Input => "$input",
            Self::Answer => "$answer",
            Self::Result => "$result",
        }
    }
}

impl Known {
    pub(super) fn input(&mut self, text: String) {
        self.input = Some(cut_bytes(text, MAX_TEXT_BYTES).into());
    }

    pub(super) fn answer(&mut self, text: String) {
        self.answer = Some(cut_bytes(text, MAX_TEXT_BYTES).into());
    }

    pub(super) fn result(&mut self, text: String) {
        self.result = Some(cut_bytes(text, MAX_TEXT_BYTES).into());
    }

    fn value(&self, name: Name) -> Option<&str> {
        match name {
            Name::Input => self.input.as_deref(),
            Name::Answer => self.answer.as_deref(),
            Name::Result => self.result.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_in_what_is_known_and_leaves_the_rest() {
        let mut known = Known::default();
        known.input("$result".into());
        known.result("42".into());
        let fill = |text: &str| Template::parse(text).fill(&known);
        assert_eq!(fill("$input, $result. ($result)"), "$result, 42. (42)");
        assert_eq!(fill("$answer costs $5 or $resulting $$ $"), "$answer costs $5 or $resulting $$ $");
        assert_eq!(fill("$$result"), "$42");
        assert_eq!(fill("$resultä"), "$resultä");
    }

    #[test]
    fn a_filled_text_is_bounded() {
        let mut known = Known::default();
        known.result("x".repeat(10_000_000));
        let text = Template::parse(&"$result ".repeat(8_000)).fill(&known);
        assert!(text.len() <= MAX_TEXT_BYTES && text.ends_with('…'));
    }
}
