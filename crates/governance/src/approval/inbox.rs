//! The inbox: all pending approvals and grants in force. The ledger holds the same state: an approval enters the inbox when its
//! request is durable, and leaves it when its decision is durable.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio_util::task::TaskTracker;
use tribune_ledger::{Cid, Draft, EntryQuality};
use tribune_records::agents::PrincipalTier;
use tribune_records::approval::action::Files;
use tribune_records::approval::approver::Approver;
use tribune_records::approval::decision::{ApprovalDecision, DecisionOutcome, DecisionRequest};
use tribune_records::approval::grant;
use tribune_records::approval::grant::{Grant, GrantQuery, GrantTerms, Granted};
use tribune_records::approval::record::{
    ApprovalRecord, ApprovalState, CallRunner, Decided, DecisionKind, Requested, approval_entity,
    denials_entity, grant_entity,
};
use tribune_records::ledger_payloads::payload;
use tribune_runtime::SessionState;
use tribune_storage::store::{ApprovalRow, StoreError};

use super::denial_memory::{self, KnownAction};
use super::error::ApprovalError;
use super::pending::{Card, PendingApprovals};
use crate::storage_handles::StorageHandles;

/// Most pending approvals of all sessions together; more than a person can read.
pub(crate) const MAX_PENDING: usize = most_pending(PrincipalTier::Operator)
    + most_pending(PrincipalTier::Member)
    + most_pending(PrincipalTier::Guest);

/// Most pending approvals of the sessions that one class of principals opened. The quotas are separate, so that no class can
/// fill the inbox for another one. Nobody is asked about new calls of guests; an inbox of an older version may have some.
const fn most_pending(tier: PrincipalTier) -> usize {
    match tier {
        PrincipalTier::Operator => 20_000,
        PrincipalTier::Member => 10_000,
        PrincipalTier::Guest => 1_000,
    }
}

/// Most pending approvals of one session. An agent with more of them is not being answered.
const MAX_PENDING_PER_SESSION: usize = 64;

/// Attempts, and the wait per attempt, of a decision whose request is recorded but not yet in the inbox.
const CLAIM_ATTEMPTS: usize = 20;
const CLAIM_WAIT: Duration = Duration::from_millis(100);

/// Ledger entries per write.
const WRITTEN_AT_ONCE: usize = 64;

/// Longest reason of a decision, in characters.
pub(super) const MAX_REASON_CHARS: usize = 500;

/// The inbox of a daemon; clones share its state.
#[derive(Debug, Clone)]
pub struct Inbox(Arc<Shared>);

struct Shared {
    storage: StorageHandles,
    state: Mutex<PendingApprovals>,
    /// Incremented with each change, to wake watchers.
    changes: watch::Sender<u64>,
    /// Runs the writing of decisions, so that it completes even if the caller goes away.
    tasks: TaskTracker,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inbox")
    }
}

impl Inbox {
    /// Restores the inbox from the ledger.
    pub fn load(storage: StorageHandles, tasks: TaskTracker) -> Result<Self, StoreError> {
        let readers = &storage.readers;
        let mut state = PendingApprovals::default();
        for row in readers.now(|reader| reader.pending_approvals(MAX_PENDING))? {
            let ApprovalRow { requested, entry, votes, .. } = row;
            // A request is recorded in its session, so that session is there.
            let session = readers.now(|reader| reader.session(&requested.session))?;
            let tier = session.map_or(PrincipalTier::Member, |session| session.tier());
            let card = Card { requested, tier, entry, votes, is_deciding: false, turn: None };
            state.insert(card);
        }
        for row in readers.now(|reader| reader.denials(MAX_PENDING))? {
            state.denials.restore(row);
        }
        for granted in readers.now(|reader| reader.grants())? {
            // Closing a session ends its grants before the closing is recorded.
            let is_over = match &granted.grant.session {
                Some(key) => readers
                    .now(|reader| reader.session(key))?
                    .is_none_or(|row| row.state == SessionState::Closed),
                None => false,
            };
            if !is_over {
                state.grant(granted);
            }
        }
        let shared = Shared { storage, state: Mutex::new(state), changes: watch::Sender::new(0), tasks };
        Ok(Self(Arc::new(shared)))
    }

    fn state(&self) -> MutexGuard<'_, PendingApprovals> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.0.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Notifies of every change of the inbox.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Number of pending approvals.
    pub fn pending(&self) -> usize {
        self.state().cards.len()
    }

    /// Whether the limits of its class and of the session allow one more approval.
    pub(crate) fn has_room(&self, session: &str, tier: PrincipalTier) -> bool {
        let state = self.state();
        state.of_tier(tier) < most_pending(tier) && state.of_session(session) < MAX_PENDING_PER_SESSION
    }

    /// Adds a request whose entry is durable, of a session that this class of principals opened. The returned receiver gives
    /// the turn the decision.
    pub(crate) fn ask(
        &self,
        requested: Requested,
        tier: PrincipalTier,
        entry: Cid,
    ) -> oneshot::Receiver<ApprovalDecision> {
        let (turn, decision) = oneshot::channel();
        let card = Card { requested, tier, entry, votes: Vec::new(), is_deciding: false, turn: Some(turn) };
        self.state().insert(card);
        self.changed();
        decision
    }

    /// Whether a request is pending and no decision is being written. Never true for an allowed request.
    pub(crate) fn is_undecided(&self, id: &str) -> bool {
        self.state().cards.get(id).is_some_and(|card| !card.is_deciding)
    }

    /// What is known of an action of a session: a person denied it, or is being asked about it.
    pub(crate) fn known_action(&self, session: &str, tool: &str, digest: &str) -> Option<KnownAction> {
        if !denial_memory::is_agents_own(tool) {
            return None;
        }
        let state = self.state();
        let denied = state.denials.denial(session, digest).cloned().map(KnownAction::Denied);
        denied.or_else(|| Some(KnownAction::Waits(state.waiting(session, digest)?.id.clone())))
    }

    /// Who stopped a session, if someone did and its owner has not spoken in it since.
    pub(crate) fn stopped_by(&self, session: &str) -> Option<String> {
        self.state().denials.stopped_by(session).map(str::to_owned)
    }

    /// Lifts the denials of a session, because its owner speaks in it.
    pub(crate) async fn lift_denials(&self, session: &str) -> Result<(), StoreError> {
        if !self.state().denials.contains(session) {
            return Ok(());
        }
        let record = ApprovalRecord::DenialsLifted { session: session.to_owned() };
        self.append(&[self.draft(&denials_entity(session), "owner", Vec::new(), &record)]).await?;
        self.state().denials.lift(session);
        Ok(())
    }

    /// Waits until a recorded request is also in the inbox; its text is stored by then.
    pub async fn arrival(&self, id: &str) {
        let mut changes = self.watch();
        for _ in 0..CLAIM_ATTEMPTS {
            if self.state().cards.contains_key(id) {
                return;
            }
            let _ = tokio::time::timeout(CLAIM_WAIT, changes.changed()).await;
        }
    }

    /// All grants that are not revoked, including expired ones, newest first.
    pub fn grants(&self) -> Vec<Grant> {
        self.state().newest_grants()
    }

    /// The first grant in force that covers a call. Calls `runs` only if a grant covers the arguments, because it reads the
    /// disk.
    pub(crate) fn grant_for(
        &self,
        call: &GrantQuery<'_>,
        runs: impl FnOnce() -> Option<Files>,
    ) -> Option<String> {
        let now = self.0.storage.clock.now();
        let covers = |grant: &&Grant| grant.is_in_force(now) && grant.covers(call);
        let covering: Vec<(String, Files)> = self
            .state()
            .grants
            .values()
            .map(|granted| &granted.grant)
            .filter(covers)
            .map(|grant| (grant.id.clone(), grant.files.clone()))
            .collect();
        let runs = covering.first().and_then(|_| runs()).map(grant::pinned_files)?;
        covering.into_iter().find(|(_, files)| *files == runs).map(|(id, _)| id)
    }

    /// Decides an approval. The writing completes even if the caller goes away.
    pub async fn decide(
        &self,
        id: &str,
        request: DecisionRequest,
        who: Approver,
        terms: GrantTerms,
    ) -> Result<DecisionOutcome, ApprovalError> {
        let (inbox, id) = (self.clone(), id.to_owned());
        let decided =
            self.0.tasks.spawn(async move { inbox.write_decision(&id, request, &who, terms).await });
        decided.await.unwrap_or(Err(ApprovalError::Stopping))
    }

    async fn write_decision(
        &self,
        id: &str,
        request: DecisionRequest,
        who: &Approver,
        terms: GrantTerms,
    ) -> Result<DecisionOutcome, ApprovalError> {
        let (mut requested, entry, votes) = self.claim_soon(id, who).await?;
        let written = self.decision_entries(&requested, entry, &votes, &request, who, terms).await;
        let mut state = self.state();
        let Some(card) = state.cards.get_mut(id) else { return Err(ApprovalError::Unknown(id.to_owned())) };
        card.is_deciding = false;
        let (is_final, granted, missing) = written?;
        if !is_final {
            card.votes.push(who.id.clone());
            drop(state);
            self.changed();
            return Ok(DecisionOutcome {
                requested,
                state: ApprovalState::Pending,
                missing,
                grant: None,
                is_orphan: false,
            });
        }
        let Some(card) = state.remove(id) else { return Err(ApprovalError::Unknown(id.to_owned())) };
        let grant_id = granted.as_ref().map(|granted| granted.grant.id.clone());
        if let Some(granted) = granted {
            state.grant(granted);
        }
        let by = who.id.clone();
        let decision = if request.decision.allows() {
            ApprovalDecision::Allowed { by, text: request.text.map(|(text, _)| text) }
        } else {
            let stop = request.decision == DecisionKind::DenyStop;
            ApprovalDecision::Denied { by, reason: request.reason, stop }
        };
        state.denials.insert(&card.requested, &decision);
        drop(state);
        let state = decision.state();
        let is_orphan = card.turn.is_none_or(|turn| turn.send(decision).is_err());
        requested = card.requested;
        self.changed();
        Ok(DecisionOutcome { requested, state, missing: 0, grant: grant_id, is_orphan })
    }

    /// Claims a card, and waits for it if its request is recorded but not yet in the inbox.
    async fn claim_soon(
        &self,
        id: &str,
        who: &Approver,
    ) -> Result<(Requested, Cid, Vec<String>), ApprovalError> {
        let mut changes = self.watch();
        for _ in 0..CLAIM_ATTEMPTS {
            match self.claim(id, who) {
                Err(ApprovalError::Over { state: ApprovalState::Pending, .. }) => {}
                claimed => return claimed,
            }
            let _ = tokio::time::timeout(CLAIM_WAIT, changes.changed()).await;
        }
        Err(ApprovalError::Racing(id.to_owned()))
    }

    /// Claims a card for one decision, if `who` may make it.
    fn claim(&self, id: &str, who: &Approver) -> Result<(Requested, Cid, Vec<String>), ApprovalError> {
        let mut state = self.state();
        let Some(card) = state.cards.get_mut(id) else {
            drop(state);
            return Err(self.why_gone(id));
        };
        if self.0.storage.clock.now().to_string() >= card.requested.expires_at {
            return Err(ApprovalError::Over { id: id.to_owned(), state: ApprovalState::Expired });
        }
        who.may_decide(&card.requested)?;
        if card.votes.contains(&who.id) {
            return Err(ApprovalError::VotedBefore(id.to_owned()));
        }
        if card.is_deciding {
            return Err(ApprovalError::Racing(id.to_owned()));
        }
        card.is_deciding = true;
        Ok((card.requested.clone(), card.entry, card.votes.clone()))
    }

    fn why_gone(&self, id: &str) -> ApprovalError {
        match self.0.storage.readers.now(|reader| reader.approval(id)) {
            Ok(Some(row)) => ApprovalError::Over { id: id.to_owned(), state: row.state },
            Ok(None) => ApprovalError::Unknown(id.to_owned()),
            Err(error) => ApprovalError::Store(error),
        }
    }

    /// Records the vote or the decision. Returns whether it was final, the grant, and the number of missing votes.
    async fn decision_entries(
        &self,
        requested: &Requested,
        entry: Cid,
        votes: &[String],
        request: &DecisionRequest,
        who: &Approver,
        terms: GrantTerms,
    ) -> Result<(bool, Option<Granted>, u32), ApprovalError> {
        let reason = match &request.reason {
            Some(words) if words.chars().count() > MAX_REASON_CHARS => return Err(ApprovalError::LongReason),
            words => words.clone(),
        };
        let grant = Grant::from_request(requested, request, who, terms, self.0.storage.clock.now())?;
        let missing = requested.needs.saturating_sub(votes.len() as u32 + 1);
        let entity = approval_entity(&requested.id);
        if request.decision.allows() && missing > 0 {
            let record = ApprovalRecord::Voted { id: requested.id.clone(), by: who.id.clone() };
            self.append(&[self.draft(&entity, &who.id, vec![entry], &record)]).await?;
            return Ok((false, None, missing));
        }
        let decided = Decided {
            id: requested.id.clone(),
            decision: request.decision,
            by: who.id.clone(),
            reason,
            grant: grant.as_ref().map(|grant| grant.id.clone()),
            text: request.text.as_ref().map(|(_, commitment)| *commitment),
        };
        let mut drafts = vec![self.draft(&entity, &who.id, vec![entry], &ApprovalRecord::Decided(decided))];
        let granted = grant.map(|grant| {
            let record = ApprovalRecord::Granted(grant.clone());
            let draft = self.draft(&grant_entity(&grant.id), &who.id, vec![entry], &record);
            let at = draft.timestamp.to_string();
            drafts.push(draft);
            Granted { at, grant }
        });
        self.append(&drafts).await?;
        Ok((true, granted, 0))
    }

    /// Revokes a grant.
    pub async fn revoke(&self, id: &str, who: &Approver) -> Result<(), ApprovalError> {
        let (inbox, id, who) = (self.clone(), id.to_owned(), who.clone());
        let revoked = self.0.tasks.spawn(async move {
            // Takes effect before it is recorded: a revocation that cannot be recorded still holds until a restart.
            if inbox.state().grants.remove(&id).is_none() {
                return Err(ApprovalError::UnknownGrant(id));
            }
            let record = ApprovalRecord::Revoked { id: id.clone(), by: who.id.clone() };
            inbox.append(&[inbox.draft(&grant_entity(&id), &who.id, Vec::new(), &record)]).await?;
            inbox.changed();
            Ok(())
        });
        revoked.await.unwrap_or(Err(ApprovalError::Stopping))
    }

    /// Ends the grants that are limited to a session, before the session is closed.
    pub(crate) async fn end_grants_of(&self, session: &str) -> Result<(), StoreError> {
        // A decision that is being written may still create one.
        let mut changes = self.watch();
        for _ in 0..CLAIM_ATTEMPTS {
            if self.state().of_session(session) == 0 {
                break;
            }
            let _ = tokio::time::timeout(CLAIM_WAIT, changes.changed()).await;
        }
        let mut ended = Vec::new();
        self.state().grants.retain(|id, granted| {
            let is_kept = granted.grant.session.as_deref() != Some(session);
            ended.extend((!is_kept).then(|| id.clone()));
            is_kept
        });
        if ended.is_empty() {
            return Ok(());
        }
        let draft = |id: String| {
            let entity = grant_entity(&id);
            let record = ApprovalRecord::Revoked { id, by: "tribune".to_owned() };
            self.draft(&entity, "tribune", Vec::new(), &record)
        };
        let drafts: Vec<Draft> = ended.into_iter().map(draft).collect();
        for some in drafts.chunks(WRITTEN_AT_ONCE) {
            self.append(some).await?;
        }
        self.changed();
        Ok(())
    }

    /// Expires the approvals that were not decided in time. Returns those that no turn waits for.
    pub(crate) async fn expire(&self) -> Vec<Requested> {
        let now = self.0.storage.clock.now().to_string();
        self.end_all(|card| now >= card.requested.expires_at, ApprovalDecision::Expired).await
    }

    /// Withdraws approvals that are no longer needed. Returns those that no turn waits for.
    pub(crate) async fn withdraw(&self, ids: &[String]) -> Vec<Requested> {
        self.end_all(|card| ids.contains(&card.requested.id), ApprovalDecision::Withdrawn).await
    }

    /// Ends approvals that another decision has answered. Returns those that no turn waits for.
    pub(crate) async fn answer(&self, ids: &[String]) -> Vec<Requested> {
        self.end_all(|card| ids.contains(&card.requested.id), ApprovalDecision::Answered).await
    }

    /// The pending approvals of a tool.
    pub(crate) fn waiting_of(&self, tool: &str) -> Vec<Requested> {
        let state = self.state();
        let of_tool = state.cards.values().filter(|card| card.requested.tool == tool);
        of_tool.map(|card| card.requested.clone()).collect()
    }

    /// The pending approvals of a session, oldest first.
    pub fn waiting_in(&self, session: &str) -> Vec<Requested> {
        let state = self.state();
        if state.of_session(session) == 0 {
            return Vec::new();
        }
        let of_session = state.cards.values().filter(|card| card.requested.session == session);
        let mut waiting: Vec<Requested> = of_session.map(|card| card.requested.clone()).collect();
        waiting.sort_by(|one, other| (&one.expires_at, &one.id).cmp(&(&other.expires_at, &other.id)));
        waiting
    }

    /// Withdraws all approvals of a session. Returns those that no turn waits for.
    pub(crate) async fn withdraw_session(&self, session: &str) -> Vec<Requested> {
        self.end_all(|card| card.requested.session == session, ApprovalDecision::Withdrawn).await
    }

    async fn end_all(&self, is_over: impl Fn(&Card) -> bool, decision: ApprovalDecision) -> Vec<Requested> {
        let mut over = Vec::new();
        for card in self.state().cards.values_mut() {
            if !card.is_deciding && is_over(card) {
                card.is_deciding = true;
                over.push((card.requested.id.clone(), card.entry));
            }
        }
        let mut orphans = Vec::new();
        for (id, entry) in over {
            let record = match decision {
                ApprovalDecision::Expired => ApprovalRecord::Expired { id: id.clone() },
                _ => ApprovalRecord::Withdrawn { id: id.clone() },
            };
            let draft = self.draft(&approval_entity(&id), "tribune", vec![entry], &record);
            let written = self.append(&[draft]).await;
            let mut state = self.state();
            match written {
                Ok(()) => {
                    let Some(card) = state.remove(&id) else { continue };
                    drop(state);
                    if card.turn.is_none_or(|turn| turn.send(decision.clone()).is_err()) {
                        orphans.push(card.requested);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "an approval could not be ended");
                    if let Some(card) = state.cards.get_mut(&id) {
                        card.is_deciding = false;
                    }
                }
            }
        }
        self.changed();
        orphans.retain(|requested| requested.runner == CallRunner::Host);
        orphans
    }

    async fn append(&self, drafts: &[Draft]) -> Result<(), StoreError> {
        self.0.storage.ledger.append_all(drafts).await.map(drop)
    }

    fn draft(&self, entity: &str, actor: &str, parents: Vec<Cid>, record: &ApprovalRecord) -> Draft {
        Draft {
            entity_id: entity.to_owned(),
            target: entity.to_owned(),
            quality: EntryQuality::Approval,
            timestamp: self.0.storage.clock.now(),
            source: "inbox".to_owned(),
            actor: actor.to_owned(),
            parents,
            tags: Vec::new(),
            payload: payload(record),
            attested_by: None,
            envelope: None,
        }
    }
}
