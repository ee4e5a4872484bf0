//! Redacts a text that comes in pieces, such as the words of a model or the body of a request.
//!
//! What comes out, put together, is what [`Redactor::redact`] makes of the whole, wherever the pieces are cut. Held back is
//! only what may yet turn out to be a secret: from the first place where one may have begun, a few kilobytes at most. A
//! secret that is sure goes at once, and what follows of it is dropped as it comes.

use crate::bytes::View;
use crate::redactor::{Redactor, write_without};
use crate::secret::{Ends, Open};

/// How much of what was let out is remembered. No shape looks back further than this from where its secret begins.
const LOOK_BACK: usize = 256;

/// A text on its way through.
#[derive(Debug)]
pub struct Redacting {
    redactor: Redactor,
    /// What is held back, behind what is remembered.
    text: String,
    /// Where in it what is held back begins.
    settled: usize,
    /// Up to where it belongs to secrets that began before.
    covered: usize,
    /// Secrets that go on in what follows.
    open: Vec<Open>,
    /// The beginning of a character whose end has not come.
    partial: Vec<u8>,
}

impl Redacting {
    pub(crate) fn new(redactor: Redactor) -> Self {
        Self { redactor, text: String::new(), settled: 0, covered: 0, open: Vec::new(), partial: Vec::new() }
    }

    /// Takes the next piece and gives what can be let out now.
    #[must_use]
    pub fn push(&mut self, piece: &str) -> String {
        self.text.push_str(piece);
        self.settle(false)
    }

    /// Takes the next bytes, which may be cut within a character. What is no UTF-8 becomes U+FFFD.
    #[must_use]
    pub fn push_bytes(&mut self, bytes: &[u8]) -> String {
        self.partial.extend_from_slice(bytes);
        let partial = std::mem::take(&mut self.partial);
        let mut chunks = partial.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.text.push_str(chunk.valid());
            let rest = chunk.invalid();
            if chunks.peek().is_none() && is_begun(rest) {
                self.partial = rest.to_vec();
            } else if !rest.is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.settle(false)
    }

    /// The text is all here: gives the rest of it.
    #[must_use]
    pub fn finish(mut self) -> String {
        if !self.partial.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        self.settle(true)
    }

    fn settle(&mut self, is_whole: bool) -> String {
        let view = View { bytes: self.text.as_bytes(), is_whole };
        let mut ends = Ends::new(view);
        for open in std::mem::take(&mut self.open) {
            let (end, still) = ends.follow(open);
            self.covered = self.covered.max(end);
            keep_open(&mut self.open, still);
        }
        let scan = self.redactor.scan(view);
        // INVARIANT: what was settled stays so; a place before it that seems open again lacks what stood before it.
        let decided = scan.decided.max(self.settled);
        let stretch = self.settled..decided;
        for secret in scan.secrets.iter().filter(|secret| stretch.contains(&secret.start)) {
            keep_open(&mut self.open, secret.open);
        }
        let mut out = String::new();
        let covered = write_without(&mut out, &self.text, stretch, self.covered, &scan.secrets);
        self.covered = covered;
        self.settled = decided;
        self.forget();
        out
    }

    /// Drops what is no longer needed.
    fn forget(&mut self) {
        let mut from = self.settled.saturating_sub(LOOK_BACK);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        self.text.drain(..from);
        self.settled -= from;
        self.covered = self.covered.saturating_sub(from);
        for open in &mut self.open {
            open.from -= from;
        }
    }
}

/// Remembers an open tail; of the same kind, the one whose end is looked for furthest on ends last.
fn keep_open(all: &mut Vec<Open>, open: Option<Open>) {
    let Some(open) = open else { return };
    match all.iter_mut().find(|other| other.tail == open.tail) {
        Some(other) => other.from = other.from.max(open.from),
        None => all.push(open),
    }
}

/// Whether bytes are the beginning of a character.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
