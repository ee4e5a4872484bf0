//! Reads the event stream of a backend, also while earlier events are being written, so that a fast backend costs one
//! batch for many events and not one batch for each.

use std::any::Any;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::{Context, Poll};

use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tribune_runtime::{EventKind, RuntimeError, RuntimeEvent};

/// Maximum number of events that are read before they are written. The backend waits when there are more.
const MAX_BUFFERED: usize = 256;

/// Maximum size of one event into which deltas are coalesced.
const MAX_MERGED_BYTES: usize = 16 << 10;

/// An event, an error, or the payload of a panic of the backend.
pub(super) type Item = Result<Result<RuntimeEvent, RuntimeError>, Box<dyn Any + Send>>;

/// The event stream of the backend of a turn, with a buffer.
pub(super) struct BackendStream {
    backend: BoxStream<'static, Item>,
    buffer: Vec<Item>,
    /// The stream of the backend has ended; it is not polled again.
    is_ended: bool,
}

impl BackendStream {
    /// Wraps a stream, which does not start before it is polled.
    pub(super) fn new(
        backend: impl Stream<Item = Result<RuntimeEvent, RuntimeError>> + Send + 'static,
    ) -> Self {
        Self {
            backend: AssertUnwindSafe(backend).catch_unwind().boxed(),
            buffer: Vec::new(),
            is_ended: false,
        }
    }

    /// A backend that panicked before it returned a stream.
    pub(super) fn panicked(with: Box<dyn Any + Send>) -> Self {
        Self { backend: futures_util::stream::empty().boxed(), buffer: vec![Err(with)], is_ended: true }
    }

    /// Drops the stream of the backend, and with it the work that the backend does.
    pub(super) fn let_go(&mut self) {
        self.backend = futures_util::stream::empty().boxed();
        self.is_ended = true;
    }

    /// All events since the last call; waits for the first one. `None` at the end of the stream. Cancel-safe: a dropped
    /// wait loses no event.
    pub(super) async fn next(&mut self) -> Option<Vec<Item>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Same as `next`, without waiting.
    pub(super) fn now(&mut self) -> Option<Option<Vec<Item>>> {
        self.next().now_or_never()
    }

    /// Reads events into the buffer while `work` runs.
    pub(super) async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let done = work.as_mut().poll(context);
            if done.is_pending() {
                self.fill_buffer(context);
            }
            done
        })
        .await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<Item>>> {
        self.fill_buffer(context);
        if !self.buffer.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut self.buffer)));
        }
        if self.is_ended { Poll::Ready(None) } else { Poll::Pending }
    }

    fn fill_buffer(&mut self, context: &mut Context<'_>) {
        while !self.is_ended && self.buffer.len() < MAX_BUFFERED {
            match self.backend.poll_next_unpin(context) {
                Poll::Ready(Some(item)) => self.buffer.push(item),
                Poll::Ready(None) => self.is_ended = true,
                Poll::Pending => return,
            }
        }
    }
}

/// Appends an event to a list. A delta that continues the last event is merged into it.
pub(super) fn coalesce(shown: &mut Vec<EventKind>, next: EventKind) {
    let grown = match (shown.last_mut(), &next) {
        (Some(EventKind::TextDelta { text }), EventKind::TextDelta { text: more })
        | (Some(EventKind::ReasoningDelta { text }), EventKind::ReasoningDelta { text: more }) => {
            append(text, more)
        }
        (
            Some(EventKind::ToolCallUpdate { id, input_delta }),
            EventKind::ToolCallUpdate { id: of, input_delta: more },
        ) if id == of => append(input_delta, more),
        _ => false,
    };
    if !grown {
        shown.push(next);
    }
}

fn append(text: &mut String, more: &str) -> bool {
    let fits = text.len() + more.len() <= MAX_MERGED_BYTES;
    if fits {
        text.push_str(more);
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> EventKind {
        EventKind::TextDelta { text: text.to_owned() }
    }

    fn delta(content: &str) -> Result<RuntimeEvent, RuntimeError> {
        Ok(RuntimeEvent { seq: 0, kind: text(content) })
    }

    fn count(items: Option<Vec<Item>>) -> Option<usize> {
        items.map(|items| items.len())
    }

    #[tokio::test]
    async fn events_during_other_work_are_buffered_within_the_bound() {
        let (sender, events) = tokio::sync::mpsc::unbounded_channel();
        let events = futures_util::stream::unfold(
            events,
            |mut events: tokio::sync::mpsc::UnboundedReceiver<_>| async {
                events.recv().await.map(|event| (event, events))
            },
        );
        let mut stream = BackendStream::new(events);
        assert!(stream.now().is_none(), "no event yet");
        let work = async {
            for n in 0..MAX_BUFFERED + 10 {
                sender.send(delta(&n.to_string())).unwrap();
                tokio::task::yield_now().await;
            }
            "done"
        };
        assert_eq!(stream.meanwhile(work).await, "done");
        drop(sender);
        assert_eq!(count(stream.next().await), Some(MAX_BUFFERED));
        assert_eq!(count(stream.next().await), Some(10));
        assert_eq!(count(stream.next().await), None);
        assert_eq!(count(stream.next().await), None, "a stream that ended is not polled again");
    }

    #[tokio::test]
    async fn a_panic_of_the_backend_is_an_item() {
        let mut stream = BackendStream::new(futures_util::stream::poll_fn(|_| panic!("on purpose")));
        let items = stream.next().await.unwrap();
        assert!(matches!(&items[..], [Err(_)]));
        assert!(BackendStream::panicked(Box::new("x")).next().await.is_some());
    }

    #[test]
    fn deltas_of_the_same_stream_are_merged_and_others_stay_apart() {
        let thought = |content: &str| EventKind::ReasoningDelta { text: content.to_owned() };
        let call = |id: &str, content: &str| EventKind::ToolCallUpdate {
            id: id.to_owned(),
            input_delta: content.to_owned(),
        };
        let mut shown = Vec::new();
        let all = [
            thought("a"),
            thought("b"),
            text("c"),
            text("d"),
            call("1", "e"),
            call("1", "f"),
            call("2", "g"),
            text("h"),
        ];
        for event in all {
            coalesce(&mut shown, event);
        }
        assert_eq!(shown, [thought("ab"), text("cd"), call("1", "ef"), call("2", "g"), text("h")]);
        let long = "x".repeat(MAX_MERGED_BYTES);
        coalesce(&mut shown, text(&long));
        assert_eq!(shown.last(), Some(&text(&long)), "an event stays small");
    }
}
