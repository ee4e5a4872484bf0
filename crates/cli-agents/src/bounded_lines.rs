//! Lines of a pipe, each bounded: whoever writes without an end is cut off, not waited for.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes per read.
const CHUNK_BYTES: usize = 16 << 10;

/// Why there is no next line.
#[derive(Debug)]
pub(crate) enum NoLine {
    /// The other side is done.
    End,
    /// Longer than any line may be.
    TooLong,
    Io(io::Error),
}

/// Splits what comes into lines.
pub(crate) struct Lines<R> {
    from: R,
    most: usize,
    /// What was read and not handed out.
    held: Vec<u8>,
    /// Bytes of `held` that hold no newline.
    searched: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of at most `most` bytes.
    pub(crate) const fn new(from: R, most: usize) -> Self {
        Self { from, most, held: Vec::new(), searched: 0 }
    }

    /// The next line, without its end. What is no UTF-8 has marks in its place.
    pub(crate) async fn next(&mut self) -> Result<String, NoLine> {
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
                return Err(NoLine::TooLong);
            }
            let mut chunk = [0; CHUNK_BYTES];
            match self.from.read(&mut chunk).await {
                // A line without an end is none: whoever wrote it was cut off.
                Ok(0) => return Err(NoLine::End),
                Ok(got) => self.held.extend_from_slice(&chunk[..got]),
                Err(error) => return Err(NoLine::Io(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_whole_and_no_longer_than_they_may() {
        let text: &[u8] = b"one\r\n\ntw\xffo\nhalf";
        let mut lines = Lines::new(text, 64);
        assert_eq!(lines.next().await.unwrap(), "one");
        assert_eq!(lines.next().await.unwrap(), "");
        assert_eq!(lines.next().await.unwrap(), "tw\u{fffd}o");
        assert!(matches!(lines.next().await, Err(NoLine::End)));
        let endless = tokio::io::repeat(b'x');
        let mut lines = Lines::new(endless, 1 << 20);
        assert!(matches!(lines.next().await, Err(NoLine::TooLong)));
        assert!(lines.held.len() <= (1 << 20) + CHUNK_BYTES);
    }
}
