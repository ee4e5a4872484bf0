//! Calls of a turn that wait for a person: they are parked, and continue when the decision is made. Calls that outlived
//! their turn are resumed by [`resume_parked`](super::resume_parked).

use tribune_constitution::DecisionStage;
use tribune_ledger::Cid;
use tribune_records::approval::action::Action;
use tribune_records::approval::decision::ApprovalDecision;
use tribune_records::approval::record::{ApprovalState, Requested};
use tribune_records::ledger_payloads::CallOutcome;
use tribune_runtime::{EventKind, RuntimeError, ToolOutcome};

use super::call_decision::{Attempt, CallDecision, CallReview, ReplacedRequest};
use super::calls::{CallStep, Calls, Progress, action_now};
use super::toolbox::Responder;
use super::turn_recorder::{LedgerCall, TurnRecorder};
use crate::gate::OwnerWords;

/// How often a call whose action keeps changing returns to the inbox.
const MAX_ATTEMPTS: u32 = 8;

/// A call that waits for a person.
pub(super) struct ParkedCall {
    pub(super) recorded: LedgerCall,
    pub(super) answer: Responder,
    pub(super) requested: Requested,
    pub(super) action: Action,
    pub(super) attempt: u32,
}

impl Calls {
    /// Writes the approval request, and waits for a person when it is durable.
    pub(super) async fn park(
        &mut self,
        recorder: &mut TurnRecorder,
        parked: ParkedCall,
        request: Cid,
    ) -> Result<CallStep, RuntimeError> {
        self.untrack(&parked.recorded.call.id);
        let written = recorder.write().await?;
        self.track(&parked.recorded, Some(parked.requested.id.clone()));
        let decision = recorder.governance.policy.gate.inbox.ask(
            parked.requested.clone(),
            recorder.writer.context.tier,
            request,
        );
        self.underway.push(Box::pin(async move {
            let decision = decision.await.unwrap_or(ApprovalDecision::Withdrawn);
            Progress::Decided(Box::new(parked), decision)
        }));
        Ok(CallStep::events(written.events))
    }

    /// Handles the decision of a person, or the end of a request without one.
    pub(super) async fn on_decision(
        &mut self,
        recorder: &mut TurnRecorder,
        parked: ParkedCall,
        decision: ApprovalDecision,
        owner_words: Option<&OwnerWords>,
    ) -> Result<CallStep, RuntimeError> {
        let ParkedCall { recorded, answer, requested, action, attempt } = parked;
        let state = decision.state();
        recorder
            .event(EventKind::ApprovalDecided { id: requested.id.clone(), state: state.as_str().to_owned() });
        if state != ApprovalState::Allowed {
            let stop = matches!(decision, ApprovalDecision::Denied { stop: true, .. });
            let outcome = match decision {
                ApprovalDecision::Answered => ToolOutcome::good(decision.sentence()),
                _ => ToolOutcome::error(decision.sentence()),
            };
            let how =
                if state == ApprovalState::Withdrawn { CallOutcome::Cancelled } else { CallOutcome::Denied };
            let result = recorder.record_denial(&recorded, &outcome, how, vec![recorded.entry])?;
            let handled = self.refuse(recorder, &recorded, answer, outcome, result).await?;
            return Ok(CallStep { stop, ..handled });
        }
        let now = action_now(recorder, &recorded.call).await?;
        let matches_digest = recorder.governance.policy.gate.matches_digest(&requested, &now);
        // From here on the call has the text that was allowed.
        let recorded = match decision {
            ApprovalDecision::Allowed { by, text: Some(text) } => recorder.reworded(recorded, by, &text)?,
            _ => recorded,
        };
        if matches_digest {
            return self.dispatch(recorder, recorded, answer, &requested.id, owner_words).await;
        }
        if attempt >= MAX_ATTEMPTS {
            let what = "denied: the approved action kept changing before it could run";
            let outcome = ToolOutcome::error(what);
            let result =
                recorder.record_denial(&recorded, &outcome, CallOutcome::Denied, vec![recorded.entry])?;
            return self.refuse(recorder, &recorded, answer, outcome, result).await;
        }
        let parked = ParkedCall { recorded, answer, requested, action, attempt };
        self.ask_again(recorder, parked, owner_words).await
    }

    /// The approved action is not the one that would run: the call returns to the inbox, with what changed.
    async fn ask_again(
        &mut self,
        recorder: &mut TurnRecorder,
        parked: ParkedCall,
        owner_words: Option<&OwnerWords>,
    ) -> Result<CallStep, RuntimeError> {
        let ParkedCall { recorded, answer, requested, action, attempt } = parked;
        let now = action_now(recorder, &recorded.call).await?;
        let changed = action.changed(&now);
        let review = CallReview { owner_words, ..CallReview::at(DecisionStage::Dispatch) };
        match recorder.judge(&recorded, review)? {
            CallDecision::Allowed(pending) => self.start_execution(recorder, recorded, answer, pending).await,
            CallDecision::Denied(outcome, result) => {
                self.refuse(recorder, &recorded, answer, outcome, result).await
            }
            CallDecision::Asked(verdict, entry) => {
                let attempt = attempt + 1;
                let replaces = Some(ReplacedRequest { id: requested.id, changed });
                let request = Attempt { number: attempt, replaces };
                let (requested, cid) = recorder.request(&recorded, verdict, entry, &now, request)?;
                self.park(recorder, ParkedCall { recorded, answer, requested, action: now, attempt }, cid)
                    .await
            }
        }
    }

    /// Continues a call that a person decided about before its daemon ended.
    pub(super) async fn resume_answered(
        &mut self,
        recorder: &mut TurnRecorder,
        recorded: LedgerCall,
        answer: Responder,
        approval: &str,
        decision: &ApprovalDecision,
        owner_words: Option<&OwnerWords>,
    ) -> Result<CallStep, RuntimeError> {
        if decision.state() == ApprovalState::Allowed {
            return self.dispatch(recorder, recorded, answer, approval, owner_words).await;
        }
        let outcome = ToolOutcome::error(decision.sentence());
        let result =
            recorder.record_denial(&recorded, &outcome, CallOutcome::Denied, vec![recorded.entry])?;
        self.refuse(recorder, &recorded, answer, outcome, result).await
    }

    /// The last decision of the gate about a call that a person allowed.
    async fn dispatch(
        &mut self,
        recorder: &mut TurnRecorder,
        recorded: LedgerCall,
        answer: Responder,
        approval: &str,
        owner_words: Option<&OwnerWords>,
    ) -> Result<CallStep, RuntimeError> {
        let vetoes = match &answer {
            Responder::Outcome(_) => Vec::new(),
            Responder::Permission { .. } => {
                recorder.path_alias_veto(&recorded.call).await?.into_iter().collect()
            }
        };
        let review = CallReview {
            approval: Some(approval),
            owner_words,
            vetoes,
            ..CallReview::at(DecisionStage::Dispatch)
        };
        match recorder.judge(&recorded, review)? {
            CallDecision::Allowed(pending) => self.start_execution(recorder, recorded, answer, pending).await,
            CallDecision::Denied(outcome, result) => {
                self.refuse(recorder, &recorded, answer, outcome, result).await
            }
            CallDecision::Asked(..) => {
                let outcome =
                    ToolOutcome::error("denied: the approved call may not run in its current state");
                let result =
                    recorder.record_denial(&recorded, &outcome, CallOutcome::Denied, vec![recorded.entry])?;
                self.refuse(recorder, &recorded, answer, outcome, result).await
            }
        }
    }
}
