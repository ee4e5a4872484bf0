//! Escapes text for a program, so that it is content and nothing else. CLI agents look for commands in their prompts: a
//! `/` at the beginning, and file names behind an `@`, which they would read without asking.

use std::borrow::Cow;

/// Breaks a special sign. It has no width, and models ignore it.
const JOINER: char = '\u{2060}';

/// What is to be escaped in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EscapeRules {
    /// File names behind an `@`.
    pub(crate) mentions: bool,
    /// A command at the beginning.
    pub(crate) commands: bool,
}

/// The command that a CLI agent would see in the text.
pub(crate) fn command_of(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix('/')?.split_whitespace().next()
}

/// The text with its special signs escaped.
pub(crate) fn escape(text: &str, rules: EscapeRules) -> Cow<'_, str> {
    let is_command = rules.commands && text.trim_start().starts_with(['/', '!', '#']);
    let mentions = rules.mentions && text.contains('@');
    if !is_command && !mentions {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    if is_command {
        escaped.push(JOINER);
    }
    // An e-mail address has a letter or digit before its `@`, and stays as it is.
    let mut before = ' ';
    for sign in text.chars() {
        escaped.push(sign);
        if sign == '@' && rules.mentions && !before.is_alphanumeric() {
            escaped.push(JOINER);
        }
        before = sign;
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_signs_are_escaped() {
        let all = EscapeRules { mentions: true, commands: true };
        assert_eq!(escape("look at @private.txt", all), "look at @\u{2060}private.txt");
        assert_eq!(escape("me@example.org", all), "me@example.org");
        assert_eq!(escape("(@\"a b\")", all), "(@\u{2060}\"a b\")");
        assert_eq!(escape(" /pwn now", all), "\u{2060} /pwn now");
        assert_eq!(escape("a/b and #1", all), "a/b and #1");
        let owners = EscapeRules { mentions: true, commands: false };
        assert_eq!(escape("/compact", owners), "/compact");
        assert_eq!(command_of(" /compact now"), Some("compact"));
        assert_eq!((command_of("/"), command_of("compact"), command_of("/ x")), (None, None, Some("x")));
        assert_eq!(escape("@x", EscapeRules { mentions: false, commands: false }), "@x");
    }
}
