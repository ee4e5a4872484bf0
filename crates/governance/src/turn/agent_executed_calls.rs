//! Calls that an agent carries out itself, in its turn: it gets leave, acts, and tells what came of it.
//!
//! What it learns from a call may reach it before anyone hears of it, so the session's labels sink when leave is given. A call
//! that waited for a person when its daemon ended is asked for again by the agent, if at all; an answer that was given
//! meanwhile holds for it, once.

use std::sync::Arc;

use tokio::sync::oneshot;
use tribune_constitution::Veto;
use tribune_ledger::Cid;
use tribune_records::approval::action::Action;
use tribune_records::approval::decision::ApprovalDecision;
use tribune_records::approval::record::{ApprovalState, CallRunner};
use tribune_records::outcome::{Access, ToolRun};
use tribune_runtime::{PermissionOutcome, RuntimeError, ToolCall, ToolOutcome};
use tribune_storage::store::ApprovalRow;

use super::calls::{Calls, Handled, Open, Progress, run};
use super::toolbox::PendingOutcome;
use super::turn_recorder::{Begun, Recorded, TurnRecorder};
use crate::gate::{Admission, CallEnd, Ticket};

/// Bytes of what an agent tells of a call that are kept.
const MAX_TOLD_BYTES: usize = 1 << 20;

/// Who objects to a path that is another name of something.
const WORKSPACE: &str = "workspace";

impl TurnRecorder {
    /// What speaks against a call that its agent carries out itself, beside the law: the law judges a path by its words, and
    /// nothing of the house's stands between the agent and what they lead to.
    pub(super) async fn objections_of_the_house(
        &mut self,
        call: &ToolCall,
    ) -> Result<Option<Veto>, RuntimeError> {
        let (governance, ground) = (Arc::clone(&self.governance), self.journal.standing.ground());
        let call = call.clone();
        let found = tokio::task::spawn_blocking(move || governance.tools.path_alias(&ground, &call));
        let found =
            found.await.map_err(|_| RuntimeError::new("internal", "the daemon is being torn down"))?;
        Ok(found.map(|sentence| Veto::new(WORKSPACE, &sentence)))
    }

    /// Lets the session's labels sink as a call will let them, before it begins: what is learned from it may be acted on before it
    /// is over. Returns what it would touch.
    pub(super) async fn sink(&mut self, call: &ToolCall) -> Result<Vec<Access>, RuntimeError> {
        let (governance, ground) = (Arc::clone(&self.governance), self.journal.standing.ground());
        let tool = call.name.clone();
        let call = call.clone();
        let touched = tokio::task::spawn_blocking(move || governance.tools.predict_access(&ground, &call))
            .await
            .map_err(|_| RuntimeError::new("internal", "the daemon is being torn down"))?;
        let gate = &self.governance.gate;
        let ended = (touched.as_slice(), CallEnd::Badly);
        let moved = gate.moved(&self.journal.standing, Some(tool.as_str()), ended)?;
        self.journal.standing.labels = moved.session;
        Ok(touched)
    }
}

/// A call that leave was given for.
pub(super) struct GrantedCall {
    pub(super) recorded: Recorded,
    touched: Vec<Access>,
    /// What the house may do itself, if the agent would rather have it done.
    admission: Admission,
}

impl Calls {
    /// Writes the verdict, and gives leave when it is durable.
    pub(super) async fn give_leave(
        &mut self,
        desk: &mut TurnRecorder,
        recorded: Recorded,
        answer: oneshot::Sender<PermissionOutcome>,
        ticket: Ticket,
    ) -> Result<Handled, RuntimeError> {
        let touched = desk.sink(&recorded.call).await?;
        self.untrack(&recorded.call.id);
        let written = desk.write().await?;
        // Durable before effect: whoever carries it out waits for this.
        let Some(admission) = ticket.redeem(&written) else {
            return Err(RuntimeError::new("internal", "a verdict was not written with its page"));
        };
        self.open(&recorded, None);
        self.given.insert(recorded.call.id.clone(), GrantedCall { recorded, touched, admission });
        let _ = answer.send(PermissionOutcome::Granted);
        Ok(Handled::events(written.events))
    }

    /// Carries out a call that leave was given for. Without leave nobody is answered.
    pub(super) fn carry_out(&mut self, desk: &TurnRecorder, call_id: &str, waiting: PendingOutcome) {
        let Some(GrantedCall { recorded, admission, .. }) = self.given.remove(call_id) else { return };
        let (governance, PendingOutcome { answer, terminal }) = (Arc::clone(&desk.governance), waiting);
        self.underway.push(Box::pin(async move {
            let done = run(&*governance.tools, admission, terminal).await;
            Progress::Ran(recorded, answer, Box::new(done))
        }));
    }

    /// Puts on record what an agent tells of a call that it had leave for.
    pub(super) async fn reported(
        &mut self,
        desk: &mut TurnRecorder,
        call_id: &str,
        outcome: ToolOutcome,
        told: oneshot::Sender<()>,
    ) -> Result<Handled, RuntimeError> {
        if let Some(GrantedCall { recorded, touched, .. }) = self.given.remove(call_id) {
            self.untrack(call_id);
            let end = outcome.content.floor_char_boundary(MAX_TOLD_BYTES);
            let content = outcome.content.get(..end).unwrap_or_default().to_owned();
            let outcome = ToolOutcome { content, ..outcome };
            desk.governance.tell_done(&desk.journal.standing, &recorded, &outcome);
            let done = ToolRun { outcome, code: None, touched, sandbox: None };
            let result = desk.record_result(&recorded, &done)?;
            self.last_result = Some(result);
            let written = desk.write().await?;
            desk.tell_persisted(&recorded, &done.outcome, result);
            let _ = told.send(());
            return Ok(Handled::events(written.events));
        }
        // Nobody had leave for it, or it was told before: there is nothing to write down.
        drop(told);
        desk.write().await.map(|written| Handled::events(written.events))
    }

    /// The answer that was given to this very call before its daemon ended, if one was. It is taken out of the way: whatever
    /// it was, it counts once.
    pub(super) async fn earlier_answer(
        &mut self,
        desk: &mut TurnRecorder,
        recorded: &Recorded,
        action: &Action,
    ) -> Result<Option<(String, ApprovalDecision)>, RuntimeError> {
        if recorded.runner != CallRunner::Agent {
            return Ok(None);
        }
        let session = desk.handle.key.to_string();
        let parked = desk.governance.readers.read(move |reader| reader.parked_of_agent(&session));
        let parked = parked.await?;
        let is_same = |row: &ApprovalRow| {
            let is_open = self.is_open(&row.requested.call_id, &row.requested.call);
            !is_open
                && row.requested.tool == recorded.call.name
                && desk.governance.gate.still_fits(&row.requested, action)
        };
        let Some(row) = parked.into_iter().find(is_same) else { return Ok(None) };
        let requested = row.requested;
        if row.state == ApprovalState::Pending {
            // Asked anew, with the turn that waits for the answer.
            desk.governance.gate.inbox.withdraw(std::slice::from_ref(&requested.id)).await;
        }
        if let Ok(call) = requested.call.parse::<Cid>() {
            desk.record_abandoned((&requested.call_id, &requested.tool), call, Begun::No)?;
        }
        let by = row.decided_by.unwrap_or_default();
        // An answer holds as long as its question would have.
        let is_late = desk.governance.gate.now() >= requested.expires_at;
        Ok(match row.state {
            ApprovalState::Allowed if is_late => None,
            ApprovalState::Allowed => Some((requested.id, ApprovalDecision::Allowed { by, text: None })),
            ApprovalState::Denied => {
                Some((requested.id, ApprovalDecision::Denied { by, reason: row.reason, stop: false }))
            }
            ApprovalState::Pending | ApprovalState::Expired | ApprovalState::Withdrawn => None,
        })
    }

    fn is_open(&self, call_id: &str, entry: &str) -> bool {
        self.track.iter().any(|open: &Open| open.call_id == call_id && open.entry.to_string() == entry)
    }
}
