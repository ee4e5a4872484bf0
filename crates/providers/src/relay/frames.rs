//! Cuts a stream into its server-sent events without changing a byte.
//!
//! Bytes are passed on event by event: half an event is of no use to any reader of such a stream.

use serde_json::Value;

use crate::limits::MAX_EVENT_BYTES;

/// A stream that is cut into events.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The event that is not complete.
    held: Vec<u8>,
    /// Where the line that is not complete begins in it.
    line: usize,
    /// Whether the last byte was a CR, which a LF may belong to.
    after_cr: bool,
    /// An event was longer than any should be: the rest goes on as it comes.
    has_given_up: bool,
}

/// A piece of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// One event with its blank line.
    Event(Vec<u8>),
    /// Bytes that belong to none.
    Loose(Vec<u8>),
}

impl Frames {
    /// Takes the next bytes and gives the pieces that are whole, in their order.
    pub(super) fn push(&mut self, bytes: Vec<u8>, mut each: impl FnMut(Piece)) {
        if self.has_given_up {
            return each(Piece::Loose(bytes));
        }
        for byte in bytes {
            // The LF of a CR LF ends no line of its own.
            let belongs_to_cr = byte == b'\n' && std::mem::take(&mut self.after_cr);
            if belongs_to_cr && self.held.is_empty() {
                each(Piece::Loose(vec![byte]));
                continue;
            }
            self.held.push(byte);
            if belongs_to_cr {
                self.line = self.held.len();
                continue;
            }
            self.after_cr = byte == b'\r';
            if matches!(byte, b'\r' | b'\n') {
                let is_blank = self.line + 1 == self.held.len();
                self.line = self.held.len();
                if is_blank {
                    each(Piece::Event(std::mem::take(&mut self.held)));
                    self.line = 0;
                }
            }
        }
        if self.held.len() > MAX_EVENT_BYTES {
            self.has_given_up = true;
            each(Piece::Loose(std::mem::take(&mut self.held)));
        }
    }

    /// The stream has ended: gives what was not complete.
    #[must_use]
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// The JSON that an event holds, if it holds any.
pub(super) fn data(event: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(event).ok()?;
    let lines: Vec<&str> =
        text.split(['\r', '\n']).filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect();
    serde_json::from_str(&lines.join("\n")).ok()
}

/// The event with other JSON in it, on one line. What else it says stays.
pub(super) fn with_data(event: &[u8], data: &Value) -> Vec<u8> {
    let text = String::from_utf8_lossy(event);
    let others = text.split(['\r', '\n']).filter(|line| !line.is_empty() && !line.starts_with("data:"));
    let mut written: String = others.map(|line| format!("{line}\n")).collect();
    written.push_str(&format!("data: {data}\n\n"));
    written.into_bytes()
}
