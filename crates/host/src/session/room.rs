//! How many sessions are open. The count follows the record: a place is taken before an opening is written, and given
//! back when the opening did not come about or a closing did.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The places that sessions take while they are open. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Room {
    taken: Arc<AtomicUsize>,
    max: usize,
}

/// A place for a session that is about to be opened. Given back when this is dropped, unless it was kept.
#[derive(Debug)]
pub(super) struct Place {
    room: Room,
    is_kept: bool,
}

/// What to do when every place is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfFull {
    Refuse,
    /// For standing agents, without which the daemon would not start.
    Admit,
}

impl Room {
    pub(super) fn new(taken: usize, max: usize) -> Self {
        Self { taken: Arc::new(AtomicUsize::new(taken)), max }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// Takes a place, if there is one.
    pub(super) fn take(&self, if_full: IfFull) -> Option<Place> {
        let next = |taken: usize| (if_full == IfFull::Admit || taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).ok()?;
        Some(Place { room: self.clone(), is_kept: false })
    }

    /// A session is closed on record.
    pub(super) fn leave(&self) {
        // The count is never below what is on record, so this never goes below nothing.
        let _ = self
            .taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| Some(taken.saturating_sub(1)));
    }
}

impl Place {
    /// The session is open on record; [`Room::leave`] gives the place back.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_kept {
            self.room.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_not_kept_is_free_again() {
        let room = Room::new(1, 2);
        let place = room.take(IfFull::Refuse).unwrap();
        assert!(room.take(IfFull::Refuse).is_none(), "taken before anything is on record");
        drop(place);
        room.take(IfFull::Refuse).unwrap().keep();
        assert_eq!((room.taken(), room.take(IfFull::Refuse).is_none()), (2, true));
        room.take(IfFull::Admit).unwrap().keep();
        assert_eq!(room.taken(), 3);
        room.leave();
        assert!(room.take(IfFull::Refuse).is_none());
        room.leave();
        assert!(room.take(IfFull::Refuse).is_some());
    }
}
