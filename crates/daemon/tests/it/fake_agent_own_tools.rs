//! A fake backend whose agent executes calls itself: it requests permission and reports the results.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tribune_runtime::{
    AgentExecutedCall, AgentRuntime, CloseReason, EventKind, EventStream, Handle, PermissionOutcome,
    PermissionTiming, ReportedOutcome, RuntimeError, RuntimeEvent, SessionInput, SessionState, SessionStatus,
    StopReason, ToolCall, ToolOutcome, TurnInput,
};

/// One action of the agent.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Requests permission for a call, which gets the next number.
    Ask(&'static str, Value),
    /// Reports a call that has already begun.
    Begin(&'static str, Value),
    /// Reports the result of the call with this number.
    Report(usize, &'static str),
    /// Reports that the call with this number was not executed.
    Unused(usize),
    /// Has Tribune execute the call with this number.
    Execute(usize),
}

#[derive(Debug, Default, Clone)]
pub(crate) struct OwnToolsAgent {
    turns: Arc<Mutex<VecDeque<Vec<Act>>>>,
    /// The answers, in order: `given`, or the reason of a refusal.
    answers: Arc<Mutex<Vec<String>>>,
}

impl OwnToolsAgent {
    pub(crate) fn prepare(&self, acts: Vec<Act>) {
        self.turns.lock().unwrap().push_back(acts);
    }

    pub(crate) fn answers(&self) -> Vec<String> {
        std::mem::take(&mut *self.answers.lock().unwrap())
    }
}

#[async_trait]
impl AgentRuntime for OwnToolsAgent {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        Ok(Handle { key: Arc::new(input.key), session_id: "own-tools".into() })
    }

    fn run_turn(&self, _: &Handle, input: TurnInput) -> EventStream {
        let acts = self.turns.lock().unwrap().pop_front().unwrap_or_default();
        let (answers, tools) = (Arc::clone(&self.answers), input.tools);
        let play = async move {
            let mut n = 0;
            for act in acts {
                let timing = if matches!(act, Act::Begin(..)) {
                    PermissionTiming::DuringCall
                } else {
                    PermissionTiming::BeforeCall
                };
                match act {
                    Act::Ask(name, input) | Act::Begin(name, input) => {
                        n += 1;
                        let raw = format!("{{ \"raw\" : \"{name}\" }}");
                        let call = ToolCall { id: format!("call-{n}"), name: name.to_owned(), input };
                        let answer =
                            match tools.request_permission(AgentExecutedCall { call, raw, timing }).await {
                                PermissionOutcome::Granted => "given".to_owned(),
                                PermissionOutcome::Denied(why) => why,
                            };
                        answers.lock().unwrap().push(answer);
                    }
                    Act::Report(n, what) => {
                        let executed = ReportedOutcome::Executed(ToolOutcome::good(what));
                        tools.report_result(&format!("call-{n}"), executed).await
                    }
                    Act::Unused(n) => {
                        let unused = ReportedOutcome::NotExecuted("it was not made".to_owned());
                        tools.report_result(&format!("call-{n}"), unused).await
                    }
                    Act::Execute(n) => {
                        let outcome = tools.execute_granted(&format!("call-{n}")).await;
                        answers.lock().unwrap().push(outcome.content);
                    }
                }
            }
            let kinds = [EventKind::Done { stop_reason: StopReason::EndTurn }];
            stream::iter(kinds.into_iter().zip(1..).map(|(kind, seq)| Ok(RuntimeEvent { seq, kind })))
        };
        stream::once(play).flatten().boxed()
    }

    async fn cancel(&self, _: &Handle) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn close(&self, _: &Handle, _: CloseReason) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn status(&self, _: &Handle) -> Result<SessionStatus, RuntimeError> {
        Ok(SessionStatus { state: SessionState::Idle, backend: "own-tools".into(), model: None })
    }
}
