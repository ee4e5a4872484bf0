//! The footer of the law in a prompt, and the text that could be mistaken for it.

use crate::text::breaks_line;

/// The prefix of the last line of the law in a prompt. No other line begins with it.
pub const FOOTER: &str = "constitution_hash:";

/// The first line (from 1) that could be read as the footer.
pub(crate) fn line_like_footer(text: &str) -> Option<usize> {
    let like = |line: &str| {
        line.split(|c| breaks_line(c) && c != '\t').any(|piece| {
            let piece = piece.trim_start_matches(|c: char| c.is_whitespace() || c.is_control());
            piece.get(..FOOTER.len()).is_some_and(|start| start.eq_ignore_ascii_case(FOOTER))
        })
    };
    text.lines().position(like).map(|index| index + 1)
}
