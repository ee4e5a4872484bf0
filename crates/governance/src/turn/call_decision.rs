//! The decision of the gate about a recorded call: the verdict is recorded, and so is the request for a person if the
//! verdict asks for one. Executes nothing and waits for nobody.

use std::sync::Arc;

use tribune_constitution::{DecisionStage, Verdict, Veto};
use tribune_ledger::commitment::Commitment;
use tribune_ledger::{Cid, EntryQuality};
use tribune_records::approval::action::{Action, Files, approval_id};
use tribune_records::approval::record::{ApprovalRecord, CallRunner, Requested};
use tribune_records::ledger_payloads::{CallOutcome, VerdictRecord};
use tribune_records::outcome::Access;
use tribune_runtime::{ErrorKind, EventKind, RuntimeError, ToolOutcome};

use super::turn_recorder::{CallEnding, LedgerCall, TurnRecorder};
use crate::gate::{
    AllowToken, Authorization, AuthorizationRequest, OwnerWords, PendingAdmission, PolicyContext,
};

/// The verdict on a recorded call.
pub(super) enum CallDecision {
    /// It may run when the batch is durable.
    Allowed(PendingAdmission),
    /// A person decides. The entry is that of the verdict.
    Asked(Verdict, Cid),
    /// Its result is in the batch, under this entry.
    Denied(ToolOutcome, Cid),
}

/// The circumstances in which a recorded call is decided.
pub(super) struct CallReview<'a> {
    pub(super) stage: DecisionStage,
    /// The approval of exactly this call, if a person allowed it.
    pub(super) approval: Option<&'a str>,
    /// What the owner said in the turn.
    pub(super) owner_words: Option<&'a OwnerWords>,
    pub(super) vetoes: Vec<Veto>,
    /// Where a denial reaches the agent beside its result, such as a mailbox message.
    pub(super) notified: &'a [Access],
}

impl CallReview<'_> {
    /// A review at this stage, without an approval, owner words or vetoes.
    pub(super) const fn at(stage: DecisionStage) -> Self {
        Self { stage, approval: None, owner_words: None, vetoes: Vec::new(), notified: &[] }
    }
}

/// Which request about a call this is: a call whose action changes is asked for again.
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) replaces: Option<ReplacedRequest>,
}

impl Attempt {
    pub(super) const FIRST: Self = Self { number: 0, replaces: None };
}

/// The earlier request of a call, and what changed since.
pub(super) struct ReplacedRequest {
    pub(super) id: String,
    pub(super) changed: Vec<String>,
}

/// The position of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryPosition {
    pub(super) cid: Cid,
    pub(super) seq: u64,
}

impl TurnRecorder {
    /// Decides about a recorded call. The verdict is added to the batch, and so is the result of a denial.
    pub(super) fn judge(
        &mut self,
        recorded: &LedgerCall,
        review: CallReview<'_>,
    ) -> Result<CallDecision, RuntimeError> {
        self.merge_egress_labels();
        let context = self.writer.context.clone();
        let notified = review.notified;
        let (token, verdict, entry) = self.authorize(recorded, &context, review)?;
        if let Some(token) = token {
            let session = Arc::clone(&self.handle.key);
            let call = recorded.call.clone();
            let pending =
                PendingAdmission::new(token, call, session, context.ground(), recorded.entry, entry.seq);
            return Ok(CallDecision::Allowed(pending));
        }
        if verdict.is_offered() {
            return Ok(CallDecision::Asked(verdict, entry.cid));
        }
        let outcome = denial(&verdict);
        let parents = vec![recorded.entry, entry.cid];
        let ending = CallEnding::not_run(CallOutcome::Denied, notified);
        let result = self.result(recorded, &outcome, ending, parents)?;
        Ok(CallDecision::Denied(outcome, result))
    }

    /// Decides about a recorded call in the given policy context, and records the verdict.
    pub(super) fn authorize(
        &mut self,
        recorded: &LedgerCall,
        context: &PolicyContext,
        review: CallReview<'_>,
    ) -> Result<(Option<AllowToken>, Verdict, EntryPosition), RuntimeError> {
        let (governance, call) = (&self.governance, &recorded.call);
        let runs = || match recorded.runner {
            CallRunner::Host | CallRunner::Agent => {
                run_blocking(|| governance.tools.granted_files(&context.ground(), call))
            }
            // The files at the place where an external caller executes the call are not known here.
            CallRunner::Caller => Some(Files::default()),
        };
        let CallReview { stage, approval, owner_words, mut vetoes, notified: _ } = review;
        if recorded.runner == CallRunner::Host {
            vetoes.extend(governance.policy.gate.recipient_veto(context.key.agent(), call));
        }
        let request = AuthorizationRequest {
            context,
            tool: &recorded.call.name,
            stage,
            call_id: &recorded.call.id,
            input: Some(&recorded.call.input),
            original_input: recorded.original_input.as_ref(),
            runs: &runs,
            owner_words,
            vetoes,
            approval,
        };
        let authorization = self.governance.policy.gate.judge(request)?;
        let token = authorization.allow_token();
        let (verdict, entry) =
            self.verdict(authorization, Some(recorded.input_hash), vec![recorded.entry])?;
        Ok((token, verdict, entry))
    }

    /// Records a verdict.
    pub(super) fn verdict(
        &mut self,
        authorization: Authorization,
        input_hash: Option<Commitment>,
        parents: Vec<Cid>,
    ) -> Result<(Verdict, EntryPosition), RuntimeError> {
        let (facts, verdict) = authorization.into_parts();
        let record = VerdictRecord {
            tool: facts.tool.clone(),
            constitution_hash: self.governance.policy.gate.law.hash().to_string(),
            input_hash,
            facts,
            verdict,
        };
        let entry = self.line(EntryQuality::PolicyVerdict, &record.tool, parents, &record)?;
        let position = EntryPosition { cid: entry.cid, seq: entry.seq };
        self.event(EventKind::PolicyGate { entry: Box::new(entry) });
        Ok((record.verdict, position))
    }

    /// Records that a call waits for a person. `verdict_entry` is the entry of the verdict.
    pub(super) fn request(
        &mut self,
        recorded: &LedgerCall,
        verdict: Verdict,
        verdict_entry: Cid,
        action: &Action,
        attempt: Attempt,
    ) -> Result<(Requested, Cid), RuntimeError> {
        let gate = &self.governance.policy.gate;
        let tool = &recorded.call.name;
        let (roles, needs, expires_at) = gate.terms(tool);
        let risk = gate.risk(tool).to_owned();
        let digest = digest_of(action)?;
        let (instead_of, changed) =
            attempt.replaces.map_or((None, Vec::new()), |replaced| (Some(replaced.id), replaced.changed));
        let roots = action.roots.clone();
        // The labels that the gate used. The approver is shown the same ones.
        let labels = action.labels;
        let not_bound = action.not_bound.clone();
        let action = self.content(action)?;
        let requested = Requested {
            id: approval_id(&recorded.entry, attempt.number),
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
            not_bound,
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
}

pub(super) fn digest_of(action: &Action) -> Result<String, RuntimeError> {
    action.digest().map_err(|error| RuntimeError::new(ErrorKind::Internal, error.to_string()))
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
