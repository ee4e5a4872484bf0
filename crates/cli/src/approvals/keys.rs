//! Decodes terminal input into keys.

/// A key that the screen knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    Enter,
    /// Escape, or Backspace.
    Back,
    /// Ctrl-C, Ctrl-D, or the end of the input.
    Quit,
}

/// Decodes one read. Unknown escape sequences are skipped whole, so that none of their letters counts as a decision.
pub(super) fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match first {
            0x1b => match after.split_first() {
                Some((b'[' | b'O', sequence)) => {
                    let end = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte));
                    match end.map(|end| (end, sequence[end])) {
                        Some((0, b'A')) => keys.push(Key::Up),
                        Some((0, b'B')) => keys.push(Key::Down),
                        _ => {}
                    }
                    rest = end.map_or(&[][..], |end| &sequence[end + 1..]);
                }
                // Alt and a letter.
                Some((_, sequence)) => rest = sequence,
                None => keys.push(Key::Back),
            },
            b'\r' | b'\n' => keys.push(Key::Enter),
            0x08 | 0x7f => keys.push(Key::Back),
            0x03 | 0x04 => keys.push(Key::Quit),
            byte if byte.is_ascii_graphic() => keys.push(Key::Char(char::from(byte))),
            _ => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_not_read_as_letters() {
        assert_eq!(keys(b"jA\r\x03"), [Key::Char('j'), Key::Char('A'), Key::Enter, Key::Quit]);
        assert_eq!(keys(b"\x1b[A\x1bOB\x1b"), [Key::Up, Key::Down, Key::Back]);
        // The letters of other sequences are no decisions: a page key, a mouse, Alt-a, a paste.
        assert_eq!(keys(b"\x1b[5~\x1b[1;5D\x1ba\x1b[200~"), []);
        assert_eq!(keys("é\x1b[".as_bytes()), []);
    }
}
