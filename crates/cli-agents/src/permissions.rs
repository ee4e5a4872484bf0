//! Tracks the permission requests of one turn: passes them to the toolbox and the answers back, and compares reported
//! calls with the permissions. It is the same for every protocol.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::Value;

use crate::agent_protocol::TurnStep;
use crate::executed_calls::ExecutedCalls;
use crate::mcp_bridge::SessionMcpServers;
use crate::mcp_tool_names::McpToolNames;
use crate::normalize::NormalizedCall;
use crate::tool_calls::{AskState, PermissionAsk, ReportedCalls, UpdateError, UpdateKind};
use tribune_runtime::{
    AgentExecutedCall, ErrorKind, PermissionOutcome, PermissionTiming, ReportedOutcome, RuntimeError,
    ToolCall, ToolOutcome, Toolbox,
};

/// Permission requests of an agent that wait at once.
const MAX_WAITING: usize = 64;

/// Bytes of their lines.
const MAX_WAITING_BYTES: usize = 32 << 20;

/// The outcome on record of a permission for an MCP call that was never made.
const NOT_MADE: &str = "the agent did not make this call";

/// A permission request of the agent's, as far as it has to be answered.
pub(crate) trait PermissionRequest: Send + 'static {
    /// The way of asking, where an agent has several for one call.
    fn way(&self) -> &'static str;

    /// The line that answers it, and whether that line allows the call.
    fn answer(&self, answer: &PermissionAnswer) -> (String, bool);
}

/// The answer to a permission request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PermissionAnswer {
    Allow,
    Deny(String),
    /// The turn is over.
    Cancelled,
}

/// The permission requests of a turn, and its calls.
pub(crate) struct PermissionTracker<Q> {
    tools: Arc<dyn Toolbox>,
    pub(crate) workspace: Arc<str>,
    pub(crate) calls: ReportedCalls,
    waiting: FuturesUnordered<BoxFuture<'static, DecidedRequest>>,
    open: Vec<OpenRequest<Q>>,
    pub(crate) asks: usize,
    /// MCP calls that the host executed.
    pub(crate) executed: ExecutedCalls,
    under_way: RunningReport,
}

struct OpenRequest<Q> {
    ask: usize,
    size: usize,
    question: Q,
}

/// What a report of a call as running means before permission was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunningReport {
    MeansExecuted,
    /// The agent reports calls so before it requests permission for them.
    MayPrecedeRequest,
}

/// How an executed call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExecutionResult {
    Succeeded,
    Failed,
}

/// Whether a call was executed at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WasExecuted {
    Yes,
    No,
}

/// A decided permission request.
pub(crate) struct DecidedRequest {
    ask: usize,
    call: String,
    permitted: Vec<(String, NormalizedCall)>,
    refused: Option<String>,
}

impl<Q: PermissionRequest> PermissionTracker<Q> {
    pub(crate) fn new(
        tools: Arc<dyn Toolbox>,
        workspace: Arc<str>,
        under_way: RunningReport,
        servers: Option<&SessionMcpServers>,
    ) -> Self {
        let (calls, waiting) = (ReportedCalls::new(McpToolNames::of(servers)), FuturesUnordered::new());
        let (open, executed) = (Vec::new(), ExecutedCalls::default());
        Self { tools, workspace, calls, waiting, open, asks: 0, executed, under_way }
    }

    /// The agent requests permission for the call that a line reports. Returns the lines that answer at once.
    pub(crate) fn ask(
        &mut self,
        question: Q,
        report: &Value,
        line: &str,
    ) -> Result<Vec<String>, UpdateError> {
        let waiting: usize = self.open.iter().map(|open| open.size).sum();
        if self.open.len() >= MAX_WAITING || waiting + line.len() > MAX_WAITING_BYTES {
            return Ok(vec![question.answer(&PermissionAnswer::Cancelled).0]);
        }
        let id = self.calls.merge_update(report, line, UpdateKind::Continues)?;
        let Some(call) = self.calls.get(&id) else { return Ok(Vec::new()) };
        let wanted = call.requested_calls(&self.workspace);
        let way = question.way();
        let size = line.len();
        let is_same = |ask: &&mut PermissionAsk| ask.wanted == wanted && !ask.ways.contains(&way);
        if !call.is_over
            && let Some(ask) = call.asks.iter_mut().rev().find(is_same)
        {
            // The agent asks about it in another way, too.
            ask.ways.push(way);
            let answer = match &ask.state {
                AskState::Pending => {
                    self.open.push(OpenRequest { ask: ask.number, size, question });
                    return Ok(Vec::new());
                }
                AskState::Allowed => PermissionAnswer::Allow,
                AskState::Refused(why) => PermissionAnswer::Deny(why.clone()),
            };
            return Ok(vec![question.answer(&answer).0]);
        }
        call.reopen();
        let parts: Vec<(String, NormalizedCall)> =
            call.ids(&id, wanted.len()).into_iter().zip(wanted.clone()).collect();
        let number = self.asks;
        self.asks += 1;
        self.calls.add_ask(&id, PermissionAsk::new(number, wanted, way, line))?;
        self.open.push(OpenRequest { ask: number, size, question });
        let (tools, raw) = (Arc::clone(&self.tools), line.to_owned());
        self.waiting.push(Box::pin(async move {
            let mut refused = None;
            let mut permitted = Vec::new();
            for (own, wanted) in parts {
                match tools
                    .request_permission(own_call(&own, wanted.clone(), &raw, PermissionTiming::BeforeCall))
                    .await
                {
                    PermissionOutcome::Granted => permitted.push((own, wanted)),
                    PermissionOutcome::Denied(why) => {
                        refused = Some(why);
                        break;
                    }
                }
            }
            DecidedRequest { ask: number, call: id, permitted, refused }
        }));
        Ok(Vec::new())
    }

    /// Refuses a permission request without asking the toolbox: the call is known to have no permission.
    pub(crate) fn refuse(&mut self, report: &Value, line: &str, why: &str) -> Result<(), UpdateError> {
        let id = self.calls.merge_update(report, line, UpdateKind::Continues)?;
        let Some(call) = self.calls.get(&id) else { return Ok(()) };
        let wanted = call.requested_calls(&self.workspace);
        call.reopen();
        let mut ask = PermissionAsk::new(self.asks, wanted, "", line);
        ask.state = AskState::Refused(why.to_owned());
        self.asks += 1;
        self.calls.add_ask(&id, ask)
    }

    /// Waits until a permission request is decided; for ever if none waits.
    pub(crate) async fn next_decision(&mut self) -> DecidedRequest {
        match self.waiting.next().await {
            Some(decided) => decided,
            None => std::future::pending().await,
        }
    }

    /// A denied call, and why it was.
    pub(crate) fn denial(&mut self, decided: &DecidedRequest) -> Option<(String, String)> {
        let why = decided.refused.clone()?;
        let call = self.calls.get(&decided.call)?;
        let wanted = call.asks.iter().find(|ask| ask.number == decided.ask)?.wanted.first();
        Some((wanted.map_or_else(|| call.title(), |wanted| wanted.display(&call.title())), why))
    }

    /// The lines that answer a decided permission request.
    pub(crate) async fn answer_lines(&mut self, decided: DecidedRequest) -> Vec<String> {
        let DecidedRequest { ask: number, call, permitted, refused } = decided;
        let answer = refused.clone().map_or(PermissionAnswer::Allow, PermissionAnswer::Deny);
        let mut lines = Vec::new();
        let mut allows = false;
        // Every way of asking gets the same answer.
        for open in self.open.extract_if(.., |open| open.ask == number) {
            let (line, is_allowed) = open.question.answer(&answer);
            lines.push(line);
            allows |= is_allowed;
        }
        if !allows {
            // Part of it was allowed, the agent withdrew the request, or it has no option that allows this call alone.
            for (own, _) in &permitted {
                let why = "it was not made: the whole was refused".to_owned();
                self.tools.report_result(own, ReportedOutcome::NotExecuted(why)).await;
            }
        }
        let ask =
            self.calls.get(&call).and_then(|call| call.asks.iter_mut().find(|ask| ask.number == number));
        if let Some(ask) = ask {
            if allows {
                ask.state = AskState::Allowed;
                ask.permitted = permitted;
            } else {
                let why = refused.unwrap_or_else(|| "it was not allowed".to_owned());
                ask.state = AskState::Refused(why);
            }
        }
        lines
    }

    /// The agent withdraws a permission request.
    pub(crate) fn withdraw(&mut self, is_it: impl Fn(&Q) -> bool) {
        self.open.retain(|open| !is_it(&open.question));
    }

    /// The lines that cancel every permission request that waits.
    pub(crate) fn cancel_all(&mut self) -> Vec<String> {
        self.waiting.clear();
        self.open.drain(..).map(|open| open.question.answer(&PermissionAnswer::Cancelled).0).collect()
    }

    /// Merges a report of a call, and records its outcome. `ran` are the commands of terminals that it shows.
    pub(crate) async fn on_report(
        &mut self,
        report: &Value,
        line: &str,
        update_kind: UpdateKind,
        ran: Vec<NormalizedCall>,
    ) -> Option<TurnStep> {
        let id = match self.calls.merge_update(report, line, update_kind) {
            Ok(id) => id,
            Err(error) => return Some(TurnStep::Failed(error.into())),
        };
        let call = self.calls.get(&id)?;
        for command in ran {
            call.mark_executed_here(command);
        }
        let is_unasked = call.asks.is_empty();
        match call.status() {
            None | Some("pending" | "in_progress") => None,
            // It was executed and failed. A refused call is believed not to have been executed.
            Some("broke") if is_unasked => self.on_done_report(&id, ExecutionResult::Failed).await,
            // So was one that was running, unless the agent reports calls as running before it asks.
            Some("failed")
                if is_unasked && call.is_begun() && self.under_way == RunningReport::MeansExecuted =>
            {
                self.on_done_report(&id, ExecutionResult::Failed).await
            }
            Some("broke" | "failed") => {
                self.on_failed_report(&id).await;
                None
            }
            // Any other status means that it was executed.
            Some(_) => self.on_done_report(&id, ExecutionResult::Succeeded).await,
        }
    }

    /// A call is reported as done: each part of it has permission, or is judged now.
    async fn on_done_report(&mut self, id: &str, result: ExecutionResult) -> Option<TurnStep> {
        let call = self.calls.get(id)?;
        call.is_over = true;
        // A call that the host executed under this name was this one, whatever else its name could mean.
        if call.asks.is_empty() && call.was_executed_here(&mut self.executed, &self.workspace) {
            return None;
        }
        let parts = match call.asks.is_empty() {
            true => call.planned_calls(&self.workspace),
            false => call.claimed_calls(&self.workspace),
        };
        // The report says only that the call is done: then it is the call that was asked about last.
        if parts.is_empty()
            && let Some(ask) = call.asks.last().filter(|ask| ask.state != AskState::Allowed)
        {
            let first = ask.wanted.first();
            let tool = first.map_or_else(|| "unknown".to_owned(), |wanted| wanted.tool.clone());
            let shown = first.map_or_else(|| call.title(), |wanted| wanted.display(&call.title()));
            let what = format!("`{shown}` was executed without permission");
            return Some(TurnStep::Ungoverned { id: id.to_owned(), tool, what });
        }
        let mut reported = Vec::new();
        let mut unasked = Vec::new();
        for part in parts {
            if call.settled.iter().any(|settled| settled.covers(&part)) {
                continue;
            }
            if part.is_mcp() {
                // Permission for the host to execute a call does not mean that it did.
                if self.executed.take(&part) {
                    call.settled.push(part);
                    continue;
                }
            } else if let Some(own) = call.take(|permitted| permitted.covers(&part)) {
                reported.push((own, part));
                continue;
            }
            let is_refused = |ask: &PermissionAsk| {
                ask.state != AskState::Allowed && ask.wanted.iter().any(|wanted| wanted.covers(&part))
            };
            if call.asks.iter().any(is_refused) {
                let what = format!("`{}` was executed without permission", part.display(&call.title()));
                return Some(TurnStep::Ungoverned { id: id.to_owned(), tool: part.tool, what });
            }
            if call.repeats_executed(&part) {
                continue;
            }
            // Judged and recorded as its own report says.
            let words = match part.is_mcp() {
                // The host did not execute it, so it is a tool of the agent's own.
                true => call.as_agent_tool(&self.workspace),
                false => call.requested_calls(&self.workspace),
            };
            let same = words.iter().find(|words| words.covers(&part)).or(words.first());
            let words = same.cloned().unwrap_or_else(|| part.clone());
            call.settled.push(part);
            if !unasked.contains(&words) {
                unasked.push(words);
            }
        }
        // Parts that are not reported any more were part of the call when it was permitted.
        reported.extend(call.take_all_permissions());
        let outcome = ToolOutcome { content: call.outcome(), is_error: result == ExecutionResult::Failed };
        for (own, wanted) in reported {
            self.tools.report_result(&own, outcome_of_unused(&wanted, outcome.clone())).await;
        }
        self.judge_unasked(id, unasked, &outcome, WasExecuted::Yes).await
    }

    /// A call is reported as failed.
    async fn on_failed_report(&mut self, id: &str) {
        let Some(call) = self.calls.get(id) else { return };
        let was_over = std::mem::replace(&mut call.is_over, true);
        let outcome = ToolOutcome::error(call.outcome());
        if call.asks.is_empty() && !was_over {
            if call.was_executed_here(&mut self.executed, &self.workspace) {
                return;
            }
            let mut parts = call.planned_calls(&self.workspace);
            parts.retain(|part| !call.has_settled(part));
            if parts.iter().any(NormalizedCall::is_mcp) {
                parts = call.as_agent_tool(&self.workspace);
            }
            // Nothing was executed, so nothing is ungoverned.
            let _ = self.judge_unasked(id, parts, &outcome, WasExecuted::No).await;
            return;
        }
        for (own, wanted) in call.take_all_permissions() {
            self.tools.report_result(&own, outcome_of_unused(&wanted, outcome.clone())).await;
        }
    }

    /// Has the gate judge parts of a call that the agent executed without asking. A person cannot be asked any more, so
    /// the law alone decides.
    async fn judge_unasked(
        &mut self,
        id: &str,
        parts: Vec<NormalizedCall>,
        outcome: &ToolOutcome,
        was_made: WasExecuted,
    ) -> Option<TurnStep> {
        let call = self.calls.get(id)?;
        let (raw, title) = (call.line().to_owned(), call.title());
        for (own, wanted) in call.ids(id, parts.len()).into_iter().zip(parts) {
            let (tool, shown) = (wanted.tool.clone(), wanted.display(&title));
            match self
                .tools
                .request_permission(own_call(&own, wanted, &raw, PermissionTiming::DuringCall))
                .await
            {
                PermissionOutcome::Granted => {
                    let executed = ReportedOutcome::Executed(outcome.clone());
                    self.tools.report_result(&own, executed).await;
                }
                PermissionOutcome::Denied(why) if was_made == WasExecuted::Yes => {
                    let what = format!("`{shown}` was executed without asking: {why}");
                    return Some(TurnStep::Ungoverned { id: own, tool, what });
                }
                // Nothing was executed, and one denial of it is enough on record.
                PermissionOutcome::Denied(_) => return None,
            }
        }
        None
    }

    /// The turn is over, or was cut off: judges calls that were begun without a permission request.
    pub(crate) async fn judge_begun(&mut self) -> Option<TurnStep> {
        for id in self.calls.begun_unasked() {
            if let Some(step) = self.on_done_report(&id, ExecutionResult::Succeeded).await {
                return Some(step);
            }
        }
        None
    }

    /// The turn is over: records an outcome for every permission.
    pub(crate) async fn settle(&mut self) {
        for (own, wanted) in self.calls.take_unreported() {
            let outcome = ToolOutcome::good("the turn ended, and the agent did not say what came of it");
            self.tools.report_result(&own, outcome_of_unused(&wanted, outcome)).await;
        }
    }
}

impl From<UpdateError> for RuntimeError {
    fn from(error: UpdateError) -> Self {
        let what = match error {
            UpdateError::NoUsableId => {
                "the agent reported a call without an id, or with one that is too long, and was stopped"
            }
            UpdateError::TooMuch => "the agent reported more calls than a turn may have, and was stopped",
        };
        Self::new(ErrorKind::AgentProtocol, what)
    }
}

/// The outcome to record for a permission that the host has not used, given the agent's report. Only the host could have
/// executed an MCP call.
fn outcome_of_unused(wanted: &NormalizedCall, reported: ToolOutcome) -> ReportedOutcome {
    match wanted.is_mcp() {
        true => ReportedOutcome::NotExecuted(NOT_MADE.to_owned()),
        false => ReportedOutcome::Executed(reported),
    }
}

fn own_call(id: &str, wanted: NormalizedCall, raw: &str, when: PermissionTiming) -> AgentExecutedCall {
    let call = ToolCall { id: id.to_owned(), name: wanted.tool, input: wanted.input };
    AgentExecutedCall { call, raw: raw.to_owned(), timing: when }
}
