//! Cutting text: to a length, and into words as a model would stream them.

/// The text, or as much of it as fits, ending in `…`.
pub(super) fn cut_bytes(mut text: String, most: usize) -> String {
    const MARK: char = '…';
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(MARK.len_utf8())));
        text.push(MARK);
    }
    text
}

/// The text, or its first characters, ending in `…`.
pub(super) fn cut_chars(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The text in pieces of so many words each. Put together again they are the text.
pub(super) fn word_groups(text: &str, words: usize) -> Vec<&str> {
    let mut groups = Vec::new();
    let (mut from, mut seen, mut in_word) = (0, 0, false);
    for (at, character) in text.char_indices() {
        let begins = !in_word && !character.is_whitespace();
        in_word = !character.is_whitespace();
        if !begins {
            continue;
        }
        if seen == words {
            groups.push(&text[from..at]);
            (from, seen) = (at, 0);
        }
        seen += 1;
    }
    if from < text.len() {
        groups.push(&text[from..]);
    }
    groups
}

/// The text in pieces of about so many bytes, none of which cuts a character.
pub(super) fn pieces(mut text: &str, bytes: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let (piece, rest) = text.split_at(text.ceil_char_boundary(bytes.max(1)));
        pieces.push(piece);
        text = rest;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_between_characters() {
        assert_eq!(cut_bytes("äöü".into(), 6), "äöü");
        assert_eq!(cut_bytes("äöüä".into(), 7), "äö…");
        assert_eq!(cut_bytes("abcd".into(), 1), "…");
        assert_eq!(cut_chars("äöü", 3), "äöü");
        assert_eq!(cut_chars("äöüä", 3), "äöü…");
    }

    #[test]
    fn groups_put_together_are_the_text() {
        assert_eq!(word_groups("one two  three\nfour", 2), ["one two  ", "three\nfour"]);
        assert_eq!(word_groups("  one two", 1), ["  one ", "two"]);
        assert!(word_groups("", 1).is_empty());
        assert_eq!(word_groups("  ", 3), ["  "]);
        assert_eq!(pieces("aäöb", 2), ["aä", "ö", "b"]);
    }
}
