//! Text with `$input`, `$answer` and `$result` in it.

use std::sync::Arc;

use super::limits::MAX_TEXT_BYTES;
use super::text::cut_bytes;

/// A text as written, with the places to fill in found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextTemplate(Vec<TextPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TextPart {
    Text(Box<str>),
    Value(TextName),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextName {
    Input,
    Answer,
    Result,
}

/// The values of the names so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TemplateValues {
    input: Option<Arc<str>>,
    answer: Option<Arc<str>>,
    result: Option<Arc<str>>,
}

impl TextTemplate {
    pub(super) fn parse(text: &str) -> Self {
        let mut parts = Vec::new();
        let (mut plain, mut rest) = (String::new(), text);
        while let Some(at) = rest.find('$') {
            plain.push_str(&rest[..at]);
            let behind = &rest[at + 1..];
            let end = behind.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(behind.len());
            let (word, after) = behind.split_at(end);
            if let Some(name) = TextName::parse(word) {
                parts.extend(text_part(&mut plain));
                parts.push(TextPart::Value(name));
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

    /// The text with every name filled in that has a value; the others stay as written. A value is never searched for
    /// names.
    pub(super) fn fill(&self, known: &TemplateValues) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                TextPart::Text(plain) => text.push_str(plain),
                TextPart::Value(name) => text.push_str(known.value(*name).unwrap_or(name.written())),
            }
            if text.len() > MAX_TEXT_BYTES {
                break;
            }
        }
        cut_bytes(text, MAX_TEXT_BYTES)
    }
}

fn text_part(plain: &mut String) -> Option<TextPart> {
    (!plain.is_empty()).then(|| TextPart::Text(std::mem::take(plain).into()))
}

impl TextName {
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

impl TemplateValues {
    pub(super) fn input(&mut self, text: String) {
        self.input = Some(cut_bytes(text, MAX_TEXT_BYTES).into());
    }

    pub(super) fn answer(&mut self, text: String) {
        self.answer = Some(cut_bytes(text, MAX_TEXT_BYTES).into());
    }

    pub(super) fn result(&mut self, text: String) {
        self.result = Some(cut_bytes(text, MAX_TEXT_BYTES).into());
    }

    fn value(&self, name: TextName) -> Option<&str> {
        match name {
            TextName::Input => self.input.as_deref(),
            TextName::Answer => self.answer.as_deref(),
            TextName::Result => self.result.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_filled_in_and_others_stay() {
        let mut known = TemplateValues::default();
        known.input("$result".into());
        known.result("42".into());
        let fill = |text: &str| TextTemplate::parse(text).fill(&known);
        assert_eq!(fill("$input, $result. ($result)"), "$result, 42. (42)");
        assert_eq!(fill("$answer costs $5 or $resulting $$ $"), "$answer costs $5 or $resulting $$ $");
        assert_eq!(fill("$$result"), "$42");
        assert_eq!(fill("$resultä"), "$resultä");
    }

    #[test]
    fn a_filled_text_is_bounded() {
        let mut known = TemplateValues::default();
        known.result("x".repeat(10_000_000));
        let text = TextTemplate::parse(&"$result ".repeat(8_000)).fill(&known);
        assert!(text.len() <= MAX_TEXT_BYTES && text.ends_with('…'));
    }
}
