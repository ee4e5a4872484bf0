//! What a backend says, taken in as it comes: also while what it said before is being written down, so that a fast speaker
//! costs one page for many words and not one page for each.

use std::any::Any;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::{Context, Poll};

use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tribune_runtime::{EventKind, RuntimeError, RuntimeEvent};

/// Events taken in at most before they are written down. The backend waits when there are more.
const AT_ONCE: usize = 256;

/// Bytes of one event into which pieces are put together, at most.
const MERGED_BYTES: usize = 16 << 10;

/// An event, an error, or what a backend panicked with.
pub(super) type Item = Result<Result<RuntimeEvent, RuntimeError>, Box<dyn Any + Send>>;

/// The ear of a turn.
pub(super) struct BackendStream {
    backend: BoxStream<'static, Item>,
    heard: Vec<Item>,
    /// The backend's stream has ended; it is not asked again.
    is_silent: bool,
}

impl BackendStream {
    /// Listens to a stream that is not begun before somebody waits for it.
    pub(super) fn new(
        backend: impl Stream<Item = Result<RuntimeEvent, RuntimeError>> + Send + 'static,
    ) -> Self {
        Self {
            backend: AssertUnwindSafe(backend).catch_unwind().boxed(),
            heard: Vec::new(),
            is_silent: false,
        }
    }

    /// A backend that failed before it could say anything.
    pub(super) fn panicked(with: Box<dyn Any + Send>) -> Self {
        Self { backend: futures_util::stream::empty().boxed(), heard: vec![Err(with)], is_silent: true }
    }

    /// Drops the backend's stream, and with it what it was doing.
    pub(super) fn let_go(&mut self) {
        self.backend = futures_util::stream::empty().boxed();
        self.is_silent = true;
    }

    /// Everything said since the last time; waits for the first word. `None` when there will be no more. Nothing is lost
    /// if the wait is given up.
    pub(super) async fn next(&mut self) -> Option<Vec<Item>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The same, without waiting.
    pub(super) fn now(&mut self) -> Option<Option<Vec<Item>>> {
        self.next().now_or_never()
    }

    /// Goes on listening while `work` is done.
    pub(super) async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let done = work.as_mut().poll(context);
            if done.is_pending() {
                self.take_in(context);
            }
            done
        })
        .await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<Item>>> {
        self.take_in(context);
        if !self.heard.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut self.heard)));
        }
        if self.is_silent { Poll::Ready(None) } else { Poll::Pending }
    }

    fn take_in(&mut self, context: &mut Context<'_>) {
        while !self.is_silent && self.heard.len() < AT_ONCE {
            match self.backend.poll_next_unpin(context) {
                Poll::Ready(Some(item)) => self.heard.push(item),
                Poll::Ready(None) => self.is_silent = true,
                Poll::Pending => return,
            }
        }
    }
}

/// Adds an event to those that are shown together; a piece that goes on with the one before becomes part of it.
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
    let fits = text.len() + more.len() <= MERGED_BYTES;
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

    fn said(words: &str) -> Result<RuntimeEvent, RuntimeError> {
        Ok(RuntimeEvent { seq: 0, kind: text(words) })
    }

    fn count(heard: Option<Vec<Item>>) -> Option<usize> {
        heard.map(|items| items.len())
    }

    #[tokio::test]
    async fn what_is_said_during_other_work_is_heard_afterwards_and_in_bounds() {
        let (say, words) = tokio::sync::mpsc::unbounded_channel();
        let words =
            futures_util::stream::unfold(words, |mut words: tokio::sync::mpsc::UnboundedReceiver<_>| async {
                words.recv().await.map(|word| (word, words))
            });
        let mut listener = BackendStream::new(words);
        assert!(listener.now().is_none(), "nothing was said");
        let work = async {
            for n in 0..AT_ONCE + 10 {
                say.send(said(&n.to_string())).unwrap();
                tokio::task::yield_now().await;
            }
            "done"
        };
        assert_eq!(listener.meanwhile(work).await, "done");
        drop(say);
        assert_eq!(count(listener.next().await), Some(AT_ONCE));
        assert_eq!(count(listener.next().await), Some(10));
        assert_eq!(count(listener.next().await), None);
        assert_eq!(count(listener.next().await), None, "a stream that ended is not asked again");
    }

    #[tokio::test]
    async fn a_backend_that_panics_is_heard_to_do_so() {
        let mut listener = BackendStream::new(futures_util::stream::poll_fn(|_| panic!("on purpose")));
        let heard = listener.next().await.unwrap();
        assert!(matches!(&heard[..], [Err(_)]));
        assert!(BackendStream::panicked(Box::new("x")).next().await.is_some());
    }

    #[test]
    fn pieces_of_the_same_stream_become_one_and_others_stay_apart() {
        let thought = |words: &str| EventKind::ReasoningDelta { text: words.to_owned() };
        let call = |id: &str, words: &str| EventKind::ToolCallUpdate {
            id: id.to_owned(),
            input_delta: words.to_owned(),
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
        let long = "x".repeat(MERGED_BYTES);
        coalesce(&mut shown, text(&long));
        assert_eq!(shown.last(), Some(&text(&long)), "an event stays small");
    }
}
