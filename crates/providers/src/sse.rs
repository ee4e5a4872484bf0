//! Parses server-sent events (SSE) from pushed bytes, with a size limit.
//!
//! `sse-stream` does the parsing (line ends CR, LF and CRLF, comments, multiple data lines, a byte order mark, UTF-8
//! characters split between chunks). It reads from a `Stream`, so this module polls it by hand over an in-memory slot
//! until the pushed bytes are consumed. `sse-stream` has no size limit; this module adds one.

use std::convert::Infallible;
use std::io::Cursor;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use sse_stream::{Sse, SseByteStream};

use super::decode_error::DecodeError;
use super::limits::MAX_EVENT_BYTES;

/// Bytes that are passed to the parser at once: an event can exceed its limit by at most this much before that is
/// detected.
const SLICE: usize = 16 << 10;

/// Bytes that framing and comments may add to an event.
const FRAMING: usize = 64 << 10;

/// Parses bytes into events.
pub(super) struct SseReader {
    events: SseByteStream<ByteSlot>,
    slot: ByteSlot,
    /// Bytes since the last event.
    since_last_event: usize,
}

impl SseReader {
    pub(super) fn new() -> Self {
        let slot = ByteSlot::default();
        Self { events: SseByteStream::new(slot.clone()), slot, since_last_event: 0 }
    }

    /// Parses the next bytes and calls `each` for every complete event, until it fails.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Sse) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        for slice in bytes.chunks(SLICE) {
            self.slot.fill(slice);
            self.since_last_event += slice.len();
            while let Some(event) = self.next() {
                let event = event.map_err(|_| DecodeError::malformed("its events are not UTF-8"))?;
                self.since_last_event = 0;
                if event.data.as_ref().is_some_and(|data| data.len() > MAX_EVENT_BYTES) {
                    return Err(DecodeError::too_large("an event", MAX_EVENT_BYTES));
                }
                each(event)?;
            }
            if self.since_last_event > MAX_EVENT_BYTES + FRAMING {
                return Err(DecodeError::too_large("an event", MAX_EVENT_BYTES));
            }
        }
        Ok(())
    }

    /// The next complete event, or `None` if more bytes are needed.
    fn next(&mut self) -> Option<Result<Sse, sse_stream::Error>> {
        match Pin::new(&mut self.events).poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(event) => event,
            Poll::Pending => None,
        }
    }
}

/// Holds one slice until it is read. The stream never ends, so that the end of the body does not complete a truncated
/// event.
#[derive(Clone, Default)]
struct ByteSlot(Arc<Mutex<Option<Cursor<Vec<u8>>>>>);

impl ByteSlot {
    fn fill(&self, slice: &[u8]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Cursor::new(slice.to_vec()));
    }
}

impl Stream for ByteSlot {
    type Item = Result<Cursor<Vec<u8>>, Infallible>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(slice) => Poll::Ready(Some(Ok(slice))),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]]) -> Result<Vec<Sse>, DecodeError> {
        let mut reader = SseReader::new();
        let mut events = Vec::new();
        for chunk in chunks {
            reader.push(chunk, |event| {
                events.push(event);
                Ok(())
            })?;
        }
        Ok(events)
    }

    #[test]
    fn all_line_ends_give_the_same_events() {
        let text = ": hello\n\nevent: a\ndata: 1\ndata:2\n\ndata: ü\n\ndata: cut";
        let wanted = [Sse::default().event("a").data("1\n2"), Sse::default().data("ü")];
        for end in ["\n", "\r\n", "\r"] {
            let bytes = format!("\u{feff}{}", text.replace('\n', end)).into_bytes();
            assert_eq!(read(&[&bytes]).unwrap(), wanted, "{end:?}");
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(read(&single).unwrap(), wanted, "{end:?}");
        }
    }

    #[test]
    fn event_over_the_size_limit_is_an_error() {
        let mut reader = SseReader::new();
        let chunk = vec![b'x'; 1 << 20];
        let mut pushed = 0;
        let error = loop {
            match reader.push(&chunk, |_| Ok(())) {
                Ok(()) => pushed += chunk.len(),
                Err(error) => break error,
            }
        };
        assert_eq!(error, DecodeError::too_large("an event", MAX_EVENT_BYTES));
        assert!(pushed <= MAX_EVENT_BYTES + FRAMING, "{pushed}");
    }

    #[test]
    fn invalid_utf8_is_malformed() {
        assert!(matches!(read(&[b"data: \xff\xfe\n\n"]), Err(DecodeError::Malformed(_))));
    }
}
