//! What of a provider's words may be shown.

use super::key::ApiKey;
use super::limits::MAX_SHOWN_CHARS;

/// Characters that are kept of a word for programs.
const MAX_WORD_CHARS: usize = 40;

/// A provider's sentence on one line: no control characters, no markup, no key, and not more than a person reads. Empty
/// if nothing is left to show.
pub(super) fn sentence(text: &str, key: Option<&ApiKey>) -> String {
    let lower = text.to_ascii_lowercase();
    if ["<html", "<!doctype", "<body", "<head"].iter().any(|tag| lower.contains(tag)) {
        return String::new();
    }
    // Control characters go first: with them gone, no key is left in pieces that fit together.
    let line: String = text
        .chars()
        .map(|char| if char.is_whitespace() { ' ' } else { char })
        .filter(|char| !char.is_control() && !is_invisible(*char))
        .collect();
    let line = match key {
        Some(key) => key.blot_out(&line),
        None => line,
    };
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    // The text ends up in the middle of a sentence of ours.
    let line = line.trim_end_matches(['.', ':', ' ']);
    match line.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// A provider's word for programs, such as a reason to stop.
pub(super) fn word(text: &str) -> String {
    text.chars()
        .filter(|char| char.is_ascii_alphanumeric() || "_-".contains(*char))
        .take(MAX_WORD_CHARS)
        .collect()
}

/// Characters that change how a line is shown without being seen.
const fn is_invisible(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_clean_line() {
        let key = ApiKey::new("sk-secret").unwrap();
        let said = |text: &str| sentence(text, Some(&key));
        assert_eq!(said("a\r\n\tb\u{1b}[31m  c.\n"), "a b[31m c");
        assert_eq!(said("<!DOCTYPE html><title>502</title>"), "");
        assert_eq!(said("the key sk-secret is wrong"), "the key [key] is wrong");
        assert_eq!(said("sk-\u{0}sec\u{200b}ret"), "[key]");
        assert_eq!(said(&"ä".repeat(500)).chars().count(), 301);
        assert_eq!(word("pause_turn\n<b>"), "pause_turnb");
    }

    #[test]
    fn a_key_that_the_end_would_cut_is_gone_too() {
        let key = ApiKey::new("sk-secret").unwrap();
        let shown = sentence(&format!("{} sk-secret", "x".repeat(295)), Some(&key));
        assert!(!shown.contains("sk-s"), "{shown}");
    }

    #[test]
    fn a_key_that_comes_apart_at_white_space_is_gone_too() {
        let key = ApiKey::new("sk-secret").unwrap();
        assert!(!sentence("sk-sec\nret", Some(&key)).contains("sk-secret"));
    }
}
