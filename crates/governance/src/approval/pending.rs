//! The state of the inbox in memory.

use std::collections::{BTreeMap, HashMap};

use tokio::sync::oneshot;
use tribune_ledger::Cid;
use tribune_records::agents::PrincipalTier;
use tribune_records::approval::decision::ApprovalDecision;
use tribune_records::approval::grant::{Grant, Granted};
use tribune_records::approval::record::Requested;

use super::denial_memory::DenialMemory;

/// Pending approvals, grants, and what was denied.
#[derive(Default)]
pub(super) struct PendingApprovals {
    pub(super) cards: BTreeMap<String, Card>,
    /// Number of cards per session.
    of_session: HashMap<String, usize>,
    /// Number of cards per class of principals, in the order of [`PrincipalTier`].
    of_tier: [usize; 3],
    pub(super) grants: BTreeMap<String, Granted>,
    pub(super) denials: DenialMemory,
}

impl PendingApprovals {
    /// Number of pending approvals of a session.
    pub(super) fn of_session(&self, session: &str) -> usize {
        self.of_session.get(session).copied().unwrap_or_default()
    }

    /// Number of pending approvals of the sessions of a class of principals.
    pub(super) fn of_tier(&self, tier: PrincipalTier) -> usize {
        self.of_tier[tier as usize]
    }

    /// The pending approval of this session for this action.
    pub(super) fn waiting(&self, session: &str, digest: &str) -> Option<&Requested> {
        if self.of_session(session) == 0 {
            return None;
        }
        let mut cards = self.cards.values().map(|card| &card.requested);
        cards.find(|requested| requested.session == session && requested.digest == digest)
    }

    /// All grants, newest first.
    pub(super) fn newest_grants(&self) -> Vec<Grant> {
        let mut granted: Vec<&Granted> = self.grants.values().collect();
        granted.sort_by(|one, other| (&other.at, &other.grant.id).cmp(&(&one.at, &one.grant.id)));
        granted.into_iter().map(|granted| granted.grant.clone()).collect()
    }

    /// Adds a recorded grant.
    pub(super) fn grant(&mut self, granted: Granted) {
        self.grants.insert(granted.grant.id.clone(), granted);
    }

    pub(super) fn insert(&mut self, card: Card) {
        let (session, tier) = (card.requested.session.clone(), card.tier);
        if self.cards.insert(card.requested.id.clone(), card).is_none() {
            self.of_tier[tier as usize] += 1;
            *self.of_session.entry(session).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<Card> {
        let card = self.cards.remove(id)?;
        self.of_tier[card.tier as usize] -= 1;
        if let Some(count) = self.of_session.get_mut(&card.requested.session) {
            *count -= 1;
            if *count == 0 {
                self.of_session.remove(&card.requested.session);
            }
        }
        Some(card)
    }
}

/// One pending approval.
pub(super) struct Card {
    pub(super) requested: Requested,
    /// The class of the principal that opened its session.
    pub(super) tier: PrincipalTier,
    /// The request's entry.
    pub(super) entry: Cid,
    pub(super) votes: Vec<String>,
    /// A decision is being written.
    pub(super) is_deciding: bool,
    /// The turn that waits for the decision, if one still does.
    pub(super) turn: Option<oneshot::Sender<ApprovalDecision>>,
}
