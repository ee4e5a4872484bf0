//! Calls that an agent executes itself during its turn: it asks for permission, executes the call, and reports the
//! result.
//!
//! The agent may learn something from a call before the result is reported, so the labels of the session are lowered
//! when permission is granted. If the daemon ends while a call waits for a person, the agent may ask for the call
//! again; a decision that was made meanwhile then applies to it, once.

use std::sync::Arc;

use tokio::sync::oneshot;
use tribune_constitution::Veto;
use tribune_ledger::Cid;
use tribune_records::approval::action::Action;
use tribune_records::approval::decision::ApprovalDecision;
use tribune_records::approval::record::{ApprovalState, CallRunner};
use tribune_records::outcome::{Access, ToolRun};
use tribune_runtime::{ErrorKind, PermissionOutcome, RuntimeError, ToolCall, ToolOutcome};
use tribune_storage::store::ApprovalRow;

use super::calls::{CallStep, Calls, OpenCall, Progress, run};
use super::toolbox::PendingOutcome;
use super::turn_recorder::{Execution, LedgerCall, TurnRecorder};
use crate::gate::{Admission, CallEnd, PendingAdmission};

/// Bytes of a reported result that are stored.
const MAX_REPORT_BYTES: usize = 1 << 20;

/// The name of the veto against a path that is another name of a file.
const WORKSPACE: &str = "workspace";

impl TurnRecorder {
    /// The veto of the daemon against a call that the agent executes itself. The law decides about a path by its text,
    /// and no code of the daemon stands between the agent and what the path leads to.
    pub(super) async fn path_alias_veto(&mut self, call: &ToolCall) -> Result<Option<Veto>, RuntimeError> {
        let (governance, ground) = (Arc::clone(&self.governance), self.writer.context.ground());
        let call = call.clone();
        let found = tokio::task::spawn_blocking(move || governance.tools.path_alias(&ground, &call));
        let found =
            found.await.map_err(|_| RuntimeError::new(ErrorKind::Internal, "the daemon is shutting down"))?;
        Ok(found.map(|sentence| Veto::new(WORKSPACE, &sentence)))
    }

    /// Lowers the labels of the session as the call would lower them, before it starts: what the agent learns from it
    /// may be acted on before it ends. Returns what the call would touch.
    pub(super) async fn lower_labels(&mut self, call: &ToolCall) -> Result<Vec<Access>, RuntimeError> {
        let (governance, ground) = (Arc::clone(&self.governance), self.writer.context.ground());
        let tool = call.name.clone();
        let call = call.clone();
        let touched = tokio::task::spawn_blocking(move || governance.tools.predict_access(&ground, &call))
            .await
            .map_err(|_| RuntimeError::new(ErrorKind::Internal, "the daemon is shutting down"))?;
        let gate = &self.governance.policy.gate;
        let label_change =
            gate.propagate_labels(&self.writer.context, Some(&tool), &touched, CallEnd::Badly)?;
        self.writer.context.labels = label_change.session;
        Ok(touched)
    }
}

/// A call that the agent has permission for.
pub(super) struct GrantedCall {
    pub(super) recorded: LedgerCall,
    touched: Vec<Access>,
    /// The admission for the daemon, in case the agent has the daemon execute the call.
    admission: Admission,
}

impl Calls {
    /// Writes the verdict, and grants permission when it is durable.
    pub(super) async fn grant_permission(
        &mut self,
        recorder: &mut TurnRecorder,
        recorded: LedgerCall,
        answer: oneshot::Sender<PermissionOutcome>,
        pending: PendingAdmission,
    ) -> Result<CallStep, RuntimeError> {
        let touched = recorder.lower_labels(&recorded.call).await?;
        self.untrack(&recorded.call.id);
        let written = recorder.write().await?;
        // Durable before effect: the agent executes the call only after this.
        let Some(admission) = pending.redeem(&written) else {
            return Err(RuntimeError::new(ErrorKind::Internal, "the verdict was not written with its batch"));
        };
        self.track(&recorded, None);
        self.granted.insert(recorded.call.id.clone(), GrantedCall { recorded, touched, admission });
        let _ = answer.send(PermissionOutcome::Granted);
        Ok(CallStep::events(written.events))
    }

    /// Executes a call that the agent has permission for. Without permission nothing is sent, and the caller sees a
    /// dropped channel.
    pub(super) fn execute_granted(
        &mut self,
        recorder: &TurnRecorder,
        call_id: &str,
        waiting: PendingOutcome,
    ) {
        let Some(GrantedCall { recorded, admission, .. }) = self.granted.remove(call_id) else { return };
        let (governance, PendingOutcome { answer, terminal }) = (Arc::clone(&recorder.governance), waiting);
        self.underway.push(Box::pin(async move {
            let done = run(&*governance.tools, admission, terminal).await;
            Progress::Ran(recorded, answer, Box::new(done))
        }));
    }

    /// Records the reported result of a call that the agent had permission for.
    pub(super) async fn record_report(
        &mut self,
        recorder: &mut TurnRecorder,
        call_id: &str,
        outcome: ToolOutcome,
        recorded_signal: oneshot::Sender<()>,
    ) -> Result<CallStep, RuntimeError> {
        if let Some(GrantedCall { recorded, touched, .. }) = self.granted.remove(call_id) {
            self.untrack(call_id);
            let end = outcome.content.floor_char_boundary(MAX_REPORT_BYTES);
            let content = outcome.content.get(..end).unwrap_or_default().to_owned();
            let outcome = ToolOutcome { content, ..outcome };
            recorder.governance.notify_after_call(&recorder.writer.context, &recorded, &outcome);
            let done = ToolRun { outcome, code: None, touched, sandbox: None };
            let result = recorder.record_result(&recorded, &done)?;
            self.last_result = Some(result);
            let written = recorder.write().await?;
            recorder.notify_result_recorded(&recorded, &done.outcome, result);
            let _ = recorded_signal.send(());
            return Ok(CallStep::events(written.events));
        }
        // There was no permission for the call, or its result was already reported: nothing is recorded.
        drop(recorded_signal);
        recorder.write().await.map(|written| CallStep::events(written.events))
    }

    /// The decision that was made about this same call before its daemon ended, if there is one. It is settled here, so
    /// that it applies once, whatever it was.
    pub(super) async fn earlier_answer(
        &mut self,
        recorder: &mut TurnRecorder,
        recorded: &LedgerCall,
        action: &Action,
    ) -> Result<Option<(String, ApprovalDecision)>, RuntimeError> {
        if recorded.runner != CallRunner::Agent {
            return Ok(None);
        }
        let session = recorder.handle.key.to_string();
        let parked = recorder.governance.storage.readers.read(move |reader| reader.parked_of_agent(&session));
        let parked = parked.await?;
        let is_same = |row: &ApprovalRow| {
            let is_open = self.is_open(&row.requested.call_id, &row.requested.call);
            !is_open
                && row.requested.tool == recorded.call.name
                && recorder.governance.policy.gate.matches_digest(&row.requested, action)
        };
        let Some(row) = parked.into_iter().find(is_same) else { return Ok(None) };
        let requested = row.requested;
        if row.state == ApprovalState::Pending {
            // The call is asked for again below, with the turn that waits for the decision.
            recorder.governance.policy.gate.inbox.withdraw(std::slice::from_ref(&requested.id)).await;
        }
        if let Ok(call) = requested.call.parse::<Cid>() {
            recorder.record_abandoned(&requested.call_id, &requested.tool, call, Execution::NotStarted)?;
        }
        let by = row.decided_by.unwrap_or_default();
        // A decision is valid as long as its request would have been.
        let is_late = recorder.governance.policy.gate.now() >= requested.expires_at;
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
        self.open.iter().any(|open: &OpenCall| open.call_id == call_id && open.entry.to_string() == entry)
    }
}
