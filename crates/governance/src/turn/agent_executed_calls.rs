//! Calls that an agent executes itself during its turn: it asks for permission, executes the call, and reports the
//! result.
//!
//! The agent may learn something from a call before the result is reported, so the labels of the session are lowered
//! when permission is granted. A call of an MCP server's tool is executed by the daemon alone, so its permission lowers
//! nothing: its result does. If the daemon ends while a call waits for a person, the agent may ask for the call
//! again; a decision that was made meanwhile then applies to it, once.

use std::sync::Arc;

use tokio::sync::oneshot;
use tribune_constitution::{MCP, Veto};
use tribune_ledger::Cid;
use tribune_records::approval::action::Action;
use tribune_records::approval::decision::ApprovalDecision;
use tribune_records::approval::record::{ApprovalState, CallRunner};
use tribune_records::ledger_payloads::CallOutcome;
use tribune_records::outcome::{Access, ToolRun};
use tribune_runtime::{PermissionOutcome, ReportedOutcome, RuntimeError, ToolCall, ToolOutcome};
use tribune_storage::store::ApprovalRow;

use super::calls::{Calls, Handled, Open, Progress, run};
use super::toolbox::PendingOutcome;
use super::turn_recorder::{Begun, Recorded, TurnRecorder};
use crate::gate::{Admission, CallEnd, Ticket};

/// Bytes of a reported result that are stored.
const MAX_REPORT_BYTES: usize = 1 << 20;

/// The name of the veto against a path that is another name of a file.
const WORKSPACE: &str = "workspace";

impl TurnRecorder {
    /// The veto of the daemon against a call that the agent executes itself. The law decides about a path by its text,
    /// and no code of the daemon stands between the agent and what the path leads to.
    pub(super) async fn objections_of_the_house(
        &mut self,
        call: &ToolCall,
    ) -> Result<Option<Veto>, RuntimeError> {
        let (governance, ground) = (Arc::clone(&self.governance), self.journal.standing.ground());
        let call = call.clone();
        let found = tokio::task::spawn_blocking(move || governance.tools.path_alias(&ground, &call));
        let found = found.await.map_err(|_| RuntimeError::new("internal", "the daemon is shutting down"))?;
        Ok(found.map(|sentence| Veto::new(WORKSPACE, &sentence)))
    }

    /// Lowers the labels of the session as the call would lower them, before it starts: what the agent learns from it
    /// may be acted on before it ends. Returns what the call would touch.
    pub(super) async fn sink(&mut self, call: &ToolCall) -> Result<Vec<Access>, RuntimeError> {
        let touched = self.predict_access(call).await?;
        let gate = &self.governance.gate;
        let ended = (touched.as_slice(), CallEnd::Badly);
        let moved = gate.moved(&self.journal.standing, Some(call.name.as_str()), ended)?;
        self.journal.standing.labels = moved.session;
        Ok(touched)
    }

    /// What a call would touch.
    async fn predict_access(&self, call: &ToolCall) -> Result<Vec<Access>, RuntimeError> {
        let (governance, ground) = (Arc::clone(&self.governance), self.journal.standing.ground());
        let call = call.clone();
        let touched = tokio::task::spawn_blocking(move || governance.tools.predict_access(&ground, &call));
        touched.await.map_err(|_| RuntimeError::new("internal", "the daemon is shutting down"))
    }
}

/// A call that the agent has permission for.
pub(super) struct GrantedCall {
    pub(super) recorded: Recorded,
    touched: Vec<Access>,
    /// The admission for the daemon, in case the agent has the daemon execute the call.
    admission: Admission,
}

impl GrantedCall {
    /// Whether the agent itself may have executed the call. Only the daemon can reach an MCP server of a session.
    pub(super) fn is_executable_by_agent(&self) -> bool {
        is_executable_by_agent(&self.recorded.call)
    }
}

fn is_executable_by_agent(call: &ToolCall) -> bool {
    call.name != MCP
}

impl Calls {
    /// Writes the verdict, and grants permission when it is durable.
    pub(super) async fn give_leave(
        &mut self,
        recorder: &mut TurnRecorder,
        recorded: Recorded,
        answer: oneshot::Sender<PermissionOutcome>,
        ticket: Ticket,
    ) -> Result<Handled, RuntimeError> {
        let touched = match is_executable_by_agent(&recorded.call) {
            true => recorder.sink(&recorded.call).await?,
            false => recorder.predict_access(&recorded.call).await?,
        };
        self.untrack(&recorded.call.id);
        let written = recorder.write().await?;
        // Durable before effect: the agent executes the call only after this.
        let Some(admission) = ticket.redeem(&written) else {
            return Err(RuntimeError::new("internal", "the verdict was not written with its batch"));
        };
        self.open(&recorded, None);
        self.given.insert(recorded.call.id.clone(), GrantedCall { recorded, touched, admission });
        let _ = answer.send(PermissionOutcome::Granted);
        Ok(Handled::events(written.events))
    }

    /// Executes a call that the agent has permission for. Without permission nothing is sent, and the caller sees a
    /// dropped channel.
    pub(super) fn carry_out(&mut self, recorder: &TurnRecorder, call_id: &str, waiting: PendingOutcome) {
        let Some(GrantedCall { recorded, admission, .. }) = self.given.remove(call_id) else { return };
        let (governance, PendingOutcome { answer, terminal }) = (Arc::clone(&recorder.governance), waiting);
        self.underway.push(Box::pin(async move {
            let done = run(&*governance.tools, admission, terminal).await;
            Progress::Ran(recorded, answer, Box::new(done))
        }));
    }

    /// Records what became of a call that the agent had permission for.
    pub(super) async fn reported(
        &mut self,
        recorder: &mut TurnRecorder,
        call_id: &str,
        reported: ReportedOutcome,
        recorded_signal: oneshot::Sender<()>,
    ) -> Result<Handled, RuntimeError> {
        let Some(GrantedCall { recorded, touched, .. }) = self.given.remove(call_id) else {
            // There was no permission for the call, or its result was already reported: nothing is recorded.
            drop(recorded_signal);
            return recorder.write().await.map(|written| Handled::events(written.events));
        };
        self.untrack(call_id);
        let (result, outcome) = match reported {
            ReportedOutcome::Executed(outcome) => {
                let end = outcome.content.floor_char_boundary(MAX_REPORT_BYTES);
                let content = outcome.content.get(..end).unwrap_or_default().to_owned();
                let outcome = ToolOutcome { content, ..outcome };
                recorder.governance.tell_done(&recorder.journal.standing, &recorded, &outcome);
                let done = ToolRun { outcome, code: None, touched, sandbox: None };
                (recorder.record_result(&recorded, &done)?, done.outcome)
            }
            ReportedOutcome::NotExecuted(why) => {
                let outcome = ToolOutcome::error(why);
                let parents = vec![recorded.entry];
                (recorder.record_denial(&recorded, &outcome, CallOutcome::Cancelled, parents)?, outcome)
            }
        };
        self.last_result = Some(result);
        let written = recorder.write().await?;
        recorder.tell_persisted(&recorded, &outcome, result);
        let _ = recorded_signal.send(());
        Ok(Handled::events(written.events))
    }

    /// The decision that was made about this same call before its daemon ended, if there is one. It is settled here, so
    /// that it applies once, whatever it was.
    pub(super) async fn earlier_answer(
        &mut self,
        recorder: &mut TurnRecorder,
        recorded: &Recorded,
        action: &Action,
    ) -> Result<Option<(String, ApprovalDecision)>, RuntimeError> {
        if recorded.runner != CallRunner::Agent {
            return Ok(None);
        }
        let session = recorder.handle.key.to_string();
        let parked = recorder.governance.readers.read(move |reader| reader.parked_of_agent(&session));
        let parked = parked.await?;
        let is_same = |row: &ApprovalRow| {
            let is_open = self.is_open(&row.requested.call_id, &row.requested.call);
            !is_open
                && row.requested.tool == recorded.call.name
                && recorder.governance.gate.still_fits(&row.requested, action)
        };
        let Some(row) = parked.into_iter().find(is_same) else { return Ok(None) };
        let requested = row.requested;
        if row.state == ApprovalState::Pending {
            // The call is asked for again below, with the turn that waits for the decision.
            recorder.governance.gate.inbox.withdraw(std::slice::from_ref(&requested.id)).await;
        }
        if let Ok(call) = requested.call.parse::<Cid>() {
            recorder.record_abandoned((&requested.call_id, &requested.tool), call, Begun::No)?;
        }
        let by = row.decided_by.unwrap_or_default();
        // A decision is valid as long as its request would have been.
        let is_late = recorder.governance.gate.now() >= requested.expires_at;
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
