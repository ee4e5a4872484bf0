//! Texts of calls, cut to size.

/// Bytes of a tool's answer: about what a model can still use.
pub const RESULT_BYTES: usize = 256 * 1024;

/// Cuts a tool's answer to [`RESULT_BYTES`], with a mark where it was longer.
pub fn bounded(mut text: String) -> String {
    const MARK: &str = "\n[cut: the answer was longer]";
    if text.len() > RESULT_BYTES {
        text.truncate(text.floor_char_boundary(RESULT_BYTES - MARK.len()));
        text.push_str(MARK);
    }
    text
}

/// Cuts a text of a call to what a sentence can quote.
pub fn shown(text: &str) -> String {
    const CHARS: usize = 200;
    match text.char_indices().nth(CHARS) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}
