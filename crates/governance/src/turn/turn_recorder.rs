//! Where a session's calls are written down: what was asked, how it was judged, what came of it. Used by the turn that
//! makes the calls, and by whoever finishes one that outlived its turn.

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
use tribune_runtime::{ContentBlock, EventKind, Handle, RuntimeError, ToolCall, ToolOutcome};

use super::Governance;
use super::session_writer::{Durable, EntryDraft, FlushMode, PendingWrite, SessionWriter, WriteBatch};
use crate::approval::draft;
use crate::gate::{AllowToken, Authorization, AuthorizationRequest, CallEnd, PolicyContext, Ticket};

/// A session's history, open at its end.
pub(super) struct TurnRecorder {
    pub(super) governance: Arc<Governance>,
    pub(super) handle: Handle,
    pub(super) journal: OwnedMutexGuard<SessionWriter>,
    /// What comes next on disk.
    pub(super) page: WriteBatch,
    /// The newest line of an agent that is kept, and under which name.
    last_said: Option<(blake3::Hash, Commitment)>,
}

/// A call that is on record.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    pub(super) call: ToolCall,
    /// Its entry.
    pub(super) entry: Cid,
    pub(super) input_hash: Commitment,
    /// Its input before a hook narrowed it.
    pub(super) asked: Option<Value>,
    /// Who carries it out.
    pub(super) runner: CallRunner,
    /// Who put it into other words before allowing it.
    pub(super) reworded_by: Option<String>,
}

impl Recorded {
    /// Tells the agent that what was done is not quite what it asked for.
    pub(super) fn tell_reworded(&self, done: &mut ToolRun) {
        if let Some(by) = &self.reworded_by {
            let content = &mut done.outcome.content;
            content.insert_str(0, &format!("({by} changed the text before allowing the call) "));
        }
    }
}

/// How a recorded call was judged.
pub(super) enum Judged {
    /// It may run once the page is written.
    Allowed(Ticket),
    Asked(Verdict, Cid),
    /// Its result is on the page.
    Denied(ToolOutcome, Cid),
}

impl TurnRecorder {
    pub(super) fn new(
        governance: Arc<Governance>,
        handle: Handle,
        journal: OwnedMutexGuard<SessionWriter>,
    ) -> Self {
        let page = journal.page();
        let mut desk = Self { governance, handle, journal, page, last_said: None };
        desk.merge_egress_labels();
        desk
    }

    /// Takes in what connections out of the session's box have brought in by now.
    fn merge_egress_labels(&mut self) {
        let seeped = self.governance.out_of_turn.seeped(&self.handle.key);
        self.journal.standing.labels = self.journal.standing.labels.meet(seeped);
    }

    /// Writes the page and begins another.
    pub(super) async fn write(&mut self) -> Result<Durable, RuntimeError> {
        let page = std::mem::replace(&mut self.page, self.journal.page());
        self.journal.write(page).await.map_err(RuntimeError::from)
    }

    /// Has the page written before whatever is handed in later, and begins another.
    pub(super) async fn hand_in(&mut self, hand: FlushMode) -> Result<PendingWrite, RuntimeError> {
        let page = std::mem::replace(&mut self.page, self.journal.page());
        self.journal.submit(hand, page).await.map_err(RuntimeError::from)
    }

    /// Waits until a page that was handed in is durable.
    pub(super) async fn written(&mut self, page: PendingWrite) -> Result<Durable, RuntimeError> {
        self.journal.wait_durable(page).await.map_err(RuntimeError::from)
    }

    /// Writes the page of someone who is no turn, and shows it to those who follow the session.
    pub(super) async fn write_outside_turn(&mut self) -> Result<Durable, RuntimeError> {
        let written = self.write().await?;
        self.show(&written);
        Ok(written)
    }

    /// Shows what was written outside of a turn. What a turn writes is shown by whoever runs it.
    pub(super) fn show(&self, written: &Durable) {
        self.governance.feeds.publish(&self.handle.key, &written.events);
    }

    pub(super) fn event(&mut self, kind: EventKind) {
        self.journal.event(&mut self.page, kind);
    }

    pub(super) fn content(&mut self, words: &(impl Serialize + ?Sized)) -> Result<Commitment, RuntimeError> {
        let json = json_of(words)?;
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

    /// Puts a call of a turn on record.
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

    /// Puts a call on record that its agent carries out itself, with what the agent said.
    pub(super) fn record_agent_call(
        &mut self,
        call: ToolCall,
        said: &str,
        turn: Cid,
    ) -> Result<Recorded, RuntimeError> {
        // One line may tell of many calls, and is kept once.
        let line = blake3::hash(said.as_bytes());
        let said = match self.last_said {
            Some((known, commitment)) if known == line => commitment,
            _ => self.journal.content(&mut self.page, said.as_bytes())?,
        };
        self.last_said = Some((line, said));
        self.record_external_call(call, vec![turn], (CallRunner::Agent, Some(said)))
    }

    /// Puts a call on record that this daemon or someone else is to carry out.
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
        let input = self.governance.redactor.redact_json(&call.input);
        self.event(EventKind::ToolCall { id, name, input });
        self.event(EventKind::LedgerAppend { entry: Box::new(entry) });
        Ok(Recorded { call, entry: cid, input_hash, asked: None, runner, reworded_by: None })
    }

    /// The call in the words of whoever allows it. The law looks at it again, as it will run.
    pub(super) fn reworded(
        &mut self,
        recorded: Recorded,
        by: String,
        text: &str,
    ) -> Result<Recorded, RuntimeError> {
        let input = draft::reworded(&recorded.call.name, &recorded.call.input, text);
        let input = input.ok_or_else(|| RuntimeError::new("internal", "a call has no words to change"))?;
        self.in_place(recorded, by, input)
    }

    /// The call with another input, which `by` put in place of its own.
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

    /// Judges a recorded call; the verdict is on the page, and so is the result of a denial.
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

    /// The same for a call whose agent is told by what `told` has, if it is refused.
    pub(super) fn judge_telling(
        &mut self,
        recorded: &Recorded,
        (stage, approval): (DecisionStage, Option<&str>),
        owner_words: &[&str],
        vetoes: Vec<Veto>,
        told: &[Access],
    ) -> Result<Judged, RuntimeError> {
        self.merge_egress_labels();
        let standing = self.journal.standing.clone();
        let (leave, verdict, entry) =
            self.authorize(recorded, &standing, (stage, approval), owner_words, vetoes)?;
        if let Some(leave) = leave {
            let who = (Arc::clone(&self.handle.key), standing.ground());
            let ticket = Ticket::new(leave, recorded.call.clone(), who, recorded.entry, entry.seq);
            return Ok(Judged::Allowed(ticket));
        }
        if verdict.is_offered() {
            return Ok(Judged::Asked(verdict, entry.cid));
        }
        let outcome = denial(&verdict);
        let parents = vec![recorded.entry, entry.cid];
        let result =
            self.result(recorded, &outcome, (Effect::None, CallOutcome::Denied), (told, None), parents)?;
        Ok(Judged::Denied(outcome, result))
    }

    /// Judges a recorded call of a session that stands like this, and puts the verdict on record.
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
                aside(|| governance.tools.dependencies(&standing.ground(), call).files)
            }
            // What lies where the call is carried out is not known here.
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
        let judgement = self.governance.gate.judge(inquiry)?;
        let leave = judgement.leave();
        let (verdict, entry) = self.verdict(judgement, Some(recorded.input_hash), vec![recorded.entry])?;
        Ok((leave, verdict, entry))
    }

    /// Puts a verdict on record.
    pub(super) fn verdict(
        &mut self,
        judgement: Authorization,
        input_hash: Option<Commitment>,
        parents: Vec<Cid>,
    ) -> Result<(Verdict, Placed), RuntimeError> {
        let (facts, verdict) = judgement.into_parts();
        let record = VerdictRecord {
            tool: facts.tool.clone(),
            constitution_hash: self.governance.gate.law.hash().to_string(),
            input_hash,
            facts,
            verdict,
        };
        let entry = self.line(EntryQuality::PolicyVerdict, &record.tool, parents, &record)?;
        let placed = Placed { cid: entry.cid, seq: entry.seq };
        self.event(EventKind::PolicyGate { entry: Box::new(entry) });
        Ok((record.verdict, placed))
    }

    /// Puts on record that a call waits for a person.
    pub(super) fn request(
        &mut self,
        recorded: &Recorded,
        (verdict, verdict_entry): (Verdict, Cid),
        action: &Action,
        (attempt, instead_of): (u32, Option<(String, Vec<String>)>),
    ) -> Result<(Requested, Cid), RuntimeError> {
        let gate = &self.governance.gate;
        let tool = &recorded.call.name;
        let (roles, needs, expires_at) = gate.terms(tool);
        let risk = gate.risk(tool).to_owned();
        let digest = action.digest().map_err(|error| RuntimeError::new("internal", error.to_string()))?;
        let (instead_of, changed) =
            instead_of.map_or((None, Vec::new()), |(id, changed)| (Some(id), changed));
        let (workspace, further) = (action.workspace.clone(), action.further.clone());
        // As the law saw them, which is how whoever decides is told them.
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
            workspace,
            further,
        };
        let record = ApprovalRecord::Requested(requested.clone());
        let parents = vec![recorded.entry, verdict_entry];
        let entry = self.line(EntryQuality::Approval, &requested.id, parents, &record)?;
        let cid = entry.cid;
        let id = requested.id.clone();
        self.event(EventKind::ApprovalRequested { id, entry: Box::new(entry) });
        Ok((requested, cid))
    }

    /// Puts on record what came of a call that ran, and moves the labels.
    pub(super) fn record_result(&mut self, recorded: &Recorded, done: &ToolRun) -> Result<Cid, RuntimeError> {
        let parents = vec![recorded.entry];
        let (ended, held) = ((Effect::Perhaps, done.how()), (done.touched.as_slice(), done.sandbox.clone()));
        self.result(recorded, &done.outcome, ended, held, parents)
    }

    /// Puts on record that a call was refused after its turn, and what tells its agent so.
    pub(super) fn record_not_executed(
        &mut self,
        recorded: &Recorded,
        outcome: &ToolOutcome,
        touched: &[Access],
    ) -> Result<Cid, RuntimeError> {
        let how = (Effect::None, CallOutcome::Denied);
        self.result(recorded, outcome, how, (touched, None), vec![recorded.entry])
    }

    /// Puts on record that a call did not run.
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
        // What did not run brought nothing in.
        let tool = (effect == Effect::Perhaps).then_some(call.name.as_str());
        let ended = if outcome.is_error { CallEnd::Badly } else { CallEnd::Well };
        let moved = self.governance.gate.moved(&self.journal.standing, tool, (touched, ended))?;
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
        let content = self.governance.redactor.redact(&outcome.content).into_owned();
        let (id, is_error) = (call.id.clone(), outcome.is_error);
        self.event(EventKind::ToolResult { id, content, is_error });
        self.event(EventKind::LedgerAppend { entry: Box::new(entry) });
        Ok(cid)
    }

    /// Puts on record that a call that waited cannot be carried out: its words are gone.
    pub(super) fn record_unreadable(
        &mut self,
        requested: &Requested,
        call: Cid,
        touched: &[Access],
    ) -> Result<(), RuntimeError> {
        let standing = &self.journal.standing;
        let moved = self.governance.gate.moved(standing, None, (touched, CallEnd::Badly))?;
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

    /// Puts on record that a call was given up. Whether it took effect is not known.
    pub(super) fn record_abandoned(
        &mut self,
        (id, tool): (&str, &str),
        call: Cid,
        begun: Begun,
    ) -> Result<Cid, RuntimeError> {
        let wrote = match begun {
            Begun::Yes => self.governance.gate.left_behind(&self.journal.standing, tool)?,
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

/// Whether something may have come of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Perhaps,
    None,
}

/// Whether a call was under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    Yes,
    No,
}

/// Where an entry stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub(super) cid: Cid,
    pub(super) seq: u64,
}

/// Does what waits for the disk so that it holds up nobody else, where there are other threads.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    let runtime = tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor());
    match runtime {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// A denial in words that a model can pass on.
pub(super) fn denial(verdict: &Verdict) -> ToolOutcome {
    let mut text = format!("denied ({}): {}", verdict.rule_list(), verdict.reason);
    if let Some(would_allow) = &verdict.would_allow {
        text.push_str("; ");
        text.push_str(would_allow);
    }
    ToolOutcome::error(text)
}

pub(super) fn json_of(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, RuntimeError> {
    serde_json::to_vec(value).map_err(|error| RuntimeError::new("internal", error.to_string()))
}

/// A call's input as it was recorded.
pub(super) fn input_from(words: &[u8]) -> Option<Value> {
    serde_json::from_slice(words).ok()
}
