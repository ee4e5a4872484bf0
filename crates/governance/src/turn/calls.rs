//! The calls of a turn: each is on record, judged, perhaps parked for a person, run if it may, and answered.

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

/// Input of one call.
pub(super) const MAX_CALL_BYTES: usize = 1 << 20;

/// Calls in one turn.
const MAX_CALLS: usize = 10_000;

/// How often a call whose action keeps changing comes back to the inbox.
const MAX_ATTEMPTS: u32 = 8;

/// The calls of one turn that are not over.
#[derive(Default)]
pub(super) struct Calls {
    pub(super) underway: FuturesUnordered<Pin<Box<dyn Future<Output = Progress> + Send>>>,
    /// What is open, by the id of its call, for when it has to be written off.
    pub(super) track: Vec<Open>,
    /// Calls that their agent has leave for, and has not told what came of.
    pub(super) given: HashMap<String, GrantedCall>,
    ids: HashSet<String>,
    /// The newest result; the turn's end follows from it.
    pub(super) last_result: Option<Cid>,
    /// Names of tools that were refused.
    pub(super) denied: Vec<String>,
}

pub(super) struct Open {
    pub(super) call_id: String,
    tool: String,
    pub(super) entry: Cid,
    /// The approval it waits for.
    approval: Option<String>,
}

/// Something that came of a call.
pub(super) enum Progress {
    /// The hooks have seen it, and perhaps taken something out of the input that stands behind.
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

/// What happened, and whether the turn is to end.
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
    /// Waits for the next thing that comes of a call; for ever if none is open.
    pub(super) async fn next(&mut self) -> Progress {
        use futures_util::StreamExt as _;
        match self.underway.next().await {
            Some(progress) => progress,
            None => std::future::pending().await,
        }
    }

    /// Whether a call waits for a person: the turn's time does not run then.
    pub(super) fn is_parked(&self) -> bool {
        self.track.iter().any(|open| open.approval.is_some())
    }

    /// A call that the backend asked for.
    pub(super) async fn asked(
        &mut self,
        desk: &mut TurnRecorder,
        ToolRequest { call, answer }: ToolRequest,
        turn: Cid,
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        let call = desk.governance.tools.to_policy_call(&desk.handle.key, call);
        if let Err(refused) = self.check(desk, &call) {
            // The backend broke a rule of the toolbox; nothing was decided, so nothing is on record.
            answer.refuse(ToolOutcome::error(refused));
            return desk.write().await.map(|written| Handled::events(written.events));
        }
        if !desk.governance.gate.hooks.has(HookPoint::BeforeToolCall) {
            let hooked = (None, Vec::new());
            return self.admit(desk, ToolRequest { call, answer }, hooked, turn, owner_words).await;
        }
        let (governance, who) = (Arc::clone(&desk.governance), HookSubject::of(&desk.journal.standing));
        self.underway.push(Box::pin(async move {
            let asked = call.input.clone();
            let (call, vetoes) = match answer {
                Responder::Outcome(_) => governance.gate.hooks.before_tool_call(&who, call).await,
                Responder::Leave { .. } => {
                    let vetoes = governance.gate.hooks.objections(&who, &call).await;
                    (call, vetoes)
                }
            };
            let asked = Some(asked).filter(|asked| *asked != call.input);
            Progress::Hooked(ToolRequest { call, answer }, asked, vetoes)
        }));
        desk.write().await.map(|written| Handled::events(written.events))
    }

    /// A call that every hook has seen.
    async fn admit(
        &mut self,
        desk: &mut TurnRecorder,
        ToolRequest { call, answer }: ToolRequest,
        (asked, mut vetoes): (Option<Value>, Vec<Veto>),
        turn: Cid,
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        let recorded = match &answer {
            Responder::Outcome(_) => desk.record_call(call, asked, turn)?,
            Responder::Leave { said, .. } => {
                vetoes.extend(desk.objections_of_the_house(&call).await?);
                desk.record_agent_call(call, said, turn)?
            }
        };
        match desk.judge(&recorded, DecisionStage::Call, owner_words, vetoes, None)? {
            Judged::Allowed(ticket) => self.start_execution(desk, recorded, answer, ticket).await,
            Judged::Denied(outcome, result) => self.refuse(desk, &recorded, answer, (outcome, result)).await,
            Judged::Asked(verdict, entry) => {
                if matches!(answer, Responder::Leave { when: PermissionTiming::DuringCall, .. }) {
                    let outcome = ToolOutcome::error(format!(
                        "denied ({}): {}; and nobody can be asked about what is under way already",
                        verdict.rule_list(),
                        verdict.reason
                    ));
                    let parents = vec![recorded.entry, entry];
                    let result = desk.record_denial(&recorded, &outcome, CallOutcome::Denied, parents)?;
                    return self.refuse(desk, &recorded, answer, (outcome, result)).await;
                }
                if recorded.runner == CallRunner::Host
                    && let Some(refused) = futile(desk, &recorded.call).await?
                {
                    // Nobody is woken for a call that cannot come to anything.
                    let parents = vec![recorded.entry, entry];
                    let result = desk.record_denial(&recorded, &refused, CallOutcome::Denied, parents)?;
                    return self.refuse(desk, &recorded, answer, (refused, result)).await;
                }
                let action = action_now(desk, &recorded.call).await?;
                if let Some((requested, ruling)) = self.earlier_answer(desk, &recorded, &action).await? {
                    return self
                        .resume_answered(desk, (recorded, answer), (&requested, &ruling), owner_words)
                        .await;
                }
                if !desk.governance.gate.inbox.has_room(desk.handle.key.as_str()) {
                    let outcome = ToolOutcome::error(FULL);
                    let parents = vec![recorded.entry, entry];
                    let result = desk.record_denial(&recorded, &outcome, CallOutcome::Denied, parents)?;
                    return self.refuse(desk, &recorded, answer, (outcome, result)).await;
                }
                let (requested, cid) = desk.request(&recorded, (verdict, entry), &action, (0, None))?;
                self.park(desk, Parked { recorded, answer, requested, action, attempt: 0 }, cid).await
            }
        }
    }

    /// Whatever came of a call.
    pub(super) async fn handle(
        &mut self,
        desk: &mut TurnRecorder,
        progress: Progress,
        turn: Cid,
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        match progress {
            Progress::Hooked(call, asked, vetoes) => {
                self.admit(desk, call, (asked, vetoes), turn, owner_words).await
            }
            Progress::Ran(recorded, answer, mut done) => {
                self.untrack(&recorded.call.id);
                recorded.tell_reworded(&mut done);
                desk.governance.tell_done(&desk.journal.standing, &recorded, &done.outcome);
                let result = desk.record_result(&recorded, &done)?;
                self.last_result = Some(result);
                let written = desk.write().await?;
                desk.tell_persisted(&recorded, &done.outcome, result);
                desk.governance.answer_others(&recorded.call, &done.outcome).await;
                let _ = answer.send(done.outcome);
                Ok(Handled::events(written.events))
            }
            Progress::Ruled(parked, ruling) => self.on_decision(desk, *parked, ruling, owner_words).await,
        }
    }

    /// A person decided, or nobody did.
    async fn on_decision(
        &mut self,
        desk: &mut TurnRecorder,
        parked: Parked,
        ruling: ApprovalDecision,
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        let Parked { recorded, answer, requested, action, attempt } = parked;
        let state = ruling.state();
        desk.event(EventKind::ApprovalDecided { id: requested.id.clone(), state: state.as_str().to_owned() });
        if state != ApprovalState::Allowed {
            let stop = matches!(ruling, ApprovalDecision::Denied { stop: true, .. });
            let outcome = match ruling {
                ApprovalDecision::Answered => ToolOutcome::good(ruling.sentence()),
                _ => ToolOutcome::error(ruling.sentence()),
            };
            let how =
                if state == ApprovalState::Withdrawn { CallOutcome::Cancelled } else { CallOutcome::Denied };
            let result = desk.record_denial(&recorded, &outcome, how, vec![recorded.entry])?;
            let handled = self.refuse(desk, &recorded, answer, (outcome, result)).await?;
            return Ok(Handled { stop, ..handled });
        }
        let now = action_now(desk, &recorded.call).await?;
        let still_fits = desk.governance.gate.still_fits(&requested, &now);
        // Whatever happens from here on, it happens in the words that were allowed.
        let recorded = match ruling {
            ApprovalDecision::Allowed { by, text: Some(text) } => desk.reworded(recorded, by, &text)?,
            _ => recorded,
        };
        if !still_fits && attempt >= MAX_ATTEMPTS {
            let what = "denied: what was approved kept changing before it could run";
            let outcome = ToolOutcome::error(what);
            let result =
                desk.record_denial(&recorded, &outcome, CallOutcome::Denied, vec![recorded.entry])?;
            return self.refuse(desk, &recorded, answer, (outcome, result)).await;
        }
        if !still_fits {
            // What was approved is not what would run: back to the inbox, with what changed.
            let now = action_now(desk, &recorded.call).await?;
            let changed = action.changed(&now);
            let verdict = desk.judge(&recorded, DecisionStage::Dispatch, owner_words, Vec::new(), None)?;
            return match verdict {
                Judged::Allowed(ticket) => self.start_execution(desk, recorded, answer, ticket).await,
                Judged::Denied(outcome, result) => {
                    self.refuse(desk, &recorded, answer, (outcome, result)).await
                }
                Judged::Asked(verdict, entry) => {
                    let attempt = attempt + 1;
                    let instead_of = Some((requested.id, changed));
                    let (requested, cid) =
                        desk.request(&recorded, (verdict, entry), &now, (attempt, instead_of))?;
                    self.park(desk, Parked { recorded, answer, requested, action: now, attempt }, cid).await
                }
            };
        }
        self.dispatch(desk, (recorded, answer), &requested.id, owner_words).await
    }

    /// Carries on with a call that a person answered before its daemon ended.
    async fn resume_answered(
        &mut self,
        desk: &mut TurnRecorder,
        (recorded, answer): (Recorded, Responder),
        (approval, ruling): (&str, &ApprovalDecision),
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        if ruling.state() == ApprovalState::Allowed {
            return self.dispatch(desk, (recorded, answer), approval, owner_words).await;
        }
        let outcome = ToolOutcome::error(ruling.sentence());
        let result = desk.record_denial(&recorded, &outcome, CallOutcome::Denied, vec![recorded.entry])?;
        self.refuse(desk, &recorded, answer, (outcome, result)).await
    }

    /// The last look of the law at a call that a person allowed.
    async fn dispatch(
        &mut self,
        desk: &mut TurnRecorder,
        (recorded, answer): (Recorded, Responder),
        approval: &str,
        owner_words: &[&str],
    ) -> Result<Handled, RuntimeError> {
        let vetoes = match &answer {
            Responder::Outcome(_) => Vec::new(),
            Responder::Leave { .. } => {
                desk.objections_of_the_house(&recorded.call).await?.into_iter().collect()
            }
        };
        match desk.judge(&recorded, DecisionStage::Dispatch, owner_words, vetoes, Some(approval))? {
            Judged::Allowed(ticket) => self.start_execution(desk, recorded, answer, ticket).await,
            Judged::Denied(outcome, result) => self.refuse(desk, &recorded, answer, (outcome, result)).await,
            Judged::Asked(..) => {
                let outcome = ToolOutcome::error("denied: what was approved may not run as it is now");
                let result =
                    desk.record_denial(&recorded, &outcome, CallOutcome::Denied, vec![recorded.entry])?;
                self.refuse(desk, &recorded, answer, (outcome, result)).await
            }
        }
    }

    /// Writes the verdict, and starts the call when it is durable.
    async fn start_execution(
        &mut self,
        desk: &mut TurnRecorder,
        recorded: Recorded,
        answer: Responder,
        ticket: Ticket,
    ) -> Result<Handled, RuntimeError> {
        let PendingOutcome { answer, terminal } = match answer {
            Responder::Outcome(waiting) => waiting,
            Responder::Leave { answer, .. } => return self.give_leave(desk, recorded, answer, ticket).await,
        };
        if terminal.is_some() {
            desk.sink(&recorded.call).await?;
        }
        self.untrack(&recorded.call.id);
        let written = desk.write().await?;
        // Durable before effect: the call starts here and not a line earlier.
        let Some(admission) = ticket.redeem(&written) else {
            return Err(RuntimeError::new("internal", "a verdict was not written with its page"));
        };
        self.open(&recorded, None);
        let governance = Arc::clone(&desk.governance);
        self.underway.push(Box::pin(async move {
            let done = run(&*governance.tools, admission, terminal).await;
            Progress::Ran(recorded, answer, Box::new(done))
        }));
        Ok(Handled::events(written.events))
    }

    /// Writes the request, and waits for a person when it is durable.
    async fn park(
        &mut self,
        desk: &mut TurnRecorder,
        parked: Parked,
        request: Cid,
    ) -> Result<Handled, RuntimeError> {
        self.untrack(&parked.recorded.call.id);
        let written = desk.write().await?;
        self.open(&parked.recorded, Some(parked.requested.id.clone()));
        let ruling = desk.governance.gate.inbox.ask(parked.requested.clone(), request);
        self.underway.push(Box::pin(async move {
            let ruling = ruling.await.unwrap_or(ApprovalDecision::Withdrawn);
            Progress::Ruled(Box::new(parked), ruling)
        }));
        Ok(Handled::events(written.events))
    }

    /// Writes the refusal, which is on the page, and answers.
    async fn refuse(
        &mut self,
        desk: &mut TurnRecorder,
        recorded: &Recorded,
        answer: Responder,
        (outcome, result): (ToolOutcome, Cid),
    ) -> Result<Handled, RuntimeError> {
        self.untrack(&recorded.call.id);
        self.last_result = Some(result);
        // Others read this; a name that the caller made up is none of their business.
        let tool = &recorded.call.name;
        let known = desk.governance.gate.law.tools().contains(tool);
        if outcome.is_error {
            self.denied.push(if known { tool.clone() } else { "an unknown tool".to_owned() });
        }
        let written = desk.write().await?;
        desk.tell_persisted(recorded, &outcome, result);
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

    /// Gives up everything that is open: the turn ends. What waits for a person is taken back, unless everyone is being
    /// stopped: then it goes on waiting, and is carried out without its turn.
    pub(super) async fn abandon_all(&mut self, desk: &mut TurnRecorder) -> Result<(), RuntimeError> {
        self.underway.clear();
        self.given.clear();
        let mut open = std::mem::take(&mut self.track);
        if desk.governance.is_leaving() {
            open.retain(|open| open.approval.is_none());
        }
        let waiting: Vec<String> = open.iter().filter_map(|open| open.approval.clone()).collect();
        if !waiting.is_empty() {
            desk.governance.gate.inbox.withdraw(&waiting).await;
        }
        for Open { call_id, tool, entry, approval } in open {
            let begun = if approval.is_none() { Begun::Yes } else { Begun::No };
            self.last_result = Some(desk.record_abandoned((&call_id, &tool), entry, begun)?);
        }
        Ok(())
    }

    fn check(&mut self, desk: &TurnRecorder, call: &ToolCall) -> Result<(), String> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let named = |text: &str, limit| (1..=limit).contains(&text.len()) && text.bytes().all(word);
        if !named(&call.name, 64) {
            return Err("a tool's name has 1 to 64 letters, digits, `_`, `-` and `.`".to_owned());
        }
        if !named(&call.id, 128) {
            return Err("a call's id has 1 to 128 letters, digits, `_`, `-` and `.`".to_owned());
        }
        if call.name == SPEND && !desk.governance.budgets.is_asking(desk.handle.key.as_str(), &call.id) {
            return Err(format!("there is no tool `{SPEND}`"));
        }
        if call.name == EGRESS {
            return Err(format!("there is no tool `{EGRESS}`: connect, and the connection is judged"));
        }
        if call.name == LAND {
            return Err(format!("there is no tool `{LAND}`: people land what was changed"));
        }
        if call.name == MCP_SERVER {
            return Err(format!("there is no tool `{MCP_SERVER}`: the operator's editor brings servers"));
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

/// Runs an admitted call, which others may follow. A fault in a tool is an answer.
pub(super) async fn run(
    tools: &dyn ToolExecutor,
    admission: Admission,
    terminal: Option<Arc<Terminal>>,
) -> ToolRun {
    let run = AssertUnwindSafe(tools.run(admission, terminal)).catch_unwind().await;
    run.unwrap_or_else(|_| ToolRun::failed("the tool failed in a way it did not expect"))
}

/// What a call is answered that its tool would refuse right away.
async fn futile(desk: &TurnRecorder, call: &ToolCall) -> Result<Option<ToolOutcome>, RuntimeError> {
    let (governance, ground, call) =
        (Arc::clone(&desk.governance), desk.journal.standing.ground(), call.clone());
    let refused = tokio::task::spawn_blocking(move || governance.tools.precheck(&ground, &call)).await;
    let refused = refused.map_err(|_| RuntimeError::new("internal", "the daemon is being torn down"))?;
    Ok(refused.map(|refused| ToolOutcome::error(refused.sentence)))
}

/// What the call would do now, looked at where waiting for the disk holds up nobody.
pub(super) async fn action_now(desk: &TurnRecorder, call: &ToolCall) -> Result<Action, RuntimeError> {
    let (governance, standing, call) =
        (Arc::clone(&desk.governance), desk.journal.standing.clone(), call.clone());
    let looking = move || {
        let dependencies = governance.tools.dependencies(&standing.ground, &call);
        governance.gate.action(dependencies, &standing, &call)
    };
    tokio::task::spawn_blocking(looking)
        .await
        .map_err(|_| RuntimeError::new("internal", "the daemon is being torn down"))
}
