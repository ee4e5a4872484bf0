//! The calls of a turn. Each call is recorded and decided, waits for a person if the law asks, runs if it may, and is
//! answered.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::oneshot;
use tribune_config::hook_spec::HookPoint;
use tribune_constitution::{DecisionStage, EGRESS, LAND, MCP_SERVER, SPEND, Veto};
use tribune_ledger::Cid;
use tribune_records::approval::action::Action;
use tribune_records::approval::decision::ApprovalDecision;
use tribune_records::approval::record::{ApprovalState, CallRunner, Requested};
use tribune_records::ledger_payloads::CallOutcome;
use tribune_records::outcome::ToolRun;
use tribune_runtime::{
    EventKind, PermissionTiming, RuntimeError, RuntimeEvent, Terminal, ToolCall, ToolOutcome,
};

use super::agent_executed_calls::GrantedCall;
use super::external_calls::FULL;
use super::toolbox::{PendingOutcome, Responder, ToolRequest};
use super::turn_recorder::{Begun, Judged, Recorded, TurnRecorder};
use crate::gate::hooks::HookSubject;
use crate::gate::{Admission, Ticket};
use crate::tool_executor::ToolExecutor;

/// Maximum size of the input of one call.
pub(super) const MAX_CALL_BYTES: usize = 1 << 20;

/// Maximum number of calls in one turn.
const MAX_CALLS: usize = 10_000;

/// How often a call whose action keeps changing returns to the inbox.
const MAX_ATTEMPTS: u32 = 8;

/// The calls of one turn that are not over.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) underway: FuturesUnordered<Pin<Box<dyn Future<Output = Progress> + Send>>>,
    /// The open calls, which are abandoned if the turn ends.
    pub(super) track: Vec<Open>,
    /// Calls that the agent has permission for and has not reported the result of, by call id.
    pub(super) given: HashMap<String, GrantedCall>,
    ids: HashSet<String>,
    /// The newest result, a parent of the end of the turn.
    pub(super) last_result: Option<Cid>,
    /// Names of tools that were denied.
    pub(super) denied: Vec<String>,
}

pub(super) struct Open {
    pub(super) call_id: String,
    tool: String,
    pub(super) entry: Cid,
    /// The approval that it waits for.
    approval: Option<String>,
}

/// Progress of a call.
pub(super) enum Progress {
    /// The hooks have seen the call. The original input follows if a hook changed it, then the vetoes.
    Hooked(ToolRequest, Option<Value>, Vec<Veto>),
    Ruled(Box<Parked>, ApprovalDecision),
    Ran(Recorded, oneshot::Sender<ToolOutcome>, Box<ToolRun>),
}

/// A call that waits for a person.
pub(super) struct Parked {
    recorded: Recorded,
    answer: Responder,
    requested: Requested,
    action: Action,
    attempt: u32,
}

/// The events to emit, and whether the turn should end.
pub(super) struct Handled {
    pub(super) events: Vec<RuntimeEvent>,
    pub(super) stop: bool,
}

impl Handled {
    pub(super) const fn events(events: Vec<RuntimeEvent>) -> Self {
        Self { events, stop: false }
    }
}

impl Calls {
    /// Waits for progress of any call. Pends for ever if none is under way.
    pub(super) async fn next(&mut self) -> Progress {
        use futures_util::StreamExt as _;
        match self.underway.next().await {
            Some(progress) => progress,
            None => std::future::pending().await,
        }
    }

    /// Whether a call waits for a person: the time limit of the turn is paused then.
    pub(super) fn is_parked(&self) -> bool {
        self.track.iter().any(|open| open.approval.is_some())
    }

    /// Handles a call that the backend requests.
    pub(super) async fn asked(
        &mut self,
        recorder: &mut TurnRecorder,
        ToolRequest { call, answer }: ToolRequest,
        turn: Cid,
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        let call = recorder.governance.tools.to_policy_call(&recorder.handle.key, call);
        if let Err(refused) = self.check(recorder, &call) {
            // The backend broke a rule of the toolbox. Nothing was decided, so nothing is recorded.
            answer.refuse(ToolOutcome::error(refused));
            return recorder.write().await.map(|written| Handled::events(written.events));
        }
        if !recorder.governance.gate.hooks.has(HookPoint::BeforeToolCall) {
            let hooked = (None, Vec::new());
            return self.admit(recorder, ToolRequest { call, answer }, hooked, turn, owner_words).await;
        }
        let (governance, who) =
            (Arc::clone(&recorder.governance), HookSubject::of(&recorder.journal.standing));
        self.underway.push(Box::pin(async move {
            let asked = call.input.clone();
            let (call, vetoes) = match answer {
                Responder::Outcome(_) => governance.gate.hooks.before_tool_call(&who, call).await,
                Responder::Permission { .. } => {
                    let vetoes = governance.gate.hooks.objections(&who, &call).await;
                    (call, vetoes)
                }
            };
            let asked = Some(asked).filter(|asked| *asked != call.input);
            Progress::Hooked(ToolRequest { call, answer }, asked, vetoes)
        }));
        recorder.write().await.map(|written| Handled::events(written.events))
    }

    /// Records and decides a call that every hook has seen.
    async fn admit(
        &mut self,
        recorder: &mut TurnRecorder,
        ToolRequest { call, answer }: ToolRequest,
        (asked, mut vetoes): (Option<Value>, Vec<Veto>),
        turn: Cid,
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        let recorded = match &answer {
            Responder::Outcome(_) => recorder.record_call(call, asked, turn)?,
            Responder::Permission { said, .. } => {
                vetoes.extend(recorder.objections_of_the_house(&call).await?);
                recorder.record_agent_call(call, said, turn)?
            }
        };
        match recorder.judge(&recorded, DecisionStage::Call, owner_words, vetoes, None)? {
            Judged::Allowed(ticket) => self.start_execution(recorder, recorded, answer, ticket).await,
            Judged::Denied(outcome, result) => {
                self.refuse(recorder, &recorded, answer, (outcome, result)).await
            }
            Judged::Asked(verdict, entry) => {
                if matches!(answer, Responder::Permission { when: PermissionTiming::DuringCall, .. }) {
                    let outcome = ToolOutcome::error(format!(
                        "denied ({}): {}; the call is already under way, so no person can be asked",
                        verdict.rule_list(),
                        verdict.reason
                    ));
                    let parents = vec![recorded.entry, entry];
                    let result = recorder.record_denial(&recorded, &outcome, CallOutcome::Denied, parents)?;
                    return self.refuse(recorder, &recorded, answer, (outcome, result)).await;
                }
                if recorded.runner == CallRunner::Host
                    && let Some(refused) = precheck(recorder, &recorded.call).await?
                {
                    // No person is asked about a call that its tool would refuse in any case.
                    let parents = vec![recorded.entry, entry];
                    let result = recorder.record_denial(&recorded, &refused, CallOutcome::Denied, parents)?;
                    return self.refuse(recorder, &recorded, answer, (refused, result)).await;
                }
                let action = action_now(recorder, &recorded.call).await?;
                if let Some((requested, ruling)) = self.earlier_answer(recorder, &recorded, &action).await? {
                    return self
                        .resume_answered(recorder, (recorded, answer), (&requested, &ruling), owner_words)
                        .await;
                }
                if !recorder.governance.gate.inbox.has_room(recorder.handle.key.as_str()) {
                    let outcome = ToolOutcome::error(FULL);
                    let parents = vec![recorded.entry, entry];
                    let result = recorder.record_denial(&recorded, &outcome, CallOutcome::Denied, parents)?;
                    return self.refuse(recorder, &recorded, answer, (outcome, result)).await;
                }
                let (requested, cid) = recorder.request(&recorded, (verdict, entry), &action, (0, None))?;
                self.park(recorder, Parked { recorded, answer, requested, action, attempt: 0 }, cid).await
            }
        }
    }

    /// Handles progress of a call.
    pub(super) async fn handle(
        &mut self,
        recorder: &mut TurnRecorder,
        progress: Progress,
        turn: Cid,
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        match progress {
            Progress::Hooked(call, asked, vetoes) => {
                self.admit(recorder, call, (asked, vetoes), turn, owner_words).await
            }
            Progress::Ran(recorded, answer, mut done) => {
                self.untrack(&recorded.call.id);
                recorded.tell_reworded(&mut done);
                recorder.governance.tell_done(&recorder.journal.standing, &recorded, &done.outcome);
                let result = recorder.record_result(&recorded, &done)?;
                self.last_result = Some(result);
                let written = recorder.write().await?;
                recorder.tell_persisted(&recorded, &done.outcome, result);
                recorder.governance.answer_others(&recorded.call, &done.outcome).await;
                let _ = answer.send(done.outcome);
                Ok(Handled::events(written.events))
            }
            Progress::Ruled(parked, ruling) => self.on_decision(recorder, *parked, ruling, owner_words).await,
        }
    }

    /// Handles the decision of a person, or the end of a request without one.
    async fn on_decision(
        &mut self,
        recorder: &mut TurnRecorder,
        parked: Parked,
        ruling: ApprovalDecision,
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        let Parked { recorded, answer, requested, action, attempt } = parked;
        let state = ruling.state();
        recorder
            .event(EventKind::ApprovalDecided { id: requested.id.clone(), state: state.as_str().to_owned() });
        if state != ApprovalState::Allowed {
            let stop = matches!(ruling, ApprovalDecision::Denied { stop: true, .. });
            let outcome = match ruling {
                ApprovalDecision::Answered => ToolOutcome::good(ruling.sentence()),
                _ => ToolOutcome::error(ruling.sentence()),
            };
            let how =
                if state == ApprovalState::Withdrawn { CallOutcome::Cancelled } else { CallOutcome::Denied };
            let result = recorder.record_denial(&recorded, &outcome, how, vec![recorded.entry])?;
            let handled = self.refuse(recorder, &recorded, answer, (outcome, result)).await?;
            return Ok(Handled { stop, ..handled });
        }
        let now = action_now(recorder, &recorded.call).await?;
        let still_fits = recorder.governance.gate.still_fits(&requested, &now);
        // From here on the call has the text that was allowed.
        let recorded = match ruling {
            ApprovalDecision::Allowed { by, text: Some(text) } => recorder.reworded(recorded, by, &text)?,
            _ => recorded,
        };
        if !still_fits && attempt >= MAX_ATTEMPTS {
            let what = "denied: the approved action kept changing before it could run";
            let outcome = ToolOutcome::error(what);
            let result =
                recorder.record_denial(&recorded, &outcome, CallOutcome::Denied, vec![recorded.entry])?;
            return self.refuse(recorder, &recorded, answer, (outcome, result)).await;
        }
        if !still_fits {
            // The approved action is not the one that would run: the call returns to the inbox, with what changed.
            let now = action_now(recorder, &recorded.call).await?;
            let changed = action.changed(&now);
            let verdict =
                recorder.judge(&recorded, DecisionStage::Dispatch, owner_words, Vec::new(), None)?;
            return match verdict {
                Judged::Allowed(ticket) => self.start_execution(recorder, recorded, answer, ticket).await,
                Judged::Denied(outcome, result) => {
                    self.refuse(recorder, &recorded, answer, (outcome, result)).await
                }
                Judged::Asked(verdict, entry) => {
                    let attempt = attempt + 1;
                    let instead_of = Some((requested.id, changed));
                    let (requested, cid) =
                        recorder.request(&recorded, (verdict, entry), &now, (attempt, instead_of))?;
                    self.park(recorder, Parked { recorded, answer, requested, action: now, attempt }, cid)
                        .await
                }
            };
        }
        self.dispatch(recorder, (recorded, answer), &requested.id, owner_words).await
    }

    /// Continues a call that a person decided about before its daemon ended.
    async fn resume_answered(
        &mut self,
        recorder: &mut TurnRecorder,
        (recorded, answer): (Recorded, Responder),
        (approval, ruling): (&str, &ApprovalDecision),
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        if ruling.state() == ApprovalState::Allowed {
            return self.dispatch(recorder, (recorded, answer), approval, owner_words).await;
        }
        let outcome = ToolOutcome::error(ruling.sentence());
        let result =
            recorder.record_denial(&recorded, &outcome, CallOutcome::Denied, vec![recorded.entry])?;
        self.refuse(recorder, &recorded, answer, (outcome, result)).await
    }

    /// The last decision of the gate about a call that a person allowed.
    async fn dispatch(
        &mut self,
        recorder: &mut TurnRecorder,
        (recorded, answer): (Recorded, Responder),
        approval: &str,
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        let vetoes = match &answer {
            Responder::Outcome(_) => Vec::new(),
            Responder::Permission { .. } => {
                recorder.objections_of_the_house(&recorded.call).await?.into_iter().collect()
            }
        };
        match recorder.judge(&recorded, DecisionStage::Dispatch, owner_words, vetoes, Some(approval))? {
            Judged::Allowed(ticket) => self.start_execution(recorder, recorded, answer, ticket).await,
            Judged::Denied(outcome, result) => {
                self.refuse(recorder, &recorded, answer, (outcome, result)).await
            }
            Judged::Asked(..) => {
                let outcome =
                    ToolOutcome::error("denied: the approved call may not run in its current state");
                let result =
                    recorder.record_denial(&recorded, &outcome, CallOutcome::Denied, vec![recorded.entry])?;
                self.refuse(recorder, &recorded, answer, (outcome, result)).await
            }
        }
    }

    /// Writes the verdict, and starts the call when it is durable.
    async fn start_execution(
        &mut self,
        recorder: &mut TurnRecorder,
        recorded: Recorded,
        answer: Responder,
        ticket: Ticket,
    ) -> Result<Handled, RuntimeError> {
        let PendingOutcome { answer, terminal } = match answer {
            Responder::Outcome(waiting) => waiting,
            Responder::Permission { answer, .. } => {
                return self.give_leave(recorder, recorded, answer, ticket).await;
            }
        };
        if terminal.is_some() {
            recorder.sink(&recorded.call).await?;
        }
        self.untrack(&recorded.call.id);
        let written = recorder.write().await?;
        // Durable before effect: the call starts here and not a line earlier.
        let Some(admission) = ticket.redeem(&written) else {
            return Err(RuntimeError::new("internal", "the verdict was not written with its batch"));
        };
        self.open(&recorded, None);
        let governance = Arc::clone(&recorder.governance);
        self.underway.push(Box::pin(async move {
            let done = run(&*governance.tools, admission, terminal).await;
            Progress::Ran(recorded, answer, Box::new(done))
        }));
        Ok(Handled::events(written.events))
    }

    /// Writes the approval request, and waits for a person when it is durable.
    async fn park(
        &mut self,
        recorder: &mut TurnRecorder,
        parked: Parked,
        request: Cid,
    ) -> Result<Handled, RuntimeError> {
        self.untrack(&parked.recorded.call.id);
        let written = recorder.write().await?;
        self.open(&parked.recorded, Some(parked.requested.id.clone()));
        let ruling = recorder.governance.gate.inbox.ask(parked.requested.clone(), request);
        self.underway.push(Box::pin(async move {
            let ruling = ruling.await.unwrap_or(ApprovalDecision::Withdrawn);
            Progress::Ruled(Box::new(parked), ruling)
        }));
        Ok(Handled::events(written.events))
    }

    /// Writes the denial, which is in the batch, and answers the backend.
    async fn refuse(
        &mut self,
        recorder: &mut TurnRecorder,
        recorded: &Recorded,
        answer: Responder,
        (outcome, result): (ToolOutcome, Cid),
    ) -> Result<Handled, RuntimeError> {
        self.untrack(&recorded.call.id);
        self.last_result = Some(result);
        // Other agents read this, so a tool name that the caller invented is left out.
        let tool = &recorded.call.name;
        let known = recorder.governance.gate.law.tools().contains(tool);
        if outcome.is_error {
            self.denied.push(if known { tool.clone() } else { "an unknown tool".to_owned() });
        }
        let written = recorder.write().await?;
        recorder.tell_persisted(recorded, &outcome, result);
        answer.refuse(outcome);
        Ok(Handled::events(written.events))
    }

    pub(super) fn open(&mut self, recorded: &Recorded, approval: Option<String>) {
        let (call_id, tool) = (recorded.call.id.clone(), recorded.call.name.clone());
        self.track.push(Open { call_id, tool, entry: recorded.entry, approval });
    }

    pub(super) fn untrack(&mut self, call_id: &str) {
        self.track.retain(|open| open.call_id != call_id);
    }

    /// Abandons everything that is open, because the turn ends. Requests to a person are withdrawn, unless the daemon
    /// or everything is stopped: then they stay pending, and the calls are executed without their turn.
    pub(super) async fn abandon_all(&mut self, recorder: &mut TurnRecorder) -> Result<(), RuntimeError> {
        self.underway.clear();
        let unused = std::mem::take(&mut self.given);
        let mut track = std::mem::take(&mut self.track);
        if recorder.governance.is_leaving() {
            track.retain(|open| open.approval.is_none());
        }
        let waiting: Vec<String> = track.iter().filter_map(|open| open.approval.clone()).collect();
        if !waiting.is_empty() {
            recorder.governance.gate.inbox.withdraw(&waiting).await;
        }
        for Open { call_id, tool, entry, approval } in track {
            let may_have_begun = unused.get(&call_id).is_none_or(GrantedCall::is_executable_by_agent);
            let begun = if approval.is_none() && may_have_begun { Begun::Yes } else { Begun::No };
            self.last_result = Some(recorder.record_abandoned((&call_id, &tool), entry, begun)?);
        }
        Ok(())
    }

    fn check(&mut self, recorder: &TurnRecorder, call: &ToolCall) -> Result<(), String> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let named = |text: &str, limit| (1..=limit).contains(&text.len()) && text.bytes().all(word);
        if !named(&call.name, 64) {
            return Err("a tool's name has 1 to 64 letters, digits, `_`, `-` and `.`".to_owned());
        }
        if !named(&call.id, 128) {
            return Err("a call's id has 1 to 128 letters, digits, `_`, `-` and `.`".to_owned());
        }
        if call.name == SPEND
            && !recorder.governance.budgets.is_asking(recorder.handle.key.as_str(), &call.id)
        {
            return Err(format!("there is no tool `{SPEND}`"));
        }
        if call.name == EGRESS {
            return Err(format!(
                "there is no tool `{EGRESS}`: connect, and the gate decides about the connection"
            ));
        }
        if call.name == LAND {
            return Err(format!("there is no tool `{LAND}`: people land the changes"));
        }
        if call.name == MCP_SERVER {
            return Err(format!(
                "there is no tool `{MCP_SERVER}`: the editor of the operator provides servers"
            ));
        }
        if call.input.to_string().len() > MAX_CALL_BYTES {
            return Err(format!("a call's input has at most {MAX_CALL_BYTES} bytes"));
        }
        if self.ids.len() >= MAX_CALLS {
            return Err(format!("a turn has at most {MAX_CALLS} calls"));
        }
        if !self.ids.insert(call.id.clone()) {
            return Err(format!("the call id `{}` was used before in this turn", call.id));
        }
        Ok(())
    }
}

/// Executes an admitted call, whose output may be followed on `terminal`. A panic of a tool becomes an error outcome.
pub(super) async fn run(
    tools: &dyn ToolExecutor,
    admission: Admission,
    terminal: Option<Arc<Terminal>>,
) -> ToolRun {
    let run = AssertUnwindSafe(tools.run(admission, terminal)).catch_unwind().await;
    run.unwrap_or_else(|_| ToolRun::failed("the tool failed unexpectedly"))
}

/// The denial of a call that its tool would refuse in any case.
async fn precheck(recorder: &TurnRecorder, call: &ToolCall) -> Result<Option<ToolOutcome>, RuntimeError> {
    let (governance, ground, call) =
        (Arc::clone(&recorder.governance), recorder.journal.standing.ground(), call.clone());
    let refused = tokio::task::spawn_blocking(move || governance.tools.precheck(&ground, &call)).await;
    let refused = refused.map_err(|_| RuntimeError::new("internal", "the daemon is shutting down"))?;
    Ok(refused.map(|refused| ToolOutcome::error(refused.sentence)))
}

/// The action that the call would execute now. Reads files on a blocking thread.
pub(super) async fn action_now(recorder: &TurnRecorder, call: &ToolCall) -> Result<Action, RuntimeError> {
    let (governance, standing, call) =
        (Arc::clone(&recorder.governance), recorder.journal.standing.clone(), call.clone());
    let read_action = move || {
        let dependencies = governance.tools.dependencies(&standing.ground, &call);
        governance.gate.action(dependencies, &standing, &call)
    };
    tokio::task::spawn_blocking(read_action)
        .await
        .map_err(|_| RuntimeError::new("internal", "the daemon is shutting down"))
}
