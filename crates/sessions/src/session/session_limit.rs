//! The limit of open sessions. The count follows the ledger: a slot is taken before an opening is recorded, and returned
//! when the opening fails or a closing is recorded.
//!
//! Each class of principals has a share of the slots, so that no class can lock out another one: guests together one half, and
//! each of them a share of that; agents that act by themselves three quarters; both together all but an eighth, which is left
//! for the operator.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tribune_records::agents::{PrincipalTier, is_unregistered};
use tribune_runtime::SessionKey;
use tribune_storage::store::OpenSession;

use super::error::SessionError;

/// The divisors of the limit for unregistered callers: together one slot in two, each caller one in eight.
const UNREGISTERED_DIVISOR: usize = 2;
const PER_UNREGISTERED_DIVISOR: usize = 8;

/// The divisors of the shares that the agents of the roster, and all but the operator, leave free.
const MEMBERS_LEAVE_DIVISOR: usize = 4;
const OPERATOR_DIVISOR: usize = 8;

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
    /// The keys of the sessions that agents of the roster opened by themselves.
    of_members: HashSet<String>,
}

/// A slot for a session that is about to be opened. Dropping it returns the slot, unless [`keep`](Self::keep) was called.
#[derive(Debug)]
pub(super) struct SessionSlot {
    limit: SessionLimit,
    key: SessionKey,
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
    /// `open` lists the sessions that are open already.
    pub(super) fn new(open: Vec<OpenSession>, max: usize) -> Self {
        let mut counts = OpenCounts::default();
        for OpenSession { key, agent, credential } in open {
            counts.add(&key, &agent, PrincipalTier::of_session(&agent, credential.as_deref()));
        }
        Self { open: Arc::new(Mutex::new(counts)), max }
    }

    pub(super) fn taken(&self) -> usize {
        self.lock().all
    }

    /// Takes a slot for a session that a principal of this class opens, if one is free.
    pub(super) fn take(
        &self,
        key: &SessionKey,
        tier: PrincipalTier,
        if_full: IfFull,
    ) -> Result<SessionSlot, SessionError> {
        let (agent, mut counts) = (key.agent(), self.lock());
        if counts.all >= self.max && if_full == IfFull::Refuse {
            return Err(SessionError::TooMany(self.max));
        }
        let shared = self.max - self.max / OPERATOR_DIVISOR;
        if tier != PrincipalTier::Operator && counts.unregistered + counts.of_members.len() >= shared {
            return Err(SessionError::TooManyBesideOperator(shared));
        }
        let for_members = self.max - self.max / MEMBERS_LEAVE_DIVISOR;
        if tier == PrincipalTier::Member && counts.of_members.len() >= for_members {
            return Err(SessionError::TooManyOfAgents(for_members));
        }
        if tier == PrincipalTier::Guest {
            let together = self.max / UNREGISTERED_DIVISOR;
            let each = (self.max / PER_UNREGISTERED_DIVISOR).max(1);
            if counts.unregistered >= together {
                return Err(SessionError::TooManyAnonymous(together));
            }
            if counts.by_unregistered.get(agent.as_str()).is_some_and(|own| *own >= each) {
                return Err(SessionError::TooManyOfOneCaller(each));
            }
        }
        counts.add(key.as_str(), agent.as_str(), tier);
        Ok(SessionSlot { limit: self.clone(), key: key.clone(), is_kept: false })
    }

    /// Returns the slot of a session whose closing is recorded.
    pub(super) fn leave(&self, key: &SessionKey) {
        self.lock().remove(key.as_str(), key.agent().as_str());
    }

    fn lock(&self) -> MutexGuard<'_, OpenCounts> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenCounts {
    fn add(&mut self, key: &str, agent: &str, tier: PrincipalTier) {
        self.all += 1;
        match tier {
            PrincipalTier::Operator => {}
            PrincipalTier::Member => drop(self.of_members.insert(key.to_owned())),
            PrincipalTier::Guest => {
                self.unregistered += 1;
                *self.by_unregistered.entry(agent.to_owned()).or_default() += 1;
            }
        }
    }

    fn remove(&mut self, key: &str, agent: &str) {
        self.of_members.remove(key);
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
            self.limit.leave(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(agent: &str, number: usize) -> SessionKey {
        format!("agent:{agent}:rpc:local:dm:{number}").parse().unwrap()
    }

    fn open(agent: &str, credential: Option<&str>) -> OpenSession {
        let key = session(agent, 999).to_string();
        OpenSession { key, agent: agent.to_owned(), credential: credential.map(str::to_owned) }
    }

    fn take(limit: &SessionLimit, agent: &str, number: usize) -> Result<SessionSlot, String> {
        let tier = PrincipalTier::of_session(agent, None);
        let taken = limit.take(&session(agent, number), tier, IfFull::Refuse);
        taken.map_err(|error| error.to_string())
    }

    #[test]
    fn slot_is_returned_unless_kept() {
        let limit = SessionLimit::new(vec![open("main", None)], 2);
        let slot = take(&limit, "main", 0).unwrap();
        assert!(take(&limit, "main", 1).is_err(), "taken before the opening is recorded");
        drop(slot);
        take(&limit, "main", 0).unwrap().keep();
        assert_eq!((limit.taken(), take(&limit, "main", 1).is_err()), (2, true));
        limit.take(&session("main", 2), PrincipalTier::Operator, IfFull::Admit).unwrap().keep();
        assert_eq!(limit.taken(), 3);
        limit.leave(&session("main", 2));
        assert!(take(&limit, "main", 3).is_err());
        limit.leave(&session("main", 0));
        assert!(take(&limit, "main", 3).is_ok());
    }

    #[test]
    fn unregistered_callers_share_half_and_each_has_an_eighth() {
        let limit = SessionLimit::new(vec![open("stranger-a", Some("key"))], 16);
        take(&limit, "stranger-a", 0).unwrap().keep();
        let refused = take(&limit, "stranger-a", 1).unwrap_err();
        assert!(refused.starts_with("you have 2 sessions open"), "{refused}");
        for other in ["stranger-b", "stranger-c", "anonymous"] {
            take(&limit, other, 0).unwrap().keep();
            take(&limit, other, 1).unwrap().keep();
        }
        let refused = take(&limit, "stranger-d", 0).unwrap_err();
        assert!(refused.starts_with("unregistered callers have 8 sessions open"), "{refused}");
        for number in 0..8 {
            take(&limit, "main", number).unwrap().keep();
        }
        assert!(take(&limit, "main", 8).is_err());
        limit.leave(&session("stranger-b", 0));
        assert!(take(&limit, "stranger-d", 0).is_ok());
    }

    /// However many sessions two classes open, the third one still gets its share.
    #[test]
    fn no_class_of_principals_takes_the_sessions_of_another() {
        let fill = |limit: &SessionLimit, tier: PrincipalTier| {
            let agents = (0..64).map(|n| {
                if tier == PrincipalTier::Guest { format!("stranger-{n}") } else { format!("a{n}") }
            });
            let keys = agents.flat_map(|agent| (0..64).map(move |number| session(&agent, number)));
            let taken = keys.filter_map(|key| limit.take(&key, tier, IfFull::Refuse).ok());
            taken.map(SessionSlot::keep).count()
        };
        use PrincipalTier::{Guest, Member, Operator};
        for (greedy, left) in [
            ([Guest, Member], Operator),
            ([Member, Guest], Operator),
            ([Member, Member], Guest),
            ([Guest, Guest], Member),
        ] {
            let limit = SessionLimit::new(Vec::new(), 64);
            let taken: usize = greedy.into_iter().map(|tier| fill(&limit, tier)).sum();
            assert!((1..=56).contains(&taken), "{greedy:?} took {taken}");
            assert!(fill(&limit, left) >= 8, "{left:?} after {greedy:?}");
        }
    }
}
