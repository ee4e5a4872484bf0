//! Calls of the daemon that wait for a person: asked about once for each action of a session, and judged again after the
//! decision.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tribune_constitution::{Decision, DecisionStage, Verdict, Veto};
use tribune_ledger::{Cid, EntryQuality};
use tribune_records::approval::action::approval_id;
use tribune_records::approval::decision::ApprovalDecision;
use tribune_records::approval::record::{ApprovalRecord, CallRunner, Requested};
use tribune_storage::store::SessionRow;

use super::{DenialCode, Denied, OutOfTurnRequest, denied};
use crate::approval::KnownAction;
use crate::gate::hooks::HookSubject;
use crate::gate::{Admission, PolicyContext};
use crate::turn::call_decision::digest_of;
use crate::turn::external_calls::FULL;
use crate::turn::turn_recorder::json_of;

/// The answer when nobody decided in time.
const LATE: &str = "nobody decided in time: try again, or ask the operator";

/// The answer to a caller that went away.
const GONE: &str = "the caller went away before anyone decided";

impl OutOfTurnRequest<'_> {
    /// Asks a person about the call. An equal call of the session that waits already is not asked about: this one waits
    /// for its decision, and is judged again.
    pub(super) async fn ask(
        &self,
        mut row: SessionRow,
        mut context: PolicyContext,
        (mut verdict, mut entry): (Verdict, Cid),
        wait: Duration,
        gone: impl Future<Output = ()>,
    ) -> Result<Admission, Denied> {
        let inbox = &self.out_of_turn.gate.inbox;
        let deadline = Instant::now() + wait;
        tokio::pin!(gone);
        let mut waited = false;
        let (requested, decision) = loop {
            let mut changes = inbox.watch();
            let parking = self.out_of_turn.parking.lock().await;
            let digest = digest_of(&self.action(&context))?;
            match inbox.known_action(self.key.as_str(), &self.call.name, &digest) {
                Some(known @ KnownAction::Denied(_)) => {
                    return Err(Denied::recorded(DenialCode::Denied, known.sentence()));
                }
                Some(KnownAction::Waits(_)) => {
                    drop(parking);
                    tokio::select! {
                        _ = changes.changed() => waited = true,
                        () = &mut gone => return Err(Denied::recorded(DenialCode::Undecided, GONE)),
                        () = tokio::time::sleep_until(deadline) => {
                            return Err(Denied::recorded(DenialCode::Undecided, LATE));
                        }
                    }
                }
                None if waited => {
                    drop(parking);
                    waited = false;
                    (row, context) = self.context().await?;
                    let (token, again, judged) =
                        self.judge(&context, DecisionStage::Call, None, Vec::new(), vec![entry]).await?;
                    match (token, again.decision) {
                        (Some(token), _) => return Ok(self.admit(token, &judged)),
                        (None, Decision::Ask) => (verdict, entry) = (again, judged.cid),
                        (None, Decision::Allow | Decision::Deny) => return Err(denied(&again)),
                    }
                }
                None => break self.park(&row, &context, verdict, entry, wait).await?,
            }
        };
        self.wait((requested, decision), entry, deadline, gone).await
    }

    /// Records that the call waits for a person. The request expires when the caller stops waiting.
    async fn park(
        &self,
        row: &SessionRow,
        context: &PolicyContext,
        verdict: Verdict,
        entry: Cid,
        wait: Duration,
    ) -> Result<(Requested, oneshot::Receiver<ApprovalDecision>), Denied> {
        let gate = &self.out_of_turn.gate;
        if !gate.inbox.has_room(self.key.as_str(), context.tier) {
            return Err(Denied::recorded(DenialCode::TooManyWaiting, FULL));
        }
        let action = self.action(context);
        let json = json_of(&action)?;
        let Some(commitment) = self.out_of_turn.storage.vault.keep(&row.id, &json).await? else {
            let what = "no person can be asked before the first turn of the session: start with a turn";
            return Err(Denied::recorded(DenialCode::CannotAsk, what));
        };
        let (roles, needs, expires_at) = gate.terms(&self.call.name);
        let expires_at = expires_at.min(self.out_of_turn.storage.clock.now().plus(wait).to_string());
        let requested = Requested {
            id: approval_id(&entry, 0),
            session: self.key.to_string(),
            agent: self.key.agent().to_string(),
            tool: self.call.name.clone(),
            call_id: self.call.id.clone(),
            call: entry.to_string(),
            verdict: entry.to_string(),
            digest: digest_of(&action)?,
            action: commitment,
            rules: verdict.rules,
            reason: verdict.reason,
            risk: gate.risk(&self.call.name).to_owned(),
            labels: action.labels,
            roles,
            needs,
            expires_at,
            // Only the caller can execute it, and it does not outlive its daemon.
            runner: CallRunner::Caller,
            not_bound: Vec::new(),
            instead_of: None,
            changed: Vec::new(),
            roots: action.roots.clone(),
        };
        let record = ApprovalRecord::Requested(requested.clone());
        let draft = self.draft(EntryQuality::Approval, vec![entry], &record);
        let appended = self.out_of_turn.storage.ledger.append(&draft).await?;
        let decision = gate.inbox.ask(requested.clone(), context.tier, appended.cid);
        Ok((requested, decision))
    }

    /// Waits for a person, and decides again about what was allowed.
    async fn wait(
        &self,
        (requested, decision): (Requested, oneshot::Receiver<ApprovalDecision>),
        asked: Cid,
        deadline: Instant,
        gone: impl Future<Output = ()>,
    ) -> Result<Admission, Denied> {
        let inbox = &self.out_of_turn.gate.inbox;
        let id = requested.id.clone();
        let given_up = tokio::select! {
            decision = decision => Ok(decision.unwrap_or(ApprovalDecision::Withdrawn)),
            () = gone => Err(GONE),
            () = tokio::time::sleep_until(deadline) => Err(LATE),
            // No decision can be recorded any more.
            error = self.out_of_turn.storage.ledger.wait_failed() => return Err(error.into()),
        };
        match given_up {
            Ok(ApprovalDecision::Allowed { .. }) => {}
            Ok(ApprovalDecision::Expired) => return Err(Denied::recorded(DenialCode::Undecided, LATE)),
            Ok(decision) => return Err(Denied::recorded(DenialCode::Denied, decision.sentence())),
            Err(why) => {
                inbox.withdraw(std::slice::from_ref(&id)).await;
                return Err(Denied::recorded(DenialCode::Undecided, why));
            }
        }
        let (_, context) = self.context().await?;
        let mut vetoes = self.out_of_turn.gate.hooks.objections(&HookSubject::of(&context), &self.call).await;
        if !self.out_of_turn.gate.matches_digest(&requested, &self.action(&context)) {
            let what = "the session has read more since this was asked: try again";
            vetoes.push(Veto::new(&format!("{}.stale", self.call.name), what));
        }
        let (token, verdict, entry) =
            self.judge(&context, DecisionStage::Dispatch, Some(&id), vetoes, vec![asked]).await?;
        token.map(|token| self.admit(token, &entry)).ok_or_else(|| denied(&verdict))
    }
}
