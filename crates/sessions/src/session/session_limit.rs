//! How many sessions are open. The count follows the record: a place is taken before an opening is written, and given
//! back when the opening did not come about or a closing did.
//!
//! Strangers have a part of the places, and each of them a part of that, so that they cannot keep anyone else out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tribune_records::agents::is_unregistered;
use tribune_runtime::AgentId;

use super::error::SessionError;

/// Strangers together have one place in two, and one stranger one in eight.
const STRANGERS_ONE_IN: usize = 2;
const A_STRANGER_ONE_IN: usize = 8;

/// The places that sessions take while they are open. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct SessionLimit {
    taken: Arc<Mutex<Taken>>,
    max: usize,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    strangers: usize,
    by_stranger: HashMap<String, usize>,
}

/// A place for a session that is about to be opened. Given back when this is dropped, unless it was kept.
#[derive(Debug)]
pub(super) struct SessionSlot {
    room: SessionLimit,
    agent: AgentId,
    is_kept: bool,
}

/// What to do when every place is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfFull {
    Refuse,
    /// For standing agents, without which the daemon would not start.
    Admit,
}

impl SessionLimit {
    /// With the sessions that are open already, by agent.
    pub(super) fn new(open: Vec<(String, usize)>, max: usize) -> Self {
        let mut taken = Taken::default();
        for (agent, count) in open {
            taken.enter(&agent, count);
        }
        Self { taken: Arc::new(Mutex::new(taken)), max }
    }

    pub(super) fn taken(&self) -> usize {
        self.lock().all
    }

    /// Takes a place for a session of this agent, if there is one.
    pub(super) fn take(&self, agent: &AgentId, if_full: IfFull) -> Result<SessionSlot, SessionError> {
        let mut taken = self.lock();
        if taken.all >= self.max && if_full == IfFull::Refuse {
            return Err(SessionError::TooMany(self.max));
        }
        if is_unregistered(agent.as_str()) {
            let strangers = self.max / STRANGERS_ONE_IN;
            let each = (self.max / A_STRANGER_ONE_IN).max(1);
            if taken.strangers >= strangers {
                return Err(SessionError::TooManyOfStrangers(strangers));
            }
            if taken.by_stranger.get(agent.as_str()).is_some_and(|own| *own >= each) {
                return Err(SessionError::TooManyOfOne(each));
            }
        }
        taken.enter(agent.as_str(), 1);
        Ok(SessionSlot { room: self.clone(), agent: agent.clone(), is_kept: false })
    }

    /// A session of this agent is closed on record.
    pub(super) fn leave(&self, agent: &AgentId) {
        self.lock().leave(agent.as_str());
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn enter(&mut self, agent: &str, count: usize) {
        self.all += count;
        if is_unregistered(agent) {
            self.strangers += count;
            *self.by_stranger.entry(agent.to_owned()).or_default() += count;
        }
    }

    fn leave(&mut self, agent: &str) {
        // The count is never below what is on record, so this never goes below nothing.
        self.all = self.all.saturating_sub(1);
        if is_unregistered(agent) {
            self.strangers = self.strangers.saturating_sub(1);
            if let Some(own) = self.by_stranger.get_mut(agent) {
                *own = own.saturating_sub(1);
                if *own == 0 {
                    self.by_stranger.remove(agent);
                }
            }
        }
    }
}

impl SessionSlot {
    /// The session is open on record; [`Room::leave`] gives the place back.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        if !self.is_kept {
            self.room.leave(&self.agent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(room: &SessionLimit, agent: &str) -> Result<SessionSlot, String> {
        room.take(&agent.parse().unwrap(), IfFull::Refuse).map_err(|error| error.to_string())
    }

    #[test]
    fn a_place_that_is_not_kept_is_free_again() {
        let main = "main".parse().unwrap();
        let room = SessionLimit::new(vec![("main".to_owned(), 1)], 2);
        let place = take(&room, "main").unwrap();
        assert!(take(&room, "main").is_err(), "taken before anything is on record");
        drop(place);
        take(&room, "main").unwrap().keep();
        assert_eq!((room.taken(), take(&room, "main").is_err()), (2, true));
        room.take(&main, IfFull::Admit).unwrap().keep();
        assert_eq!(room.taken(), 3);
        room.leave(&main);
        assert!(take(&room, "main").is_err());
        room.leave(&main);
        assert!(take(&room, "main").is_ok());
    }

    #[test]
    fn strangers_have_a_part_of_the_room_and_each_a_part_of_that() {
        let room = SessionLimit::new(vec![("stranger-a".to_owned(), 1)], 16);
        take(&room, "stranger-a").unwrap().keep();
        let refused = take(&room, "stranger-a").unwrap_err();
        assert!(refused.starts_with("you have 2 sessions open"), "{refused}");
        for other in ["stranger-b", "stranger-c", "anonymous"] {
            take(&room, other).unwrap().keep();
            take(&room, other).unwrap().keep();
        }
        let refused = take(&room, "stranger-d").unwrap_err();
        assert!(refused.starts_with("strangers have 8 sessions open"), "{refused}");
        for _ in 0..8 {
            take(&room, "main").unwrap().keep();
        }
        assert!(take(&room, "main").is_err());
        room.leave(&"stranger-b".parse().unwrap());
        assert!(take(&room, "stranger-d").is_ok());
    }
}
