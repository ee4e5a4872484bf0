//! Reads lines of bounded length from a pipe: a line without an end is an error, not a wait.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes per read.
const CHUNK_BYTES: usize = 16 << 10;

/// The reason for which there is no next line.
#[derive(Debug)]
pub(crate) enum LineError {
    /// The pipe is at its end.
    Eof,
    /// The line is longer than allowed.
    TooLong,
    Io(io::Error),
}

/// Splits a stream into lines.
pub(crate) struct BoundedLines<R> {
    from: R,
    most: usize,
    /// Bytes that were read and not returned.
    held: Vec<u8>,
    /// Bytes of `held` that hold no newline.
    searched: usize,
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    /// For lines of at most `most` bytes.
    pub(crate) const fn new(from: R, most: usize) -> Self {
        Self { from, most, held: Vec::new(), searched: 0 }
    }

    /// The next line, without its end. Bytes that are no UTF-8 become replacement characters.
    pub(crate) async fn next(&mut self) -> Result<String, LineError> {
        loop {
            if let Some(at) = self.held[self.searched..].iter().position(|byte| *byte == b'\n') {
                let end = self.searched + at;
                let rest = self.held.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.held, rest);
                self.searched = 0;
                line.truncate(end);
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            self.searched = self.held.len();
            if self.held.len() > self.most {
                return Err(LineError::TooLong);
            }
            let mut chunk = [0; CHUNK_BYTES];
            match self.from.read(&mut chunk).await {
                // A line without an end was cut off, and does not count.
                Ok(0) => return Err(LineError::Eof),
                Ok(got) => self.held.extend_from_slice(&chunk[..got]),
                Err(error) => return Err(LineError::Io(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_whole_and_bounded() {
        let text: &[u8] = b"one\r\n\ntw\xffo\nhalf";
        let mut lines = BoundedLines::new(text, 64);
        assert_eq!(lines.next().await.unwrap(), "one");
        assert_eq!(lines.next().await.unwrap(), "");
        assert_eq!(lines.next().await.unwrap(), "tw\u{fffd}o");
        assert!(matches!(lines.next().await, Err(LineError::Eof)));
        let endless = tokio::io::repeat(b'x');
        let mut lines = BoundedLines::new(endless, 1 << 20);
        assert!(matches!(lines.next().await, Err(LineError::TooLong)));
        assert!(lines.held.len() <= (1 << 20) + CHUNK_BYTES);
    }
}
