//! Positions in a rule file, for messages.

use std::collections::BTreeMap;

/// A position in a text. Line and column count from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourcePosition {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// The position of a byte offset.
pub(super) fn position(text: &str, offset: usize) -> SourcePosition {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    SourcePosition { line, column }
}

/// The offset of each annotation of a rule, by name: each `@name` before the rule's effect that is not inside a
/// string or comment.
pub(super) fn annotations(rule: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut at = 0;
    while let Some(c) = rest_of(rule, at).chars().next() {
        let rest = rest_of(rule, at);
        at += match c {
            '"' => string_end(rest),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '@' => {
                let name: String =
                    rest[1..].trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                found.insert(name, at);
                1
            }
            // The parenthesis of an annotation follows its name; a parenthesis after another word opens the scope.
            '{' | ';' => break,
            c => c.len_utf8(),
        };
    }
    found
}

fn rest_of(text: &str, at: usize) -> &str {
    text.get(at..).unwrap_or_default()
}

/// The length in bytes of the string at the beginning of `text`, with both quotes.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_annotations_are_found() {
        let rule = "@id(\"a @b\") // @c\n@ reason (\"\\\"@d\")\nforbid(principal, action, resource)\nwhen { context.name == \"@e\" };";
        let found = annotations(rule);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["id", "reason"]);
        assert_eq!(position(rule, found["reason"]), SourcePosition { line: 2, column: 1 });
        assert_eq!(position("ü@", 2), SourcePosition { line: 1, column: 2 });
        assert!(annotations("\"open").is_empty());
    }
}
