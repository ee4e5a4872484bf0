//! Reads lines of bounded length from a pipe or socket. A line without an end is an error and not a wait. What a line
//! contains, and whether a last line without a newline counts, its reader decides.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use crate::line_buffer::LineBuffer;

/// Bytes per read.
const READ_BYTES: usize = 16 << 10;

/// Splits a stream into lines.
#[derive(Debug)]
pub struct LineReader<R> {
    input: BufReader<R>,
    line: LineBuffer,
}

/// A line without its end (`\n` or `\r\n`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundedLine {
    pub bytes: Vec<u8>,
    pub end: LineEnd,
}

/// How a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnd {
    Newline,
    /// The input ended: the line may have been cut off.
    Eof,
}

/// The reason for which there is no next line, nor any later one.
#[derive(Debug)]
pub enum LineError {
    /// The line is longer than allowed. What is left of it was not read.
    TooLong,
    Io(io::Error),
}

impl BoundedLine {
    /// The text of the line. Bytes that are no UTF-8 become replacement characters.
    pub fn into_text_lossy(self) -> String {
        String::from_utf8(self.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// For lines of at most `max_bytes` bytes without the newline.
    pub fn new(input: R, max_bytes: usize) -> Self {
        Self { input: BufReader::with_capacity(READ_BYTES, input), line: LineBuffer::new(max_bytes) }
    }

    /// The next line; `None` at the end of the input. A call that is dropped before it returns loses nothing.
    pub async fn next(&mut self) -> Result<Option<BoundedLine>, LineError> {
        loop {
            let piece = self.input.fill_buf().await.map_err(LineError::Io)?;
            let is_eof = piece.is_empty();
            let pushed = self.line.push(piece, |_| ());
            self.input.consume(pushed.consumed);
            if self.line.is_too_long() {
                return Err(LineError::TooLong);
            }
            let end = match (pushed.is_line_end, is_eof) {
                (true, _) => LineEnd::Newline,
                (false, true) if self.line.is_empty() => return Ok(None),
                (false, true) => LineEnd::Eof,
                (false, false) => continue,
            };
            let bytes = self.line.take().map_err(|_| LineError::TooLong)?;
            return Ok(Some(BoundedLine { bytes, end }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    /// Input that arrives in pieces of this size.
    struct InPieces<'a>(&'a [u8], usize);

    impl AsyncRead for InPieces<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let (piece, rest) = self.0.split_at(self.1.min(self.0.len()).min(buffer.remaining()));
            buffer.put_slice(piece);
            self.0 = rest;
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn lines_are_whole_and_bounded() {
        let text = "one\r\n\n\u{1f600}\ntw".bytes().chain(*b"\xffo\nhalf").collect::<Vec<u8>>();
        for size in [1, 2, 3, 5, 100] {
            let mut lines = LineReader::new(InPieces(&text, size), 64);
            for expected in ["one", "", "\u{1f600}", "tw\u{fffd}o"] {
                let line = lines.next().await.unwrap().unwrap();
                assert_eq!(line.end, LineEnd::Newline);
                assert_eq!(line.into_text_lossy(), expected, "{size}");
            }
            let cut_off = BoundedLine { bytes: b"half".to_vec(), end: LineEnd::Eof };
            assert_eq!(lines.next().await.unwrap(), Some(cut_off));
            assert_eq!(lines.next().await.unwrap(), None);
            assert_eq!(lines.next().await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_an_error() {
        let mut lines = LineReader::new(&b"1234\n12345\n"[..], 4);
        assert_eq!(lines.next().await.unwrap().unwrap().bytes, b"1234");
        assert!(matches!(lines.next().await, Err(LineError::TooLong)));
        let mut lines = LineReader::new(tokio::io::repeat(b'x'), 1 << 20);
        assert!(matches!(lines.next().await, Err(LineError::TooLong)));
    }
}
