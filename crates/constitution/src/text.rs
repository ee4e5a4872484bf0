//! Foreign text in messages: which characters end a line, and how a text is cut to fit into a sentence.

/// Characters of a foreign text that a message repeats.
const MAX_CHARS: usize = 64;

/// Whether some reader takes this character for the end of a line, or for none at all: line and paragraph
/// separators and every control character.
pub(crate) fn breaks_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// The text as a message repeats it: short, and on one line.
pub(crate) fn sanitize(text: &str) -> String {
    let mut chars = text.chars();
    let mut short: String =
        chars.by_ref().take(MAX_CHARS).map(|c| if breaks_line(c) { '\u{FFFD}' } else { c }).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}
