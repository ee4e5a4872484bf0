//! What is said to a program, so that it is words to it and nothing else. Programs look for commands in what they are told: a
//! `/` at its beginning, and names of files behind an `@`, which they would read unasked.

use std::borrow::Cow;

/// Stands between a sign and what it would mean. It has no width, and models read over it.
const JOINER: char = '\u{2060}';

/// What in a text is to mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unmeant {
    /// Names of files behind an `@`.
    pub(crate) mentions: bool,
    /// A command at the beginning.
    pub(crate) commands: bool,
}

/// The command that a text is to programs which look for one.
pub(crate) fn command(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix('/')?.split_whitespace().next()
}

/// The text with the signs taken apart.
pub(crate) fn plain(text: &str, unmeant: Unmeant) -> Cow<'_, str> {
    let is_command = unmeant.commands && text.trim_start().starts_with(['/', '!', '#']);
    let mentions = unmeant.mentions && text.contains('@');
    if !is_command && !mentions {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    if is_command {
        plain.push(JOINER);
    }
    // An address of mail has a word before its `@`, and stays what it is.
    let mut before = ' ';
    for sign in text.chars() {
        plain.push(sign);
        if sign == '@' && unmeant.mentions && !before.is_alphanumeric() {
            plain.push(JOINER);
        }
        before = sign;
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_words() {
        let all = Unmeant { mentions: true, commands: true };
        assert_eq!(plain("look at @private.txt", all), "look at @\u{2060}private.txt");
        assert_eq!(plain("me@example.org", all), "me@example.org");
        assert_eq!(plain("(@\"a b\")", all), "(@\u{2060}\"a b\")");
        assert_eq!(plain(" /pwn now", all), "\u{2060} /pwn now");
        assert_eq!(plain("a/b and #1", all), "a/b and #1");
        let owners = Unmeant { mentions: true, commands: false };
        assert_eq!(plain("/compact", owners), "/compact");
        assert_eq!(command(" /compact now"), Some("compact"));
        assert_eq!((command("/"), command("compact"), command("/ x")), (None, None, Some("x")));
        assert_eq!(plain("@x", Unmeant { mentions: false, commands: false }), "@x");
    }
}
