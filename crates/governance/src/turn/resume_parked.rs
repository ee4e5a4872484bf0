//! Resumes calls that outlived their turn: parked when the daemon ended, and decided later. Each is executed at most
//! once, and its result reaches the agent as a mailbox message before its next turn.

use std::sync::Arc;

use tribune_constitution::{DecisionStage, SPEND};
use tribune_ledger::Cid;
use tribune_records::approval::action::Action;
use tribune_records::approval::decision::ApprovalDecision;
use tribune_records::approval::record::{ApprovalState, Requested};
use tribune_records::ledger_payloads::ToolCallRecord;
use tribune_records::outcome::{Access, Resource};
use tribune_registry::mailbox::{DAEMON_SENDER, MAX_TEXT_BYTES};
use tribune_runtime::{ErrorKind, EventKind, Handle, RuntimeError, SessionKey, ToolCall, ToolOutcome};
use tribune_storage::store::{ApprovalRow, OpenWork};

use super::Governance;
use super::call_decision::{Attempt, CallDecision, CallReview, ReplacedRequest};
use super::calls::{action_now, run};
use super::turn_recorder::{LedgerCall, TurnRecorder, input_from};
use crate::approval::MAX_PENDING;
use crate::gate::PendingAdmission;
use crate::spend::{share_a_limit, whose};

/// Requests whose content is read at once.
const READ_AT_ONCE: usize = 256;

/// The result of a call whose content is gone.
const LOST: &str = "its content was lost when the daemon ended, and it was not executed: make the call again if it is still needed";

impl Governance {
    /// Withdraws the requests whose content never reached the disk: the daemon was killed while it wrote both, and
    /// nobody can decide about a request that nobody can read.
    pub async fn withdraw_unreadable(self: &Arc<Self>) -> Result<(), RuntimeError> {
        let waiting = self.storage.readers.read(|reader| reader.pending_approvals(MAX_PENDING));
        let mut unreadable = Vec::new();
        for some in waiting.await?.chunks(READ_AT_ONCE) {
            let some: Vec<Requested> = some.iter().map(|row| row.requested.clone()).collect();
            let ids: Vec<String> = some.iter().map(|requested| requested.id.clone()).collect();
            // Content that exists and cannot be decrypted is a different error, reported when the request is read.
            let Ok(actions) = self.actions_of(some).await else { continue };
            unreadable.extend(
                ids.into_iter().zip(actions).filter(|(_, action)| action.is_none()).map(|(id, _)| id),
            );
        }
        if unreadable.is_empty() {
            return Ok(());
        }
        for requested in self.policy.gate.inbox.withdraw(&unreadable).await {
            self.finish(requested.id);
        }
        Ok(())
    }

    /// Resumes what an earlier daemon left parked and a person had decided before it ended. Does not wait for the
    /// results.
    pub async fn resume_parked(self: &Arc<Self>) -> Result<(), RuntimeError> {
        let parked: Vec<OpenWork> = self
            .storage
            .readers
            .read(|reader| Ok(reader.open_work()?.into_iter().filter(|work| work.kind == "parked").collect()))
            .await?;
        for work in parked {
            let row = self.storage.readers.read(move |reader| reader.approval_of_call(&work.cid)).await?;
            if let Some(row) =
                row.filter(|row| row.state != ApprovalState::Pending && row.requested.runner.is_host())
            {
                self.finish(row.requested.id);
            }
        }
        Ok(())
    }

    /// Executes, or denies, a parked call that no turn waits for.
    pub(crate) async fn resume_decided(self: &Arc<Self>, id: &str) -> Result<(), RuntimeError> {
        let id = id.to_owned();
        match self.storage.readers.read(move |reader| reader.approval(&id)).await? {
            Some(row) => self.resume(row).await,
            None => Ok(()),
        }
    }

    async fn resume(self: &Arc<Self>, row: ApprovalRow) -> Result<(), RuntimeError> {
        let ApprovalRow { requested, state, decided_by, reason, .. } = row;
        let Ok(key) = requested.session.parse::<SessionKey>() else { return Ok(()) };
        let name = requested.session.clone();
        let session = self.storage.readers.read(move |reader| reader.session(&name)).await?;
        let Some(session) = session else { return Ok(()) };
        let handle = Handle { key: Arc::new(key), session_id: session.id.as_str().into() };
        let writer = self.session_writer(&handle).await?.lock_owned().await;
        // Checked under the lock: the previous holder may have finished the call.
        if !self.is_parked(&requested.call).await? {
            return Ok(());
        }
        let recorded = self.recorded(&handle, &requested).await?;
        let mut recorder = TurnRecorder::new(Arc::clone(self), handle, writer);
        let Some(recorded) = recorded else { return self.record_lost(recorder, &requested).await };
        let recorded = self.as_asked(&mut recorder, recorded, &requested).await?;
        let id = requested.id.clone();
        recorder.event(EventKind::ApprovalDecided { id, state: state.as_str().to_owned() });
        if state != ApprovalState::Allowed {
            let decision = match state {
                ApprovalState::Denied => {
                    ApprovalDecision::Denied { by: decided_by.unwrap_or_default(), reason, stop: false }
                }
                ApprovalState::Expired => ApprovalDecision::Expired,
                ApprovalState::Pending | ApprovalState::Allowed | ApprovalState::Withdrawn => {
                    ApprovalDecision::Withdrawn
                }
            };
            let outcome = ToolOutcome::error(decision.sentence());
            let touched = [message_about(&requested)];
            recorder.record_not_executed(&recorded, &outcome, &touched)?;
            recorder.write_outside_turn().await?;
            self.send_result(&recorder, &requested, Some(&recorded.call), &outcome);
            return Ok(());
        }
        self.execute_allowed(recorder, recorded, requested).await
    }

    /// Ends a call whose content is gone: it is unknown what it was, so it cannot be executed.
    async fn record_lost(
        &self,
        mut recorder: TurnRecorder,
        requested: &Requested,
    ) -> Result<(), RuntimeError> {
        let Ok(call) = requested.call.parse() else { return Ok(()) };
        recorder.record_unreadable(requested, call, &[message_about(requested)])?;
        recorder.write_outside_turn().await?;
        self.send_result(&recorder, requested, None, &ToolOutcome::error(LOST));
        Ok(())
    }

    async fn execute_allowed(
        self: &Arc<Self>,
        mut recorder: TurnRecorder,
        recorded: LedgerCall,
        requested: Requested,
    ) -> Result<(), RuntimeError> {
        let now = action_now(&recorder, &recorded.call).await?;
        // From here on the call has the text that was allowed.
        let recorded = match self.rewording_of(&recorder, &requested).await? {
            Some((by, text)) => recorder.reworded(recorded, by, &text)?,
            None => recorded,
        };
        if !self.policy.gate.matches_digest(&requested, &now) {
            return self.ask_again(recorder, recorded, requested).await;
        }
        let notified = [message_about(&requested)];
        let review = CallReview {
            approval: Some(&requested.id),
            notified: &notified,
            ..CallReview::at(DecisionStage::Dispatch)
        };
        match recorder.judge(&recorded, review)? {
            CallDecision::Allowed(pending) => self.run_admitted(recorder, recorded, requested, pending).await,
            CallDecision::Denied(outcome, _) => {
                recorder.write_outside_turn().await?;
                self.send_result(&recorder, &requested, Some(&recorded.call), &outcome);
                Ok(())
            }
            CallDecision::Asked(..) => self.ask_again(recorder, recorded, requested).await,
        }
    }

    async fn run_admitted(
        self: &Arc<Self>,
        mut recorder: TurnRecorder,
        recorded: LedgerCall,
        requested: Requested,
        pending: PendingAdmission,
    ) -> Result<(), RuntimeError> {
        let written = recorder.write_outside_turn().await?;
        let Some(admission) = pending.redeem(&written) else { return Ok(()) };
        let mut done = run(&*self.tools, admission, None).await;
        recorded.note_rewording(&mut done);
        done.touched.push(message_about(&requested));
        self.notify_after_call(&recorder.writer.context, &recorded, &done.outcome);
        let result = recorder.record_result(&recorded, &done)?;
        recorder.write_outside_turn().await?;
        recorder.notify_result_recorded(&recorded, &done.outcome, result);
        self.send_result(&recorder, &requested, Some(&recorded.call), &done.outcome);
        drop(recorder);
        self.answer_others(&recorded.call, &done.outcome).await;
        Ok(())
    }

    /// A raised limit answers all requests about the same limit; those that need still more ask again.
    pub(super) async fn answer_others(self: &Arc<Self>, call: &ToolCall, outcome: &ToolOutcome) {
        if call.name != SPEND || outcome.is_error {
            return;
        }
        let mut answered = Vec::new();
        for requested in self.policy.gate.inbox.waiting_of(SPEND) {
            if let Ok(Some(action)) = self.action_of(&requested).await
                && share_a_limit(&call.input, &action.input)
            {
                answered.push(requested.id);
            }
        }
        if answered.is_empty() {
            return;
        }
        for requested in self.policy.gate.inbox.answer(&answered).await {
            self.finish(requested.id);
        }
    }

    /// The approved action is not the one that would run: the call returns to the inbox, with what changed.
    async fn ask_again(
        self: &Arc<Self>,
        mut recorder: TurnRecorder,
        recorded: LedgerCall,
        requested: Requested,
    ) -> Result<(), RuntimeError> {
        let now = action_now(&recorder, &recorded.call).await?;
        let before = self.asked_action(&recorder, &requested)?;
        let changed = before.map_or_else(Vec::new, |before| before.changed(&now));
        let notified = [message_about(&requested)];
        let review = CallReview { notified: &notified, ..CallReview::at(DecisionStage::Dispatch) };
        match recorder.judge(&recorded, review)? {
            CallDecision::Asked(verdict, entry) => {
                let number = attempt_after(&recorded.entry, &requested.id);
                let attempt =
                    Attempt { number, replaces: Some(ReplacedRequest { id: requested.id, changed }) };
                let (requested, request) = recorder.request(&recorded, verdict, entry, &now, attempt)?;
                let written = recorder.write().await?;
                // No task of this daemon waits: a dropped receiver makes the request an orphan, which the next decision
                // resumes.
                drop(self.policy.gate.inbox.ask(requested, recorder.writer.context.tier, request));
                recorder.show(&written);
                Ok(())
            }
            CallDecision::Denied(outcome, _) => {
                recorder.write_outside_turn().await?;
                self.send_result(&recorder, &requested, Some(&recorded.call), &outcome);
                Ok(())
            }
            CallDecision::Allowed(pending) => self.run_admitted(recorder, recorded, requested, pending).await,
        }
    }

    /// The action that was requested, if its content still exists.
    fn asked_action(
        &self,
        recorder: &TurnRecorder,
        requested: &Requested,
    ) -> Result<Option<Action>, RuntimeError> {
        let action = requested.action.to_string();
        let json = self.storage.vault.content(&recorder.handle.session_id, &action)?;
        Ok(json.and_then(|json| serde_json::from_slice(&json).ok()))
    }

    /// The call as the request has it: one that returned to the inbox may have got a changed text before.
    async fn as_asked(
        &self,
        recorder: &mut TurnRecorder,
        recorded: LedgerCall,
        requested: &Requested,
    ) -> Result<LedgerCall, RuntimeError> {
        let (Some(before), Some(action)) = (&requested.instead_of, self.asked_action(recorder, requested)?)
        else {
            return Ok(recorded);
        };
        if action.input == recorded.call.input {
            return Ok(recorded);
        }
        let before = before.clone();
        let before = self.storage.readers.read(move |reader| reader.approval(&before)).await?;
        let by = before.and_then(|row| row.decided_by).unwrap_or_else(|| DAEMON_SENDER.to_owned());
        recorder.in_place(recorded, by, action.input)
    }

    /// Who allowed the call with a changed text, and that text.
    async fn rewording_of(
        &self,
        recorder: &TurnRecorder,
        requested: &Requested,
    ) -> Result<Option<(String, String)>, RuntimeError> {
        let Some((by, text)) = self.approved_rewording(requested).await? else { return Ok(None) };
        let content = self.storage.vault.content(&recorder.handle.session_id, &text.to_string())?;
        match content.map(String::from_utf8) {
            Some(Ok(content)) => Ok(Some((by, content))),
            // Without the text that was allowed, nothing was allowed.
            _ => Err(RuntimeError::new(ErrorKind::Internal, "the text that was allowed is gone")),
        }
    }

    async fn is_parked(&self, call: &str) -> Result<bool, RuntimeError> {
        let call = call.to_owned();
        self.storage
            .readers
            .read(move |reader| {
                Ok(reader.open_work()?.iter().any(|work| work.cid == call && work.kind == "parked"))
            })
            .await
            .map_err(RuntimeError::from)
    }

    /// The call as it was requested, if its content still exists.
    async fn recorded(
        &self,
        handle: &Handle,
        requested: &Requested,
    ) -> Result<Option<LedgerCall>, RuntimeError> {
        let Ok(entry) = requested.call.parse::<Cid>() else { return Ok(None) };
        let record: Option<ToolCallRecord> = self.record_of(entry).await?;
        let Some(record) = record else { return Ok(None) };
        let content = self.storage.vault.content(&handle.session_id, &record.input_hash.to_string())?;
        let Some(input) = content.as_deref().and_then(input_from) else { return Ok(None) };
        // The law also decides by the original input; without it the call cannot be decided.
        let original_input = match record.asked_hash {
            None => None,
            Some(hash) => {
                let content = self.storage.vault.content(&handle.session_id, &hash.to_string())?;
                let Some(original) = content.as_deref().and_then(input_from) else { return Ok(None) };
                Some(original)
            }
        };
        let call = ToolCall { id: record.call_id, name: record.tool, input };
        Ok(Some(LedgerCall {
            call,
            entry,
            input_hash: record.input_hash,
            original_input,
            runner: record.runner,
            reworded_by: None,
        }))
    }

    /// Sends the result of a call to the mailbox of the agent. `call` is None if its content is gone.
    fn send_result(
        &self,
        recorder: &TurnRecorder,
        requested: &Requested,
        call: Option<&ToolCall>,
        outcome: &ToolOutcome,
    ) {
        let text = message_text(requested, call, outcome);
        let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
        let (agent, now) = (recorder.handle.key.agent(), self.storage.clock.now());
        if let Err(error) =
            self.agent_files.mailbox.send(DAEMON_SENDER, agent, text, now, &message_id(requested))
        {
            tracing::warn!(%error, "the result of a parked call could not be sent to the mailbox of its agent");
        }
    }
}

/// The text of a mailbox message. A budget increase was requested by the daemon, not by the agent, so its text differs.
fn message_text(requested: &Requested, call: Option<&ToolCall>, outcome: &ToolOutcome) -> String {
    let (tool, content) = (&requested.tool, &outcome.content);
    if tool != SPEND {
        let id = &requested.call_id;
        return format!("your call `{id}` of `{tool}` waited for approval; its result: {content}");
    }
    let budget = match call {
        Some(call) => format!("the budget of {}", whose(&call.input)),
        None => "the budget".to_owned(),
    };
    match outcome.is_error {
        true if *content == ApprovalDecision::Withdrawn.sentence() => {
            format!(
                "the request to raise {budget} was withdrawn: it was raised otherwise, or nothing waits for it"
            )
        }
        true => format!("{budget} was not raised: {content}"),
        false => format!("{budget} was raised"),
    }
}

/// The prefix of the id of a message about a call; the id of the approval follows.
const APPROVAL_PREFIX: &str = "approval-";

fn message_id(requested: &Requested) -> String {
    format!("{APPROVAL_PREFIX}{}", requested.id)
}

/// The approval that a message is about, if its id has the prefix.
pub(super) fn approval_of(message_id: &str) -> Option<&str> {
    message_id.strip_prefix(APPROVAL_PREFIX)
}

/// The message about a call, as a resource with the labels of the session that made the call.
fn message_about(requested: &Requested) -> Access {
    Access::Wrote(Resource::MailboxMessage(message_id(requested)))
}

/// The number of the next attempt: approval ids are derived from the call and the attempt.
fn attempt_after(call: &Cid, id: &str) -> u32 {
    (0..64)
        .find(|attempt| tribune_records::approval::action::approval_id(call, *attempt) == id)
        .map_or(64, |attempt| attempt + 1)
}
