//! The words of a pattern, and the words that a wildcard matches.

use super::{Redirection, ShellWord, SimpleCommand, Structure, program_class};

/// What a word of a command must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatternWord {
    /// Exactly this word.
    Literal(String),
    /// `*`: one operand.
    Any,
    /// `dir/*`: one operand below this directory, which ends with a slash.
    Below(String),
    /// `**`, at the end: any number of operands.
    Rest,
}

/// The meaning of a colon in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colon {
    /// Part of a name: `rev:path`, `a::b`.
    Name,
    /// The end of a host name: `host:path`, `host:port`.
    Machine,
}

/// Whether the words, the program first, match the pattern.
pub(super) fn matches(slots: &[PatternWord], words: &[&str]) -> bool {
    let Some((program, rest)) = words.split_first() else { return false };
    each_matches(slots, words, program_class::colon(program, rest))
}

fn each_matches(slots: &[PatternWord], words: &[&str], colon: Colon) -> bool {
    match (slots.split_first(), words.split_first()) {
        (None, None) => true,
        (Some((PatternWord::Rest, _)), _) => words.iter().all(|word| is_operand(word, colon)),
        (Some((slot, slots)), Some((word, words))) => {
            slot.allows(word, colon) && each_matches(slots, words, colon)
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

impl PatternWord {
    /// The word, if it is literal.
    pub(super) fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(word) => Some(word),
            Self::Any | Self::Below(_) | Self::Rest => None,
        }
    }

    fn allows(&self, word: &str, colon: Colon) -> bool {
        match self {
            Self::Literal(literal) => literal == word,
            Self::Any | Self::Rest => is_operand(word, colon),
            Self::Below(directory) => {
                word.strip_prefix(directory.as_str()).is_some_and(|name| is_operand(name, colon))
            }
        }
    }
}

/// Whether a wildcard matches the word: a name, a relative path, a revision or a number. Not an option, not a
/// setting, not an address, not a path that leads out of the directory.
pub(super) fn is_operand(word: &str, colon: Colon) -> bool {
    let starts = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let goes_on = |c: char| starts(c) || matches!(c, '-' | '/' | ',' | ':' | '~' | '%' | '+' | '@');
    word.starts_with(starts)
        && word.chars().all(goes_on)
        && word.split(['/', ':', ',']).all(|part| part != "..")
        && (colon == Colon::Name || !word.contains(':'))
        // `https://x`, `host:/path`, and git's transports that run a command.
        && !word.contains(":/")
        && !word.starts_with("ext::")
        && !word.starts_with("fd::")
}

/// The canonical form of a plain line: single spaces, and quotes only where they are needed.
pub(super) fn rendered_line(commands: &[SimpleCommand]) -> String {
    let mut line = String::new();
    for (index, simple) in commands.iter().enumerate() {
        if index > 0 {
            line.push_str(match simple.joined {
                Some(Structure::And) => " && ",
                Some(Structure::Pipe) => " | ",
                _ => " ; ",
            });
        }
        line.push_str(&rendered_words(&simple.words));
        for redirection in &simple.redirections {
            line.push(' ');
            line.push_str(rendered_redirection(redirection));
        }
    }
    line
}

pub(super) fn rendered_words(words: &[ShellWord]) -> String {
    let rendered = |(index, word): (usize, &ShellWord)| rendered_word(&word.text, index == 0);
    words.iter().enumerate().map(rendered).collect::<Vec<_>>().join(" ")
}

/// A word that a shell and [`super::CommandGrant::parse`] read as exactly this text. The first word is quoted if it would
/// be a keyword or an assignment.
fn rendered_word(text: &str, first: bool) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-./,:+@%".contains(c) || (c == '=' && !first);
    let keyword = first && text.chars().all(|c| c.is_ascii_lowercase()) && is_keyword(text);
    if !text.is_empty() && text.chars().all(bare) && !keyword {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn is_keyword(text: &str) -> bool {
    const KEYWORDS: [&str; 17] = [
        "if", "then", "elif", "else", "fi", "for", "select", "while", "until", "do", "done", "case", "esac",
        "in", "function", "coproc", "time",
    ];
    KEYWORDS.contains(&text)
}

/// Only harmless redirections are part of a plain line.
fn rendered_redirection(redirection: &Redirection) -> &'static str {
    match (redirection.descriptor, redirection.operator) {
        (Some(_), ">&") => "2>&1",
        (Some(_), _) => "2>/dev/null",
        (None, _) => ">/dev/null",
    }
}
