//! The tail of the event stream of a session, in memory. A subscriber reads at its own pace: from memory while the
//! events are recent, from the vault when it has fallen later. A slow subscriber does not delay the session.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;
use tribune_runtime::{RuntimeEvent, SessionKey};
use tribune_storage::vault::{ReadLimit, StoredEvent};

/// Bounds of the events that are kept in memory while there are subscribers.
const MAX_RECENT_EVENTS: usize = 512;
const MAX_RECENT_BYTES: usize = 256 << 10;

/// The event buffers of loaded sessions, for writes to a session outside of its turns.
#[derive(Debug, Default)]
pub struct EventHub(Mutex<HashMap<SessionKey, Weak<EventBuffer>>>);

impl EventHub {
    fn all(&self) -> MutexGuard<'_, HashMap<SessionKey, Weak<EventBuffer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, key: &SessionKey, buffer: &Arc<EventBuffer>) {
        self.all().insert(key.clone(), Arc::downgrade(buffer));
    }

    /// Removes a buffer, unless another one replaced it.
    pub fn remove(&self, key: &SessionKey, buffer: &Arc<EventBuffer>) {
        let mut all = self.all();
        if all.get(key).is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(buffer))) {
            all.remove(key);
        }
    }

    /// Publishes durable events to the subscribers of their session. The caller holds the session writer, so that
    /// events are published in their order.
    pub(crate) fn publish(&self, key: &SessionKey, events: &[RuntimeEvent]) {
        let buffer = self.all().get(key).and_then(Weak::upgrade);
        if let Some(buffer) = buffer {
            events.iter().for_each(|event| buffer.publish(event));
        }
    }
}

/// The newest events of one session.
#[derive(Debug)]
pub struct EventBuffer {
    head: watch::Sender<Head>,
    recent: Mutex<Recent>,
}

/// The end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Sequence number of the newest event.
    pub seq: u64,
    /// The session was unloaded: nothing more comes through this buffer.
    pub is_over: bool,
}

#[derive(Debug, Default)]
struct Recent {
    events: VecDeque<StoredEvent>,
    bytes: usize,
}

impl EventBuffer {
    pub fn new(head: u64) -> Self {
        Self { head: watch::Sender::new(Head { seq: head, is_over: false }), recent: Mutex::default() }
    }

    pub fn head(&self) -> u64 {
        self.head.borrow().seq
    }

    /// Number of subscribers.
    pub fn followers(&self) -> usize {
        self.head.receiver_count()
    }

    pub fn follow(&self) -> watch::Receiver<Head> {
        self.head.subscribe()
    }

    /// Publishes a durable event.
    pub fn publish(&self, event: &RuntimeEvent) {
        if self.head.receiver_count() > 0
            && let Ok(json) = serde_json::to_string(event)
        {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.bytes += json.len();
            recent.events.push_back(StoredEvent { seq: event.seq, json });
            while recent.events.len() > MAX_RECENT_EVENTS || recent.bytes > MAX_RECENT_BYTES {
                let dropped = recent.events.pop_front();
                recent.bytes -= dropped.map_or(0, |event| event.json.len());
            }
        } else {
            self.clear();
        }
        self.head.send_replace(Head { seq: event.seq, is_over: false });
    }

    /// Tells the subscribers that nothing more comes.
    pub fn end(&self) {
        self.head.send_modify(|head| head.is_over = true);
    }

    /// Drops the events in memory; the vault has all of them.
    pub fn clear(&self) {
        *self.recent.lock().unwrap_or_else(PoisonError::into_inner) = Recent::default();
    }

    /// Events after `after`, if the next one is still in memory.
    pub fn recent(&self, after: u64, mut limit: ReadLimit) -> Option<Vec<StoredEvent>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let first = recent.events.front()?.seq;
        let skip = (after + 1).checked_sub(first)?;
        let later = recent.events.iter().skip(usize::try_from(skip).ok()?).enumerate();
        let fits = later.take_while(|(at, event)| limit.takes(event.json.len(), *at == 0));
        let events: Vec<StoredEvent> = fits.map(|(_, event)| event.clone()).collect();
        Some(events).filter(|events| !events.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use tribune_runtime::EventKind;

    use super::*;

    fn event(seq: u64) -> RuntimeEvent {
        RuntimeEvent { seq, kind: EventKind::TextDelta { text: "x".into() } }
    }

    #[test]
    fn recent_events_are_returned_from_any_position_in_memory() {
        let buffer = EventBuffer::new(10);
        let follower = buffer.follow();
        for seq in 11..=1000 {
            buffer.publish(&event(seq));
        }
        let seqs = |after, limit| {
            buffer
                .recent(after, ReadLimit::events(limit))
                .map(|events| events.iter().map(|event| event.seq).collect::<Vec<_>>())
        };
        assert_eq!(seqs(998, 10), Some(vec![999, 1000]));
        assert_eq!(seqs(488, 2), Some(vec![489, 490]), "the oldest that is kept");
        assert_eq!(seqs(487, 2), None, "one before it: only the vault has it");
        assert_eq!(seqs(1000, 2), None);
        let few = |bytes| buffer.recent(900, ReadLimit { events: 10, bytes }).map(|events| events.len());
        let one = serde_json::to_string(&event(901)).unwrap().len();
        assert_eq!((few(3 * one + 1), few(1)), (Some(3), Some(1)), "the first however large it is");
        assert_eq!(*follower.borrow(), Head { seq: 1000, is_over: false });
    }

    #[test]
    fn nothing_is_kept_without_subscribers() {
        let buffer = EventBuffer::new(0);
        buffer.publish(&event(1));
        assert_eq!((buffer.head(), buffer.recent(0, ReadLimit::events(10))), (1, None));
    }
}
