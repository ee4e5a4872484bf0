//! Redacts a text that arrives in chunks, such as the output of a model or the body of a request.
//!
//! The concatenated output equals the result of [`Redactor::redact`] on the whole text, however it is cut into chunks.
//! The stream buffers only the part that may still become a secret: from the first position where one may have started,
//! a few kilobytes at most. It replaces a secret as soon as its core confirms it, and drops the tail as it arrives.

use crate::bytes::InputText;
use crate::redactor::{Redactor, write_redacted};
use crate::secret::OpenTail;
use crate::tail_ends::TailEnds;

/// How many bytes of the emitted text are kept. No matcher looks back further than this from the start of a secret.
const LOOK_BACK: usize = 512;

/// Redacts one stream. Made by [`Redactor::stream`].
#[derive(Debug)]
pub struct RedactionStream {
    redactor: Redactor,
    /// The last emitted bytes, then the bytes that are held back.
    text: String,
    /// Where the bytes that are held back start.
    emitted: usize,
    /// End of the bytes that belong to secrets that started earlier.
    covered: usize,
    /// Tails that may continue in the next chunk.
    open: Vec<OpenTail>,
    /// The first bytes of an incomplete UTF-8 character.
    partial: Vec<u8>,
}

impl Redactor {
    /// Redacts a text that arrives in chunks.
    pub fn stream(&self) -> RedactionStream {
        RedactionStream::new(self.clone())
    }
}

impl RedactionStream {
    fn new(redactor: Redactor) -> Self {
        Self { redactor, text: String::new(), emitted: 0, covered: 0, open: Vec::new(), partial: Vec::new() }
    }

    /// Takes the next chunk and returns the output that is final.
    #[must_use]
    pub fn push(&mut self, piece: &str) -> String {
        self.text.push_str(piece);
        self.emit(false)
    }

    /// Takes the next bytes, which may be cut within a character. Invalid UTF-8 becomes U+FFFD.
    #[must_use]
    pub fn push_bytes(&mut self, bytes: &[u8]) -> String {
        self.partial.extend_from_slice(bytes);
        let partial = std::mem::take(&mut self.partial);
        let mut chunks = partial.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.text.push_str(chunk.valid());
            let rest = chunk.invalid();
            if chunks.peek().is_none() && is_incomplete(rest) {
                self.partial = rest.to_vec();
            } else if !rest.is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.emit(false)
    }

    /// Ends the text and returns the rest of the output.
    #[must_use]
    pub fn finish(mut self) -> String {
        if !self.partial.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        self.emit(true)
    }

    fn emit(&mut self, is_complete: bool) -> String {
        let input = InputText { bytes: self.text.as_bytes(), is_complete };
        let mut ends = TailEnds::new(input);
        for open in std::mem::take(&mut self.open) {
            let (end, still_open) = ends.follow(open);
            self.covered = self.covered.max(end);
            keep_open(&mut self.open, still_open);
        }
        let scan = self.redactor.scan(input);
        // INVARIANT: emitted text is final. A match that seems incomplete before `emitted` only lacks the bytes that
        // were dropped in front of it.
        let decided = scan.decided.max(self.emitted);
        let range = self.emitted..decided;
        for secret in scan.secrets.iter().filter(|secret| range.contains(&secret.start)) {
            keep_open(&mut self.open, secret.open);
        }
        let mut out = String::new();
        self.covered = write_redacted(&mut out, &self.text, range, self.covered, &scan.secrets);
        self.emitted = decided;
        self.drop_old();
        out
    }

    /// Drops emitted text that no matcher looks back to.
    fn drop_old(&mut self) {
        let mut from = self.emitted.saturating_sub(LOOK_BACK);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        self.text.drain(..from);
        self.emitted -= from;
        self.covered = self.covered.saturating_sub(from);
        for open in &mut self.open {
            open.from -= from;
        }
    }
}

/// Adds an open tail. Of two tails of one kind, the one whose search resumes later ends later, so only it is kept.
fn keep_open(all: &mut Vec<OpenTail>, open: Option<OpenTail>) {
    let Some(open) = open else { return };
    match all.iter_mut().find(|other| other.tail == open.tail) {
        Some(other) => other.from = other.from.max(open.from),
        None => all.push(open),
    }
}

/// Whether bytes are the first part of a UTF-8 character.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
