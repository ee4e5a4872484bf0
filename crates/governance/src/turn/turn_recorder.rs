//! Records the calls of a session: the request, the verdict, the result. Used by the turn that makes the calls, and by
//! the code that finishes a call after its turn ended.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::OwnedMutexGuard;
use tribune_ledger::commitment::Commitment;
use tribune_ledger::{Cid, EntryQuality, LedgerEntry};
use tribune_records::approval::record::{CallRunner, Requested};
use tribune_records::ledger_payloads::{CallOutcome, SandboxRecord, ToolCallRecord, ToolResultRecord};
use tribune_records::outcome::{Access, ToolRun};
use tribune_runtime::{ContentBlock, ErrorKind, EventKind, Handle, RuntimeError, ToolCall, ToolOutcome};

use super::Governance;
use super::session_writer::{Durable, EntryDraft, FlushMode, PendingWrite, SessionWriter, WriteBatch};
use crate::approval::draft;
use crate::gate::CallEnd;

/// Records into one session.
pub(super) struct TurnRecorder {
    pub(super) governance: Arc<Governance>,
    pub(super) handle: Handle,
    pub(super) writer: OwnedMutexGuard<SessionWriter>,
    /// The batch that is written next.
    pub(super) batch: WriteBatch,
    /// The newest raw message of the agent that was stored, and its commitment.
    last_raw: Option<(blake3::Hash, Commitment)>,
}

/// A call with its entry in the ledger.
#[derive(Debug, Clone)]
pub(super) struct LedgerCall {
    pub(super) call: ToolCall,
    /// Its ledger entry.
    pub(super) entry: Cid,
    pub(super) input_hash: Commitment,
    /// Its input before a hook changed it, if one did.
    pub(super) original_input: Option<Value>,
    /// Who executes it.
    pub(super) runner: CallRunner,
    /// Who changed its text before allowing it.
    pub(super) reworded_by: Option<String>,
}

impl LedgerCall {
    /// Tells the agent that the executed call differs from the one it asked for.
    pub(super) fn note_rewording(&self, done: &mut ToolRun) {
        if let Some(by) = &self.reworded_by {
            let content = &mut done.outcome.content;
            content.insert_str(0, &format!("({by} changed the text before allowing the call) "));
        }
    }
}

impl TurnRecorder {
    pub(super) fn new(
        governance: Arc<Governance>,
        handle: Handle,
        writer: OwnedMutexGuard<SessionWriter>,
    ) -> Self {
        let batch = writer.new_batch();
        let mut recorder = Self { governance, handle, writer, batch, last_raw: None };
        recorder.merge_egress_labels();
        recorder
    }

    /// Applies the labels that connections out of the sandbox of the session have brought in so far.
    pub(super) fn merge_egress_labels(&mut self) {
        let egress_labels = self.governance.policy.out_of_turn.egress_labels(&self.handle.key);
        self.writer.context.labels = self.writer.context.labels.meet(egress_labels);
    }

    /// Writes the batch and starts a new one.
    pub(super) async fn write(&mut self) -> Result<Durable, RuntimeError> {
        let batch = std::mem::replace(&mut self.batch, self.writer.new_batch());
        self.writer.write(batch).await.map_err(RuntimeError::from)
    }

    /// Submits the batch, which is written before any that is submitted later, and starts a new one.
    pub(super) async fn submit(&mut self, mode: FlushMode) -> Result<PendingWrite, RuntimeError> {
        let batch = std::mem::replace(&mut self.batch, self.writer.new_batch());
        self.writer.submit(mode, batch).await.map_err(RuntimeError::from)
    }

    /// Waits until a submitted batch is durable.
    pub(super) async fn wait_durable(&mut self, pending: PendingWrite) -> Result<Durable, RuntimeError> {
        self.writer.wait_durable(pending).await.map_err(RuntimeError::from)
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
        self.writer.event(&mut self.batch, kind);
    }

    pub(super) fn content(&mut self, value: &(impl Serialize + ?Sized)) -> Result<Commitment, RuntimeError> {
        let json = json_of(value)?;
        self.writer.content(&mut self.batch, &json).map_err(RuntimeError::from)
    }

    pub(super) fn line<P: Serialize>(
        &mut self,
        quality: EntryQuality,
        target: &str,
        parents: Vec<Cid>,
        record: &P,
    ) -> Result<LedgerEntry, RuntimeError> {
        self.writer
            .entry(&mut self.batch, EntryDraft { quality, target, parents, record })
            .map_err(RuntimeError::from)
    }

    /// Records a call of a turn.
    pub(super) fn record_call(
        &mut self,
        call: ToolCall,
        original_input: Option<Value>,
        turn: Cid,
    ) -> Result<LedgerCall, RuntimeError> {
        let asked_hash = original_input.as_ref().map(|input| self.content(input)).transpose()?;
        let recorded = self.call_inner(call, vec![turn], CallRunner::Host, None, asked_hash)?;
        Ok(LedgerCall { original_input, ..recorded })
    }

    /// Records a call that the agent executes itself, with the raw message of the agent.
    pub(super) fn record_agent_call(
        &mut self,
        call: ToolCall,
        raw: &str,
        turn: Cid,
    ) -> Result<LedgerCall, RuntimeError> {
        // One message may describe many calls; it is stored once.
        let line = blake3::hash(raw.as_bytes());
        let raw = match self.last_raw {
            Some((known, commitment)) if known == line => commitment,
            _ => self.writer.content(&mut self.batch, raw.as_bytes())?,
        };
        self.last_raw = Some((line, raw));
        self.record_external_call(call, vec![turn], CallRunner::Agent, Some(raw))
    }

    /// Records a call that the host, the agent or an external caller executes.
    pub(super) fn record_external_call(
        &mut self,
        call: ToolCall,
        parents: Vec<Cid>,
        runner: CallRunner,
        raw: Option<Commitment>,
    ) -> Result<LedgerCall, RuntimeError> {
        self.call_inner(call, parents, runner, raw, None)
    }

    fn call_inner(
        &mut self,
        call: ToolCall,
        parents: Vec<Cid>,
        runner: CallRunner,
        said_hash: Option<Commitment>,
        asked_hash: Option<Commitment>,
    ) -> Result<LedgerCall, RuntimeError> {
        let input_hash = self.content(&call.input)?;
        let (tool, call_id) = (call.name.clone(), call.id.clone());
        let record = ToolCallRecord { tool, call_id, input_hash, runner, said_hash, asked_hash };
        let entry = self.line(EntryQuality::ToolCall, &call.name, parents, &record)?;
        let cid = entry.cid;
        let (id, name) = (call.id.clone(), call.name.clone());
        let input = self.governance.policy.redactor.redact_json(&call.input);
        self.event(EventKind::ToolCall { id, name, input });
        self.event(EventKind::LedgerAppend { entry: Box::new(entry) });
        Ok(LedgerCall { call, entry: cid, input_hash, original_input: None, runner, reworded_by: None })
    }

    /// The call with the text of the person who allows it. The gate decides about it again, in the form in which it
    /// runs.
    pub(super) fn reworded(
        &mut self,
        recorded: LedgerCall,
        by: String,
        text: &str,
    ) -> Result<LedgerCall, RuntimeError> {
        let input = draft::reworded(&recorded.call.name, &recorded.call.input, text);
        let input = input.ok_or_else(|| {
            RuntimeError::new(ErrorKind::Internal, "the call has no text that can be changed")
        })?;
        self.in_place(recorded, by, input)
    }

    /// The call with another input, which `by` put in place of the original.
    pub(super) fn in_place(
        &mut self,
        recorded: LedgerCall,
        by: String,
        input: Value,
    ) -> Result<LedgerCall, RuntimeError> {
        let input_hash = self.content(&input)?;
        let call = ToolCall { input, ..recorded.call };
        Ok(LedgerCall { call, input_hash, reworded_by: Some(by), ..recorded })
    }

    /// Records the result of an executed call, and propagates its labels.
    pub(super) fn record_result(
        &mut self,
        recorded: &LedgerCall,
        done: &ToolRun,
    ) -> Result<Cid, RuntimeError> {
        let parents = vec![recorded.entry];
        let ending = CallEnding {
            effect: Effect::Perhaps,
            outcome: done.how(),
            touched: &done.touched,
            sandbox: done.sandbox.clone(),
        };
        self.result(recorded, &done.outcome, ending, parents)
    }

    /// Records that a call was denied after its turn, and the resource that tells the agent so.
    pub(super) fn record_not_executed(
        &mut self,
        recorded: &LedgerCall,
        outcome: &ToolOutcome,
        touched: &[Access],
    ) -> Result<Cid, RuntimeError> {
        let ending = CallEnding::not_run(CallOutcome::Denied, touched);
        self.result(recorded, outcome, ending, vec![recorded.entry])
    }

    /// Records that a call did not run.
    pub(super) fn record_denial(
        &mut self,
        recorded: &LedgerCall,
        outcome: &ToolOutcome,
        how: CallOutcome,
        parents: Vec<Cid>,
    ) -> Result<Cid, RuntimeError> {
        self.result(recorded, outcome, CallEnding::not_run(how, &[]), parents)
    }

    pub(super) fn result(
        &mut self,
        recorded: &LedgerCall,
        outcome: &ToolOutcome,
        ending: CallEnding<'_>,
        parents: Vec<Cid>,
    ) -> Result<Cid, RuntimeError> {
        self.merge_egress_labels();
        let call = &recorded.call;
        // A call that did not run brought nothing in.
        let CallEnding { effect, outcome: how, touched, sandbox } = ending;
        let tool = (effect == Effect::Perhaps).then_some(call.name.as_str());
        let end = if outcome.is_error { CallEnd::Badly } else { CallEnd::Well };
        let label_change =
            self.governance.policy.gate.propagate_labels(&self.writer.context, tool, touched, end)?;
        self.writer.context.labels = label_change.session;
        let output_hash = self.content(&[ContentBlock::text(&outcome.content)])?;
        let record = ToolResultRecord {
            tool: call.name.clone(),
            call_id: call.id.clone(),
            outcome: how,
            is_error: outcome.is_error,
            output_hash: Some(output_hash),
            labels: label_change.session,
            wrote: label_change.wrote,
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
        let context = &self.writer.context;
        let label_change =
            self.governance.policy.gate.propagate_labels(context, None, touched, CallEnd::Badly)?;
        let record = ToolResultRecord {
            tool: requested.tool.clone(),
            call_id: requested.call_id.clone(),
            outcome: CallOutcome::Interrupted,
            is_error: true,
            output_hash: None,
            labels: label_change.session,
            wrote: label_change.wrote,
            sandbox: None,
        };
        self.line(EntryQuality::ToolResult, &requested.tool, vec![call], &record).map(drop)
    }

    /// Records that a call was abandoned. Whether it took effect is unknown.
    pub(super) fn record_abandoned(
        &mut self,
        call_id: &str,
        tool: &str,
        call: Cid,
        execution: Execution,
    ) -> Result<Cid, RuntimeError> {
        let wrote = match execution {
            Execution::Started => self.governance.policy.gate.possible_writes(&self.writer.context, tool)?,
            Execution::NotStarted => Vec::new(),
        };
        let record = ToolResultRecord {
            tool: tool.to_owned(),
            call_id: call_id.to_owned(),
            outcome: CallOutcome::Cancelled,
            is_error: true,
            output_hash: None,
            labels: self.writer.context.labels,
            wrote,
            sandbox: None,
        };
        let entry = self.line(EntryQuality::ToolResult, tool, vec![call], &record)?;
        let cid = entry.cid;
        let content = "the turn ended before this call did".to_owned();
        self.event(EventKind::ToolResult { id: call_id.to_owned(), content, is_error: true });
        self.event(EventKind::LedgerAppend { entry: Box::new(entry) });
        Ok(cid)
    }
}

/// How a call ended.
pub(super) struct CallEnding<'a> {
    effect: Effect,
    outcome: CallOutcome,
    /// What it touched, for the labels.
    touched: &'a [Access],
    sandbox: Option<SandboxRecord>,
}

impl<'a> CallEnding<'a> {
    /// The end of a call that was not executed. `touched` are the resources that tell the agent so.
    pub(super) const fn not_run(outcome: CallOutcome, touched: &'a [Access]) -> Self {
        Self { effect: Effect::None, outcome, touched, sandbox: None }
    }
}

/// Whether a call may have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Perhaps,
    None,
}

/// Whether the execution of a call had started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Execution {
    Started,
    NotStarted,
}

pub(super) fn json_of(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, RuntimeError> {
    serde_json::to_vec(value).map_err(|error| RuntimeError::new(ErrorKind::Internal, error.to_string()))
}

/// The input of a call as it was recorded.
pub(super) fn input_from(json: &[u8]) -> Option<Value> {
    serde_json::from_slice(json).ok()
}
