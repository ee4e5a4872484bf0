//! Records the calls of a session: the request, the verdict, the result. Used by the turn that makes the calls, and by
//! the code that finishes a call after its turn ended.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;
use tribune_constitution::{DecisionStage, Verdict, Veto};
use tribune_ledger::commitment::Commitment;
use tribune_ledger::{Cid, EntryQuality, LedgerEntry};
use tribune_records::approval::action::{Action, Files, approval_id};
use tribune_records::approval::record::{ApprovalRecord, CallRunner, Requested};
use tribune_records::ledger_payloads::{
    CallOutcome, SandboxRecord, ToolCallRecord, ToolResultRecord, VerdictRecord,
};
use tribune_records::outcome::{Access, ToolRun};
use tribune_runtime::{ContentBlock, ErrorKind, EventKind, Handle, RuntimeError, ToolCall, ToolOutcome};

use super::Governance;
use super::session_writer::{Durable, EntryDraft, FlushMode, PendingWrite, SessionWriter, WriteBatch};
use crate::approval::draft;
use crate::gate::{AllowToken, Authorization, AuthorizationRequest, CallEnd, PolicyContext, Ticket};

/// Records into one session.
pub(super) struct TurnRecorder {
    pub(super) governance: Arc<Governance>,
    pub(super) handle: Handle,
    pub(super) journal: OwnedMutexGuard<SessionWriter>,
    /// The batch that is written next.
    pub(super) page: WriteBatch,
    /// The newest raw message of the agent that was stored, and its commitment.
    last_raw: Option<(blake3::Hash, Commitment)>,
}

/// A call that is recorded.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    pub(super) call: ToolCall,
    /// Its ledger entry.
    pub(super) entry: Cid,
    pub(super) input_hash: Commitment,
    /// Its input before a hook changed it.
    pub(super) asked: Option<Value>,
    /// Who executes it.
    pub(super) runner: CallRunner,
    /// Who changed its text before allowing it.
    pub(super) reworded_by: Option<String>,
}

impl Recorded {
    /// Tells the agent that the executed call differs from the one it asked for.
    pub(super) fn tell_reworded(&self, done: &mut ToolRun) {
        if let Some(by) = &self.reworded_by {
            let content = &mut done.outcome.content;
            content.insert_str(0, &format!("({by} changed the text before allowing the call) "));
        }
    }
}

/// The verdict on a recorded call.
pub(super) enum Judged {
    /// It may run when the batch is durable.
    Allowed(Ticket),
    Asked(Verdict, Cid),
    /// Its result is in the batch.
    Denied(ToolOutcome, Cid),
}

impl TurnRecorder {
    pub(super) fn new(
        governance: Arc<Governance>,
        handle: Handle,
        journal: OwnedMutexGuard<SessionWriter>,
    ) -> Self {
        let page = journal.page();
        let mut recorder = Self { governance, handle, journal, page, last_raw: None };
        recorder.merge_egress_labels();
        recorder
    }

    /// Applies the labels that connections out of the sandbox of the session have brought in so far.
    fn merge_egress_labels(&mut self) {
        let egress_labels = self.governance.policy.out_of_turn.seeped(&self.handle.key);
        self.journal.standing.labels = self.journal.standing.labels.meet(egress_labels);
    }

    /// Writes the batch and starts a new one.
    pub(super) async fn write(&mut self) -> Result<Durable, RuntimeError> {
        let page = std::mem::replace(&mut self.page, self.journal.page());
        self.journal.write(page).await.map_err(RuntimeError::from)
    }

    /// Submits the batch, which is written before any that is submitted later, and starts a new one.
    pub(super) async fn submit(&mut self, hand: FlushMode) -> Result<PendingWrite, RuntimeError> {
        let page = std::mem::replace(&mut self.page, self.journal.page());
        self.journal.submit(hand, page).await.map_err(RuntimeError::from)
    }

    /// Waits until a submitted batch is durable.
    pub(super) async fn wait_durable(&mut self, page: PendingWrite) -> Result<Durable, RuntimeError> {
        self.journal.wait_durable(page).await.map_err(RuntimeError::from)
    }

    /// Writes the batch outside of a turn, and publishes its events to the subscribers of the session.
    pub(super) async fn write_outside_turn(&mut self) -> Result<Durable, RuntimeError> {
        let written = self.write().await?;
        self.show(&written);
        Ok(written)
    }

    /// Publishes events that were written outside of a turn. The events of a turn are published by the code that runs
    /// it.
    pub(super) fn show(&self, written: &Durable) {
        self.governance.live.event_hub.publish(&self.handle.key, &written.events);
    }

    pub(super) fn event(&mut self, kind: EventKind) {
        self.journal.event(&mut self.page, kind);
    }

    pub(super) fn content(&mut self, value: &(impl Serialize + ?Sized)) -> Result<Commitment, RuntimeError> {
        let json = json_of(value)?;
        self.journal.content(&mut self.page, &json).map_err(RuntimeError::from)
    }

    pub(super) fn line<P: Serialize>(
        &mut self,
        quality: EntryQuality,
        target: &str,
        parents: Vec<Cid>,
        record: &P,
    ) -> Result<LedgerEntry, RuntimeError> {
        self.journal
            .entry(&mut self.page, EntryDraft { quality, target, parents, record })
            .map_err(RuntimeError::from)
    }

    /// Records a call of a turn.
    pub(super) fn record_call(
        &mut self,
        call: ToolCall,
        asked: Option<Value>,
        turn: Cid,
    ) -> Result<Recorded, RuntimeError> {
        let asked_hash = asked.as_ref().map(|asked| self.content(asked)).transpose()?;
        let recorded = self.call_inner(call, vec![turn], (CallRunner::Host, None), asked_hash)?;
        Ok(Recorded { asked, ..recorded })
    }

    /// Records a call that the agent executes itself, with the raw message of the agent.
    pub(super) fn record_agent_call(
        &mut self,
        call: ToolCall,
        raw: &str,
        turn: Cid,
    ) -> Result<Recorded, RuntimeError> {
        // One message may describe many calls; it is stored once.
        let line = blake3::hash(raw.as_bytes());
        let raw = match self.last_raw {
            Some((known, commitment)) if known == line => commitment,
            _ => self.journal.content(&mut self.page, raw.as_bytes())?,
        };
        self.last_raw = Some((line, raw));
        self.record_external_call(call, vec![turn], (CallRunner::Agent, Some(raw)))
    }

    /// Records a call that the host, the agent or an external caller executes.
    pub(super) fn record_external_call(
        &mut self,
        call: ToolCall,
        parents: Vec<Cid>,
        carried_out: (CallRunner, Option<Commitment>),
    ) -> Result<Recorded, RuntimeError> {
        self.call_inner(call, parents, carried_out, None)
    }

    fn call_inner(
        &mut self,
        call: ToolCall,
        parents: Vec<Cid>,
        (runner, said_hash): (CallRunner, Option<Commitment>),
        asked_hash: Option<Commitment>,
    ) -> Result<Recorded, RuntimeError> {
        let input_hash = self.content(&call.input)?;
        let (tool, call_id) = (call.name.clone(), call.id.clone());
        let record = ToolCallRecord { tool, call_id, input_hash, runner, said_hash, asked_hash };
        let entry = self.line(EntryQuality::ToolCall, &call.name, parents, &record)?;
        let cid = entry.cid;
        let (id, name) = (call.id.clone(), call.name.clone());
        let input = self.governance.policy.redactor.redact_json(&call.input);
        self.event(EventKind::ToolCall { id, name, input });
        self.event(EventKind::LedgerAppend { entry: Box::new(entry) });
        Ok(Recorded { call, entry: cid, input_hash, asked: None, runner, reworded_by: None })
    }

    /// The call with the text of the person who allows it. The gate decides about it again, in the form in which it
    /// runs.
    pub(super) fn reworded(
        &mut self,
        recorded: Recorded,
        by: String,
        text: &str,
    ) -> Result<Recorded, RuntimeError> {
        let input = draft::reworded(&recorded.call.name, &recorded.call.input, text);
        let input = input.ok_or_else(|| {
            RuntimeError::new(ErrorKind::Internal, "the call has no text that can be changed")
        })?;
        self.in_place(recorded, by, input)
    }

    /// The call with another input, which `by` put in place of the original.
    pub(super) fn in_place(
        &mut self,
        recorded: Recorded,
        by: String,
        input: Value,
    ) -> Result<Recorded, RuntimeError> {
        let input_hash = self.content(&input)?;
        let call = ToolCall { input, ..recorded.call };
        Ok(Recorded { call, input_hash, reworded_by: Some(by), ..recorded })
    }

    /// Decides about a recorded call. The verdict is added to the batch, and so is the result of a denial.
    pub(super) fn judge(
        &mut self,
        recorded: &Recorded,
        stage: DecisionStage,
        owner_words: &[&str],
        vetoes: Vec<Veto>,
        approval: Option<&str>,
    ) -> Result<Judged, RuntimeError> {
        self.judge_telling(recorded, (stage, approval), owner_words, vetoes, &[])
    }

    /// The same for a call whose denial reaches the agent through `notified`, such as a mailbox message.
    pub(super) fn judge_telling(
        &mut self,
        recorded: &Recorded,
        (stage, approval): (DecisionStage, Option<&str>),
        owner_words: &[&str],
        vetoes: Vec<Veto>,
        notified: &[Access],
    ) -> Result<Judged, RuntimeError> {
        self.merge_egress_labels();
        let standing = self.journal.standing.clone();
        let (token, verdict, entry) =
            self.authorize(recorded, &standing, (stage, approval), owner_words, vetoes)?;
        if let Some(token) = token {
            let who = (Arc::clone(&self.handle.key), standing.ground());
            let ticket = Ticket::new(token, recorded.call.clone(), who, recorded.entry, entry.seq);
            return Ok(Judged::Allowed(ticket));
        }
        if verdict.is_offered() {
            return Ok(Judged::Asked(verdict, entry.cid));
        }
        let outcome = denial(&verdict);
        let parents = vec![recorded.entry, entry.cid];
        let result =
            self.result(recorded, &outcome, (Effect::None, CallOutcome::Denied), (notified, None), parents)?;
        Ok(Judged::Denied(outcome, result))
    }

    /// Decides about a recorded call in the given policy context, and records the verdict.
    pub(super) fn authorize(
        &mut self,
        recorded: &Recorded,
        standing: &PolicyContext,
        (stage, approval): (DecisionStage, Option<&str>),
        owner_words: &[&str],
        vetoes: Vec<Veto>,
    ) -> Result<(Option<AllowToken>, Verdict, Placed), RuntimeError> {
        let (governance, call) = (&self.governance, &recorded.call);
        let runs = || match recorded.runner {
            CallRunner::Host | CallRunner::Agent => {
                run_blocking(|| governance.tools.dependencies(&standing.ground(), call).files)
            }
            // The files at the place where an external caller executes the call are not known here.
            CallRunner::Caller => Files::default(),
        };
        let inquiry = AuthorizationRequest {
            standing,
            tool: &recorded.call.name,
            stage,
            input: Some(&recorded.call.input),
            asked: recorded.asked.as_ref(),
            runs: &runs,
            owner_words,
            vetoes,
            approval,
        };
        let judgement = self.governance.policy.gate.judge(inquiry)?;
        let token = judgement.leave();
        let (verdict, entry) = self.verdict(judgement, Some(recorded.input_hash), vec![recorded.entry])?;
        Ok((token, verdict, entry))
    }

    /// Records a verdict.
    pub(super) fn verdict(
        &mut self,
        judgement: Authorization,
        input_hash: Option<Commitment>,
        parents: Vec<Cid>,
    ) -> Result<(Verdict, Placed), RuntimeError> {
        let (facts, verdict) = judgement.into_parts();
        let record = VerdictRecord {
            tool: facts.tool.clone(),
            constitution_hash: self.governance.policy.gate.law.hash().to_string(),
            input_hash,
            facts,
            verdict,
        };
        let entry = self.line(EntryQuality::PolicyVerdict, &record.tool, parents, &record)?;
        let placed = Placed { cid: entry.cid, seq: entry.seq };
        self.event(EventKind::PolicyGate { entry: Box::new(entry) });
        Ok((record.verdict, placed))
    }

    /// Records that a call waits for a person.
    pub(super) fn request(
        &mut self,
        recorded: &Recorded,
        (verdict, verdict_entry): (Verdict, Cid),
        action: &Action,
        (attempt, instead_of): (u32, Option<(String, Vec<String>)>),
    ) -> Result<(Requested, Cid), RuntimeError> {
        let gate = &self.governance.policy.gate;
        let tool = &recorded.call.name;
        let (roles, needs, expires_at) = gate.terms(tool);
        let risk = gate.risk(tool).to_owned();
        let digest =
            action.digest().map_err(|error| RuntimeError::new(ErrorKind::Internal, error.to_string()))?;
        let (instead_of, changed) =
            instead_of.map_or((None, Vec::new()), |(id, changed)| (Some(id), changed));
        let roots = action.roots.clone();
        // The labels that the gate used. The approver is shown the same ones.
        let labels = action.labels;
        let action = self.content(action)?;
        let requested = Requested {
            id: approval_id(&recorded.entry, attempt),
            session: self.handle.key.to_string(),
            agent: self.handle.key.agent().to_string(),
            tool: tool.clone(),
            call_id: recorded.call.id.clone(),
            call: recorded.entry.to_string(),
            verdict: verdict_entry.to_string(),
            digest,
            action,
            rules: verdict.rules,
            reason: verdict.reason,
            risk,
            labels,
            roles,
            needs,
            expires_at,
            runner: recorded.runner,
            instead_of,
            changed,
            roots,
        };
        let record = ApprovalRecord::Requested(requested.clone());
        let parents = vec![recorded.entry, verdict_entry];
        let entry = self.line(EntryQuality::Approval, &requested.id, parents, &record)?;
        let cid = entry.cid;
        let id = requested.id.clone();
        self.event(EventKind::ApprovalRequested { id, entry: Box::new(entry) });
        Ok((requested, cid))
    }

    /// Records the result of an executed call, and propagates its labels.
    pub(super) fn record_result(&mut self, recorded: &Recorded, done: &ToolRun) -> Result<Cid, RuntimeError> {
        let parents = vec![recorded.entry];
        let (ended, held) = ((Effect::Perhaps, done.how()), (done.touched.as_slice(), done.sandbox.clone()));
        self.result(recorded, &done.outcome, ended, held, parents)
    }

    /// Records that a call was denied after its turn, and the resource that tells the agent so.
    pub(super) fn record_not_executed(
        &mut self,
        recorded: &Recorded,
        outcome: &ToolOutcome,
        touched: &[Access],
    ) -> Result<Cid, RuntimeError> {
        let how = (Effect::None, CallOutcome::Denied);
        self.result(recorded, outcome, how, (touched, None), vec![recorded.entry])
    }

    /// Records that a call did not run.
    pub(super) fn record_denial(
        &mut self,
        recorded: &Recorded,
        outcome: &ToolOutcome,
        how: CallOutcome,
        parents: Vec<Cid>,
    ) -> Result<Cid, RuntimeError> {
        self.result(recorded, outcome, (Effect::None, how), (&[], None), parents)
    }

    fn result(
        &mut self,
        recorded: &Recorded,
        outcome: &ToolOutcome,
        (effect, how): (Effect, CallOutcome),
        (touched, sandbox): (&[Access], Option<SandboxRecord>),
        parents: Vec<Cid>,
    ) -> Result<Cid, RuntimeError> {
        self.merge_egress_labels();
        let call = &recorded.call;
        // A call that did not run brought nothing in.
        let tool = (effect == Effect::Perhaps).then_some(call.name.as_str());
        let ended = if outcome.is_error { CallEnd::Badly } else { CallEnd::Well };
        let moved = self.governance.policy.gate.moved(&self.journal.standing, tool, (touched, ended))?;
        self.journal.standing.labels = moved.session;
        let output_hash = self.content(&[ContentBlock::text(&outcome.content)])?;
        let record = ToolResultRecord {
            tool: call.name.clone(),
            call_id: call.id.clone(),
            outcome: how,
            is_error: outcome.is_error,
            output_hash: Some(output_hash),
            labels: moved.session,
            wrote: moved.wrote,
            sandbox,
        };
        let entry = self.line(EntryQuality::ToolResult, &call.name, parents, &record)?;
        let cid = entry.cid;
        let content = self.governance.policy.redactor.redact(&outcome.content).into_owned();
        let (id, is_error) = (call.id.clone(), outcome.is_error);
        self.event(EventKind::ToolResult { id, content, is_error });
        self.event(EventKind::LedgerAppend { entry: Box::new(entry) });
        Ok(cid)
    }

    /// Records that a parked call cannot be executed because its content is gone.
    pub(super) fn record_unreadable(
        &mut self,
        requested: &Requested,
        call: Cid,
        touched: &[Access],
    ) -> Result<(), RuntimeError> {
        let standing = &self.journal.standing;
        let moved = self.governance.policy.gate.moved(standing, None, (touched, CallEnd::Badly))?;
        let record = ToolResultRecord {
            tool: requested.tool.clone(),
            call_id: requested.call_id.clone(),
            outcome: CallOutcome::Interrupted,
            is_error: true,
            output_hash: None,
            labels: moved.session,
            wrote: moved.wrote,
            sandbox: None,
        };
        self.line(EntryQuality::ToolResult, &requested.tool, vec![call], &record).map(drop)
    }

    /// Records that a call was abandoned. Whether it took effect is unknown.
    pub(super) fn record_abandoned(
        &mut self,
        (id, tool): (&str, &str),
        call: Cid,
        begun: Begun,
    ) -> Result<Cid, RuntimeError> {
        let wrote = match begun {
            Begun::Yes => self.governance.policy.gate.left_behind(&self.journal.standing, tool)?,
            Begun::No => Vec::new(),
        };
        let record = ToolResultRecord {
            tool: tool.to_owned(),
            call_id: id.to_owned(),
            outcome: CallOutcome::Cancelled,
            is_error: true,
            output_hash: None,
            labels: self.journal.standing.labels,
            wrote,
            sandbox: None,
        };
        let entry = self.line(EntryQuality::ToolResult, tool, vec![call], &record)?;
        let cid = entry.cid;
        let content = "the turn ended before this call did".to_owned();
        self.event(EventKind::ToolResult { id: id.to_owned(), content, is_error: true });
        self.event(EventKind::LedgerAppend { entry: Box::new(entry) });
        Ok(cid)
    }
}

/// Whether a call may have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Perhaps,
    None,
}

/// Whether a call had started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    Yes,
    No,
}

/// The position of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub(super) cid: Cid,
    pub(super) seq: u64,
}

/// Runs blocking I/O with `block_in_place` on a multi-threaded runtime, so that other tasks go on.
fn run_blocking<T>(work: impl FnOnce() -> T) -> T {
    let runtime = tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor());
    match runtime {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// A denial as text that a model can pass on.
pub(super) fn denial(verdict: &Verdict) -> ToolOutcome {
    let mut text = format!("denied ({}): {}", verdict.rule_list(), verdict.reason);
    if let Some(would_allow) = &verdict.would_allow {
        text.push_str("; ");
        text.push_str(would_allow);
    }
    ToolOutcome::error(text)
}

pub(super) fn json_of(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, RuntimeError> {
    serde_json::to_vec(value).map_err(|error| RuntimeError::new(ErrorKind::Internal, error.to_string()))
}

/// The input of a call as it was recorded.
pub(super) fn input_from(json: &[u8]) -> Option<Value> {
    serde_json::from_slice(json).ok()
}
