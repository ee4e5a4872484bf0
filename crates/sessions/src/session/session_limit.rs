//! The limit of open sessions. The count follows the ledger: a slot is taken before an opening is recorded, and returned
//! when the opening fails or a closing is recorded.
//!
//! Unregistered callers together have a share of the slots, and each of them a share of that, so that they cannot lock out
//! registered agents.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tribune_records::agents::is_unregistered;
use tribune_runtime::AgentId;

use super::error::SessionError;

/// The divisors of the limit for unregistered callers: together one slot in two, each caller one in eight.
const UNREGISTERED_DIVISOR: usize = 2;
const PER_UNREGISTERED_DIVISOR: usize = 8;

/// Counts open sessions against a maximum. Clones share the count.
#[derive(Debug, Clone)]
pub(super) struct SessionLimit {
    open: Arc<Mutex<OpenCounts>>,
    max: usize,
}

#[derive(Debug, Default)]
struct OpenCounts {
    all: usize,
    unregistered: usize,
    by_unregistered: HashMap<String, usize>,
}

/// A slot for a session that is about to be opened. Dropping it returns the slot, unless [`keep`](Self::keep) was called.
#[derive(Debug)]
pub(super) struct SessionSlot {
    limit: SessionLimit,
    agent: AgentId,
    is_kept: bool,
}

/// What happens when every slot is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfFull {
    Refuse,
    /// For standing agents, without which the daemon does not start.
    Admit,
}

impl SessionLimit {
    /// `open` lists the sessions that are open already, by agent.
    pub(super) fn new(open: Vec<(String, usize)>, max: usize) -> Self {
        let mut counts = OpenCounts::default();
        for (agent, count) in open {
            counts.add(&agent, count);
        }
        Self { open: Arc::new(Mutex::new(counts)), max }
    }

    pub(super) fn taken(&self) -> usize {
        self.lock().all
    }

    /// Takes a slot for a session of this agent, if one is free.
    pub(super) fn take(&self, agent: &AgentId, if_full: IfFull) -> Result<SessionSlot, SessionError> {
        let mut counts = self.lock();
        if counts.all >= self.max && if_full == IfFull::Refuse {
            return Err(SessionError::TooMany(self.max));
        }
        if is_unregistered(agent.as_str()) {
            let together = self.max / UNREGISTERED_DIVISOR;
            let each = (self.max / PER_UNREGISTERED_DIVISOR).max(1);
            if counts.unregistered >= together {
                return Err(SessionError::TooManyAnonymous(together));
            }
            if counts.by_unregistered.get(agent.as_str()).is_some_and(|own| *own >= each) {
                return Err(SessionError::TooManyOfOneCaller(each));
            }
        }
        counts.add(agent.as_str(), 1);
        Ok(SessionSlot { limit: self.clone(), agent: agent.clone(), is_kept: false })
    }

    /// Returns the slot of a session of this agent whose closing is recorded.
    pub(super) fn leave(&self, agent: &AgentId) {
        self.lock().remove(agent.as_str());
    }

    fn lock(&self) -> MutexGuard<'_, OpenCounts> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenCounts {
    fn add(&mut self, agent: &str, count: usize) {
        self.all += count;
        if is_unregistered(agent) {
            self.unregistered += count;
            *self.by_unregistered.entry(agent.to_owned()).or_default() += count;
        }
    }

    fn remove(&mut self, agent: &str) {
        // The count is never below the number of recorded sessions, so it does not go below zero.
        self.all = self.all.saturating_sub(1);
        if is_unregistered(agent) {
            self.unregistered = self.unregistered.saturating_sub(1);
            if let Some(own) = self.by_unregistered.get_mut(agent) {
                *own = own.saturating_sub(1);
                if *own == 0 {
                    self.by_unregistered.remove(agent);
                }
            }
        }
    }
}

impl SessionSlot {
    /// Keeps the slot: the opening is recorded, and [`SessionLimit::leave`] returns the slot.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        if !self.is_kept {
            self.limit.leave(&self.agent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(limit: &SessionLimit, agent: &str) -> Result<SessionSlot, String> {
        limit.take(&agent.parse().unwrap(), IfFull::Refuse).map_err(|error| error.to_string())
    }

    #[test]
    fn slot_is_returned_unless_kept() {
        let main = "main".parse().unwrap();
        let limit = SessionLimit::new(vec![("main".to_owned(), 1)], 2);
        let slot = take(&limit, "main").unwrap();
        assert!(take(&limit, "main").is_err(), "taken before the opening is recorded");
        drop(slot);
        take(&limit, "main").unwrap().keep();
        assert_eq!((limit.taken(), take(&limit, "main").is_err()), (2, true));
        limit.take(&main, IfFull::Admit).unwrap().keep();
        assert_eq!(limit.taken(), 3);
        limit.leave(&main);
        assert!(take(&limit, "main").is_err());
        limit.leave(&main);
        assert!(take(&limit, "main").is_ok());
    }

    #[test]
    fn unregistered_callers_share_half_and_each_has_an_eighth() {
        let limit = SessionLimit::new(vec![("stranger-a".to_owned(), 1)], 16);
        take(&limit, "stranger-a").unwrap().keep();
        let refused = take(&limit, "stranger-a").unwrap_err();
        assert!(refused.starts_with("you have 2 sessions open"), "{refused}");
        for other in ["stranger-b", "stranger-c", "anonymous"] {
            take(&limit, other).unwrap().keep();
            take(&limit, other).unwrap().keep();
        }
        let refused = take(&limit, "stranger-d").unwrap_err();
        assert!(refused.starts_with("unregistered callers have 8 sessions open"), "{refused}");
        for _ in 0..8 {
            take(&limit, "main").unwrap().keep();
        }
        assert!(take(&limit, "main").is_err());
        limit.leave(&"stranger-b".parse().unwrap());
        assert!(take(&limit, "stranger-d").is_ok());
    }
}
