//! Text that redaction must not change.

use crate::Redactor;

/// Lines without secrets, from many kinds of text.
const LINES: &str = include_str!("ordinary.txt");

#[test]
fn ordinary_text_is_unchanged() {
    let redactor = Redactor::new();
    for line in LINES.lines() {
        assert_eq!(redactor.redact(line), line);
    }
    assert_eq!(redactor.redact(LINES), LINES);
    assert!(LINES.lines().count() >= 90);
}
