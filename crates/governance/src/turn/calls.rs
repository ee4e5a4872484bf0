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
use tokio_util::sync::CancellationToken;
use tribune_config::hook_spec::HookPoint;
use tribune_constitution::{DecisionStage, EGRESS, LAND, MCP_SERVER, SPEND, Veto};
use tribune_ledger::Cid;
use tribune_records::approval::action::Action;
use tribune_records::approval::decision::ApprovalDecision;
use tribune_records::approval::record::CallRunner;
use tribune_records::ledger_payloads::CallOutcome;
use tribune_records::outcome::ToolRun;
use tribune_runtime::{
    ErrorKind, PermissionTiming, RuntimeError, RuntimeEvent, Terminal, ToolCall, ToolOutcome,
};

use super::agent_executed_calls::GrantedCall;
use super::call_decision::{Attempt, CallDecision, CallReview, digest_of};
use super::external_calls::FULL;
use super::parked_calls::ParkedCall;
use super::toolbox::{PendingOutcome, Responder, ToolRequest};
use super::turn_recorder::{Execution, LedgerCall, TurnRecorder};
use crate::gate::hooks::HookSubject;
use crate::gate::{Admission, OwnerWords, PendingAdmission};
use crate::tool_executor::ToolExecutor;

/// Maximum size of the input of one call.
pub(super) const MAX_CALL_BYTES: usize = 1 << 20;

/// Maximum number of calls in one turn.
const MAX_CALLS: usize = 10_000;

/// The calls of one turn that are not over.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) underway: FuturesUnordered<Pin<Box<dyn Future<Output = Progress> + Send>>>,
    /// The open calls, which are abandoned if the turn ends.
    pub(super) open: Vec<OpenCall>,
    /// Calls that the agent has permission for and has not reported the result of, by call id.
    pub(super) granted: HashMap<String, GrantedCall>,
    ids: HashSet<String>,
    /// The newest result, a parent of the end of the turn.
    pub(super) last_result: Option<Cid>,
    /// Names of tools that were denied.
    pub(super) denied: Vec<String>,
}

/// A call that is not over.
pub(super) struct OpenCall {
    pub(super) call_id: String,
    tool: String,
    pub(super) entry: Cid,
    /// The approval that it waits for.
    approval: Option<String>,
}

/// Progress of a call.
pub(super) enum Progress {
    /// The hooks have seen the call.
    Hooked(ToolRequest, HookResult),
    Decided(Box<ParkedCall>, ApprovalDecision),
    Ran(LedgerCall, oneshot::Sender<ToolOutcome>, Box<ToolRun>),
}

/// What the hooks did with a call.
#[derive(Default)]
pub(super) struct HookResult {
    /// The input before a hook changed it, if one did.
    original_input: Option<Value>,
    vetoes: Vec<Veto>,
}

/// The events to emit, and whether the turn should end.
pub(super) struct CallStep {
    pub(super) events: Vec<RuntimeEvent>,
    pub(super) stop: bool,
}

impl CallStep {
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
        self.open.iter().any(|open| open.approval.is_some())
    }

    /// Handles a call that the backend requests.
    pub(super) async fn on_tool_request(
        &mut self,
        recorder: &mut TurnRecorder,
        ToolRequest { call, answer }: ToolRequest,
        turn: Cid,
        owner_words: Option<&OwnerWords>,
    ) -> Result<CallStep, RuntimeError> {
        let call = recorder.governance.tools.to_policy_call(&recorder.handle.key, call);
        if let Err(refused) = self.check(recorder, &call) {
            // The backend broke a rule of the toolbox. Nothing was decided, so nothing is recorded.
            answer.refuse(ToolOutcome::error(refused));
            return recorder.write().await.map(|written| CallStep::events(written.events));
        }
        if !recorder.governance.policy.gate.hooks.has(HookPoint::BeforeToolCall) {
            let request = ToolRequest { call, answer };
            return self.admit(recorder, request, HookResult::default(), turn, owner_words).await;
        }
        let (governance, who) = (Arc::clone(&recorder.governance), HookSubject::of(&recorder.writer.context));
        self.underway.push(Box::pin(async move {
            let original = call.input.clone();
            let (call, vetoes) = match answer {
                Responder::Outcome(_) => governance.policy.gate.hooks.before_tool_call(&who, call).await,
                Responder::Permission { .. } => {
                    let vetoes = governance.policy.gate.hooks.objections(&who, &call).await;
                    (call, vetoes)
                }
            };
            let original_input = Some(original).filter(|original| *original != call.input);
            Progress::Hooked(ToolRequest { call, answer }, HookResult { original_input, vetoes })
        }));
        recorder.write().await.map(|written| CallStep::events(written.events))
    }

    /// Records and decides a call that every hook has seen.
    async fn admit(
        &mut self,
        recorder: &mut TurnRecorder,
        ToolRequest { call, answer }: ToolRequest,
        hook_result: HookResult,
        turn: Cid,
        owner_words: Option<&OwnerWords>,
    ) -> Result<CallStep, RuntimeError> {
        let HookResult { original_input, mut vetoes } = hook_result;
        let recorded = match &answer {
            Responder::Outcome(_) => recorder.record_call(call, original_input, turn)?,
            Responder::Permission { raw, .. } => {
                vetoes.extend(recorder.path_alias_veto(&call).await?);
                recorder.record_agent_call(call, raw, turn)?
            }
        };
        let review = CallReview { owner_words, vetoes, ..CallReview::at(DecisionStage::Call) };
        match recorder.judge(&recorded, review)? {
            CallDecision::Allowed(pending) => self.start_execution(recorder, recorded, answer, pending).await,
            CallDecision::Denied(outcome, result) => {
                self.refuse(recorder, &recorded, answer, outcome, result).await
            }
            CallDecision::Asked(verdict, entry) => {
                if matches!(answer, Responder::Permission { when: PermissionTiming::DuringCall, .. }) {
                    let outcome = ToolOutcome::error(format!(
                        "denied ({}): {}; the call is already under way, so no person can be asked",
                        verdict.rule_list(),
                        verdict.reason
                    ));
                    let parents = vec![recorded.entry, entry];
                    let result = recorder.record_denial(&recorded, &outcome, CallOutcome::Denied, parents)?;
                    return self.refuse(recorder, &recorded, answer, outcome, result).await;
                }
                if recorded.runner == CallRunner::Host
                    && let Some(refused) = precheck(recorder, &recorded.call).await?
                {
                    // No person is asked about a call that its tool would refuse in any case.
                    let parents = vec![recorded.entry, entry];
                    let result = recorder.record_denial(&recorded, &refused, CallOutcome::Denied, parents)?;
                    return self.refuse(recorder, &recorded, answer, refused, result).await;
                }
                let action = action_now(recorder, &recorded.call).await?;
                if let Some((requested, decision)) = self.earlier_answer(recorder, &recorded, &action).await?
                {
                    return self
                        .resume_answered(recorder, recorded, answer, &requested, &decision, owner_words)
                        .await;
                }
                if let Some(refused) = refused_unasked(recorder, &recorded, &action)? {
                    let outcome = ToolOutcome::error(refused);
                    let parents = vec![recorded.entry, entry];
                    let result = recorder.record_denial(&recorded, &outcome, CallOutcome::Denied, parents)?;
                    return self.refuse(recorder, &recorded, answer, outcome, result).await;
                }
                let (requested, cid) =
                    recorder.request(&recorded, verdict, entry, &action, Attempt::FIRST)?;
                self.park(recorder, ParkedCall { recorded, answer, requested, action, attempt: 0 }, cid).await
            }
        }
    }

    /// Handles progress of a call.
    pub(super) async fn handle(
        &mut self,
        recorder: &mut TurnRecorder,
        progress: Progress,
        turn: Cid,
        owner_words: Option<&OwnerWords>,
    ) -> Result<CallStep, RuntimeError> {
        match progress {
            Progress::Hooked(request, hook_result) => {
                self.admit(recorder, request, hook_result, turn, owner_words).await
            }
            Progress::Ran(recorded, answer, mut done) => {
                self.untrack(&recorded.call.id);
                recorded.note_rewording(&mut done);
                recorder.governance.notify_after_call(&recorder.writer.context, &recorded, &done.outcome);
                let result = recorder.record_result(&recorded, &done)?;
                self.last_result = Some(result);
                let written = recorder.write().await?;
                recorder.notify_result_recorded(&recorded, &done.outcome, result);
                recorder.governance.answer_others(&recorded.call, &done.outcome).await;
                let _ = answer.send(done.outcome);
                Ok(CallStep::events(written.events))
            }
            Progress::Decided(parked, decision) => {
                self.on_decision(recorder, *parked, decision, owner_words).await
            }
        }
    }

    /// Writes the verdict, and starts the call when it is durable.
    pub(super) async fn start_execution(
        &mut self,
        recorder: &mut TurnRecorder,
        recorded: LedgerCall,
        answer: Responder,
        pending: PendingAdmission,
    ) -> Result<CallStep, RuntimeError> {
        let PendingOutcome { answer, terminal } = match answer {
            Responder::Outcome(waiting) => waiting,
            Responder::Permission { answer, .. } => {
                return self.grant_permission(recorder, recorded, answer, pending).await;
            }
        };
        if terminal.is_some() {
            recorder.lower_labels(&recorded.call).await?;
        }
        self.untrack(&recorded.call.id);
        let written = recorder.write().await?;
        // Durable before effect: the call starts here and not a line earlier.
        let Some(admission) = pending.redeem(&written) else {
            return Err(RuntimeError::new(ErrorKind::Internal, "the verdict was not written with its batch"));
        };
        self.track(&recorded, None);
        let governance = Arc::clone(&recorder.governance);
        self.underway.push(Box::pin(async move {
            let done = run(&*governance.tools, admission, terminal).await;
            Progress::Ran(recorded, answer, Box::new(done))
        }));
        Ok(CallStep::events(written.events))
    }

    /// Writes the denial, which is in the batch, and answers the backend.
    pub(super) async fn refuse(
        &mut self,
        recorder: &mut TurnRecorder,
        recorded: &LedgerCall,
        answer: Responder,
        outcome: ToolOutcome,
        result: Cid,
    ) -> Result<CallStep, RuntimeError> {
        self.untrack(&recorded.call.id);
        self.last_result = Some(result);
        // Other agents read this, so a tool name that the caller invented is left out.
        let tool = &recorded.call.name;
        let known = recorder.governance.policy.gate.law.tools().contains(tool);
        if outcome.is_error {
            self.denied.push(if known { tool.clone() } else { "an unknown tool".to_owned() });
        }
        let written = recorder.write().await?;
        recorder.notify_result_recorded(recorded, &outcome, result);
        answer.refuse(outcome);
        Ok(CallStep::events(written.events))
    }

    pub(super) fn track(&mut self, recorded: &LedgerCall, approval: Option<String>) {
        let (call_id, tool) = (recorded.call.id.clone(), recorded.call.name.clone());
        self.open.push(OpenCall { call_id, tool, entry: recorded.entry, approval });
    }

    pub(super) fn untrack(&mut self, call_id: &str) {
        self.open.retain(|open| open.call_id != call_id);
    }

    /// Abandons everything that is open, because the turn ends. Requests to a person are withdrawn, unless the daemon
    /// or everything is stopped: then they stay pending, and the calls are executed without their turn.
    pub(super) async fn abandon_all(&mut self, recorder: &mut TurnRecorder) -> Result<(), RuntimeError> {
        self.underway.clear();
        let unused = std::mem::take(&mut self.granted);
        let mut open = std::mem::take(&mut self.open);
        if recorder.governance.is_stopping() {
            open.retain(|call| call.approval.is_none());
        }
        let waiting: Vec<String> = open.iter().filter_map(|call| call.approval.clone()).collect();
        if !waiting.is_empty() {
            recorder.governance.policy.gate.inbox.withdraw(&waiting).await;
        }
        for OpenCall { call_id, tool, entry, approval } in open {
            let may_have_started = unused.get(&call_id).is_none_or(GrantedCall::is_executable_by_agent);
            let has_started = approval.is_none() && may_have_started;
            let execution = if has_started { Execution::Started } else { Execution::NotStarted };
            self.last_result = Some(recorder.record_abandoned(&call_id, &tool, entry, execution)?);
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
            && !recorder.governance.model_requests.budgets.is_asking(recorder.handle.key.as_str(), &call.id)
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

/// Why no person is asked about an action: the answer is known, the same question waits, or too many wait.
fn refused_unasked(
    recorder: &TurnRecorder,
    recorded: &LedgerCall,
    action: &Action,
) -> Result<Option<String>, RuntimeError> {
    let (inbox, session) = (&recorder.governance.policy.gate.inbox, recorder.handle.key.as_str());
    let digest = digest_of(action)?;
    let known = inbox.known_action(session, &recorded.call.name, &digest).map(|known| known.sentence());
    let tier = recorder.writer.context.tier;
    Ok(known.or_else(|| (!inbox.has_room(session, tier)).then(|| FULL.to_owned())))
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
        (Arc::clone(&recorder.governance), recorder.writer.context.ground(), call.clone());
    let refused = tokio::task::spawn_blocking(move || governance.tools.precheck(&ground, &call)).await;
    let refused =
        refused.map_err(|_| RuntimeError::new(ErrorKind::Internal, "the daemon is shutting down"))?;
    Ok(refused.map(|refused| ToolOutcome::error(refused.sentence)))
}

/// The action that the call would execute now. Reads files on a blocking thread.
pub(super) async fn action_now(recorder: &TurnRecorder, call: &ToolCall) -> Result<Action, RuntimeError> {
    let (governance, context, call) =
        (Arc::clone(&recorder.governance), recorder.writer.context.clone(), call.clone());
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let read_action = move || {
        let dependencies = governance.tools.dependencies(&context.ground, &call, &stop);
        governance.policy.gate.action(dependencies, &context, &call)
    };
    tokio::task::spawn_blocking(read_action)
        .await
        .map_err(|_| RuntimeError::new(ErrorKind::Internal, "the daemon is shutting down"))
}
