//! Truncation of the texts of calls.

/// Largest size of a tool's result in bytes: about what a model can still use.
pub const RESULT_BYTES: usize = 256 * 1024;

/// Truncates a tool's result to [`RESULT_BYTES`], with a mark if it was longer.
pub fn bounded(mut text: String) -> String {
    const MARK: &str = "\n[cut: the answer was longer]";
    if text.len() > RESULT_BYTES {
        text.truncate(text.floor_char_boundary(RESULT_BYTES - MARK.len()));
        text.push_str(MARK);
    }
    text
}

/// Truncates a text of a call to a length that a sentence can quote.
pub fn shown(text: &str) -> String {
    const CHARS: usize = 200;
    match text.char_indices().nth(CHARS) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}
