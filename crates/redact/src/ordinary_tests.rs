//! What must be left alone.

use crate::Redactor;

/// Lines that hold no secret, from all sorts of texts.
const LINES: &str = include_str!("ordinary.txt");

#[test]
fn ordinary_text_is_left_alone() {
    let redactor = Redactor::new();
    for line in LINES.lines() {
        assert_eq!(redactor.redact(line), line);
    }
    assert_eq!(redactor.redact(LINES), LINES);
    assert!(LINES.lines().count() >= 90);
}
