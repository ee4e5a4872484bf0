//! Assembles a line from pieces of input, with a limit for its length. It does no I/O and does not interpret the bytes.

/// One line, as far as it has arrived.
#[derive(Debug)]
pub struct LineBuffer {
    max_bytes: usize,
    bytes: Vec<u8>,
    is_too_long: bool,
}

/// The result of [`LineBuffer::push`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// Bytes of the piece that belong to the line, its newline included.
    pub consumed: usize,
    pub is_line_end: bool,
}

/// A line with more bytes than its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineTooLong;

impl LineBuffer {
    /// For lines of at most `max_bytes` bytes without the newline.
    pub const fn new(max_bytes: usize) -> Self {
        Self { max_bytes, bytes: Vec::new(), is_too_long: false }
    }

    /// Adds the bytes of `piece` up to its first newline. A line that is too long is not kept: `dropped` gets all of its
    /// bytes but the newline, from the first.
    pub fn push(&mut self, piece: &[u8], mut dropped: impl FnMut(&[u8])) -> Pushed {
        let newline = memchr::memchr(b'\n', piece);
        let content = &piece[..newline.unwrap_or(piece.len())];
        if !self.is_too_long && self.bytes.len() + content.len() > self.max_bytes {
            self.is_too_long = true;
            dropped(&std::mem::take(&mut self.bytes));
        }
        if self.is_too_long {
            dropped(content);
        } else {
            self.bytes.extend_from_slice(content);
        }
        Pushed { consumed: content.len() + usize::from(newline.is_some()), is_line_end: newline.is_some() }
    }

    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.is_too_long
    }

    pub const fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// Takes the line without a carriage return at its end, and begins the next one.
    pub fn take(&mut self) -> Result<Vec<u8>, LineTooLong> {
        if std::mem::take(&mut self.is_too_long) {
            return Err(LineTooLong);
        }
        let mut line = std::mem::take(&mut self.bytes);
        line.pop_if(|last| *last == b'\r');
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lines of a text that arrives in pieces of this size, with the bytes of those that are too long.
    fn lines(text: &[u8], max_bytes: usize, size: usize) -> Vec<Result<Vec<u8>, Vec<u8>>> {
        let (mut line, mut excess, mut lines) = (LineBuffer::new(max_bytes), Vec::new(), Vec::new());
        for mut piece in text.chunks(size) {
            while !piece.is_empty() {
                let pushed = line.push(piece, |bytes| excess.extend_from_slice(bytes));
                assert!(line.bytes.len() <= max_bytes);
                piece = &piece[pushed.consumed..];
                if pushed.is_line_end {
                    lines.push(line.take().map_err(|LineTooLong| std::mem::take(&mut excess)));
                }
            }
        }
        if !line.is_empty() {
            lines.push(line.take().map_err(|LineTooLong| std::mem::take(&mut excess)));
        }
        lines
    }

    #[test]
    fn the_limit_is_exact() {
        let line = |text: &str| Ok(text.as_bytes().to_vec());
        let too_long = |text: &str| Err(text.as_bytes().to_vec());
        for size in [1, 2, 3, 100] {
            assert_eq!(
                lines(b"1234\n\n12345\n123\r\n1234\r\nend", 4, size),
                [line("1234"), line(""), too_long("12345"), line("123"), too_long("1234\r"), line("end")],
                "{size}"
            );
            assert_eq!(lines(b"a\n", 4, size), [line("a")]);
            assert_eq!(lines(b"123456", 4, size), [too_long("123456")]);
        }
        assert_eq!(lines(b"\nx", 0, 1), [line(""), too_long("x")]);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "[a\u{e4}\u{1f600}\r\n]{0,40}", max_bytes in 0_usize..12, size in 1_usize..8) {
            let mut expected: Vec<_> = text
                .split('\n')
                .map(|line| match line.len() <= max_bytes {
                    true => Ok(line.strip_suffix('\r').unwrap_or(line).as_bytes().to_vec()),
                    false => Err(line.as_bytes().to_vec()),
                })
                .collect();
            if text.is_empty() || text.ends_with('\n') {
                expected.pop();
            }
            prop_assert_eq!(lines(text.as_bytes(), max_bytes, size), expected);
        }
    }
}
