//! The live end of a session's events. Whoever follows a session reads at its own pace: from memory while the events
//! are fresh, from the vault when it fell behind. A slow reader costs the session nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;
use tribune_runtime::{RuntimeEvent, SessionKey};
use tribune_storage::vault::{ReadLimit, StoredEvent};

/// Events kept in memory while someone follows, at most this many and this many bytes.
const RECENT: usize = 512;
const RECENT_BYTES: usize = 256 << 10;

/// The live ends of the sessions that are loaded, for whoever writes into one outside of its turns.
#[derive(Debug, Default)]
pub struct EventHub(Mutex<HashMap<SessionKey, Weak<EventBuffer>>>);

impl EventHub {
    fn all(&self) -> MutexGuard<'_, HashMap<SessionKey, Weak<EventBuffer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, key: &SessionKey, feed: &Arc<EventBuffer>) {
        self.all().insert(key.clone(), Arc::downgrade(feed));
    }

    /// Forgets a feed, unless another took its place.
    pub fn remove(&self, key: &SessionKey, feed: &Arc<EventBuffer>) {
        let mut all = self.all();
        if all.get(key).is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(feed))) {
            all.remove(key);
        }
    }

    /// Shows events that are durable to those who follow their session. Whoever calls this holds the session's journal, so that
    /// events are shown in their order.
    pub(crate) fn publish(&self, key: &SessionKey, events: &[RuntimeEvent]) {
        let feed = self.all().get(key).and_then(Weak::upgrade);
        if let Some(feed) = feed {
            events.iter().for_each(|event| feed.publish(event));
        }
    }
}

/// The newest events of one session.
#[derive(Debug)]
pub struct EventBuffer {
    head: watch::Sender<Head>,
    recent: Mutex<Recent>,
}

/// Where the stream ends now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Number of the newest event.
    pub seq: u64,
    /// The session was let go: nothing more comes through this feed.
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

    /// How many follow.
    pub fn followers(&self) -> usize {
        self.head.receiver_count()
    }

    pub fn follow(&self) -> watch::Receiver<Head> {
        self.head.subscribe()
    }

    /// Shows an event that is durable.
    pub fn publish(&self, event: &RuntimeEvent) {
        if self.head.receiver_count() > 0
            && let Ok(json) = serde_json::to_string(event)
        {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.bytes += json.len();
            recent.events.push_back(StoredEvent { seq: event.seq, json });
            while recent.events.len() > RECENT || recent.bytes > RECENT_BYTES {
                let dropped = recent.events.pop_front();
                recent.bytes -= dropped.map_or(0, |event| event.json.len());
            }
        } else {
            self.clear();
        }
        self.head.send_replace(Head { seq: event.seq, is_over: false });
    }

    /// Tells everyone who follows that nothing more comes.
    pub fn end(&self) {
        self.head.send_modify(|head| head.is_over = true);
    }

    /// Lets go of what is kept in memory; the vault has it all.
    pub fn clear(&self) {
        *self.recent.lock().unwrap_or_else(PoisonError::into_inner) = Recent::default();
    }

    /// Events behind `after`, if the next one is still in memory.
    pub fn recent(&self, after: u64, mut most: ReadLimit) -> Option<Vec<StoredEvent>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let first = recent.events.front()?.seq;
        let skip = (after + 1).checked_sub(first)?;
        let behind = recent.events.iter().skip(usize::try_from(skip).ok()?).enumerate();
        let fits = behind.take_while(|(at, event)| most.takes(event.json.len(), *at == 0));
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
    fn recent_events_are_given_from_any_place_that_is_still_there() {
        let feed = EventBuffer::new(10);
        let follower = feed.follow();
        for seq in 11..=1000 {
            feed.publish(&event(seq));
        }
        let seqs = |after, limit| {
            feed.recent(after, ReadLimit::events(limit))
                .map(|events| events.iter().map(|event| event.seq).collect::<Vec<_>>())
        };
        assert_eq!(seqs(998, 10), Some(vec![999, 1000]));
        assert_eq!(seqs(488, 2), Some(vec![489, 490]), "the oldest that is kept");
        assert_eq!(seqs(487, 2), None, "one before it: the vault has to be asked");
        assert_eq!(seqs(1000, 2), None);
        let few = |bytes| feed.recent(900, ReadLimit { events: 10, bytes }).map(|events| events.len());
        let one = serde_json::to_string(&event(901)).unwrap().len();
        assert_eq!((few(3 * one + 1), few(1)), (Some(3), Some(1)), "the first however large it is");
        assert_eq!(*follower.borrow(), Head { seq: 1000, is_over: false });
    }

    #[test]
    fn nothing_is_kept_for_nobody() {
        let feed = EventBuffer::new(0);
        feed.publish(&event(1));
        assert_eq!((feed.head(), feed.recent(0, ReadLimit::events(10))), (1, None));
    }
}
