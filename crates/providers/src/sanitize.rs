//! Sanitizes text from a provider before it is shown.

use super::key::ApiKey;
use super::limits::MAX_SHOWN_CHARS;

/// Characters that are kept of a code such as a stop reason.
const MAX_WORD_CHARS: usize = 40;

/// A provider's message as one line of at most [`MAX_SHOWN_CHARS`] characters, without control characters and without
/// the key. Empty for an HTML page, and if nothing is left.
pub(super) fn sentence(text: &str, key: Option<&ApiKey>) -> String {
    let lower = text.to_ascii_lowercase();
    if ["<html", "<!doctype", "<body", "<head"].iter().any(|tag| lower.contains(tag)) {
        return String::new();
    }
    // Control characters are removed before the key is masked, because removing them could join the parts of a key.
    let line: String = text
        .chars()
        .map(|char| if char.is_whitespace() { ' ' } else { char })
        .filter(|char| !char.is_control() && !is_invisible(*char))
        .collect();
    let line = match key {
        Some(key) => key.mask_in(&line),
        None => line,
    };
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    // The text is inserted into a sentence, so it must not end one.
    let line = line.trim_end_matches(['.', ':', ' ']);
    match line.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// A provider's code, such as a stop reason, reduced to safe characters.
pub(super) fn word(text: &str) -> String {
    text.chars()
        .filter(|char| char.is_ascii_alphanumeric() || "_-".contains(*char))
        .take(MAX_WORD_CHARS)
        .collect()
}

/// Zero-width and bidirectional control characters.
const fn is_invisible(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_is_one_line_without_control_characters_and_key() {
        let key = ApiKey::new("sk-secret").unwrap();
        let shown = |text: &str| sentence(text, Some(&key));
        assert_eq!(shown("a\r\n\tb\u{1b}[31m  c.\n"), "a b[31m c");
        assert_eq!(shown("<!DOCTYPE html><title>502</title>"), "");
        assert_eq!(shown("the key sk-secret is wrong"), "the key [key] is wrong");
        assert_eq!(shown("sk-\u{0}sec\u{200b}ret"), "[key]");
        assert_eq!(shown(&"ä".repeat(500)).chars().count(), 301);
        assert_eq!(word("pause_turn\n<b>"), "pause_turnb");
    }

    #[test]
    fn key_across_the_length_limit_is_masked() {
        let key = ApiKey::new("sk-secret").unwrap();
        let shown = sentence(&format!("{} sk-secret", "x".repeat(295)), Some(&key));
        assert!(!shown.contains("sk-s"), "{shown}");
    }

    #[test]
    fn key_split_by_white_space_is_not_joined() {
        let key = ApiKey::new("sk-secret").unwrap();
        assert!(!sentence("sk-sec\nret", Some(&key)).contains("sk-secret"));
    }
}
