//! Splits a stream into server-sent events without changing a byte.
//!
//! Bytes are passed on one complete event at a time: no reader of such a stream can use a partial event.

use serde_json::Value;

use crate::limits::MAX_EVENT_BYTES;

/// Splits one stream into events.
#[derive(Debug, Default)]
pub(super) struct EventSplitter {
    /// The incomplete event.
    buffer: Vec<u8>,
    /// Where the incomplete line starts in `buffer`.
    line_start: usize,
    /// Whether the last byte was a CR, which a LF may follow.
    after_cr: bool,
    /// An event exceeded the size limit: the rest of the stream is passed on unsplit.
    has_given_up: bool,
}

/// A part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamPiece {
    /// One event with the blank line that ends it.
    Event(Vec<u8>),
    /// Bytes outside of an event.
    Loose(Vec<u8>),
}

impl EventSplitter {
    /// Splits the next bytes and calls `each` for every complete piece, in order.
    pub(super) fn push(&mut self, bytes: Vec<u8>, mut each: impl FnMut(StreamPiece)) {
        if self.has_given_up {
            return each(StreamPiece::Loose(bytes));
        }
        for byte in bytes {
            // The LF of a CRLF does not end another line.
            let belongs_to_cr = byte == b'\n' && std::mem::take(&mut self.after_cr);
            if belongs_to_cr && self.buffer.is_empty() {
                each(StreamPiece::Loose(vec![byte]));
                continue;
            }
            self.buffer.push(byte);
            if belongs_to_cr {
                self.line_start = self.buffer.len();
                continue;
            }
            self.after_cr = byte == b'\r';
            if matches!(byte, b'\r' | b'\n') {
                let is_blank = self.line_start + 1 == self.buffer.len();
                self.line_start = self.buffer.len();
                if is_blank {
                    each(StreamPiece::Event(std::mem::take(&mut self.buffer)));
                    self.line_start = 0;
                }
            }
        }
        if self.buffer.len() > MAX_EVENT_BYTES {
            self.has_given_up = true;
            each(StreamPiece::Loose(std::mem::take(&mut self.buffer)));
        }
    }

    /// Handles the end of the stream: returns the incomplete event.
    #[must_use]
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }
}

/// The JSON data of an event, if it has any.
pub(super) fn data(event: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(event).ok()?;
    let lines: Vec<&str> =
        text.split(['\r', '\n']).filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect();
    serde_json::from_str(&lines.join("\n")).ok()
}

/// The event with its data replaced, on one line. Its other fields are kept.
pub(super) fn with_data(event: &[u8], data: &Value) -> Vec<u8> {
    let text = String::from_utf8_lossy(event);
    let other_fields = text.split(['\r', '\n']).filter(|line| !line.is_empty() && !line.starts_with("data:"));
    let mut event: String = other_fields.map(|line| format!("{line}\n")).collect();
    event.push_str(&format!("data: {data}\n\n"));
    event.into_bytes()
}
