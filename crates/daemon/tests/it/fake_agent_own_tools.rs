//! A backend whose agent has hands of its own: it asks leave, and tells what came of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tribune_runtime::{
    AgentExecutedCall, AgentRuntime, CloseReason, EventKind, EventStream, Handle, PermissionOutcome,
    PermissionTiming, RuntimeError, RuntimeEvent, SessionInput, SessionState, SessionStatus, StopReason,
    ToolCall, ToolOutcome, TurnInput,
};

/// One thing that the agent does.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Asks leave for a call, which gets the next number.
    Ask(&'static str, Value),
    /// Says that it makes a call already.
    Begin(&'static str, Value),
    /// Tells what came of call number so and so.
    Tell(usize, &'static str),
    /// Has the house carry out call number so and so.
    CarryOut(usize),
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Hands {
    turns: Arc<Mutex<VecDeque<Vec<Act>>>>,
    /// What was answered, in order: `given`, or why not.
    answers: Arc<Mutex<Vec<String>>>,
}

impl Hands {
    pub(crate) fn prepare(&self, acts: Vec<Act>) {
        self.turns.lock().unwrap().push_back(acts);
    }

    pub(crate) fn answers(&self) -> Vec<String> {
        std::mem::take(&mut *self.answers.lock().unwrap())
    }
}

#[async_trait]
impl AgentRuntime for Hands {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        Ok(Handle { key: Arc::new(input.key), session_id: "hands".into() })
    }

    fn run_turn(&self, _: &Handle, input: TurnInput) -> EventStream {
        let acts = self.turns.lock().unwrap().pop_front().unwrap_or_default();
        let (answers, tools) = (Arc::clone(&self.answers), input.tools);
        let play = async move {
            let mut n = 0;
            for act in acts {
                let when = if matches!(act, Act::Begin(..)) {
                    PermissionTiming::DuringCall
                } else {
                    PermissionTiming::BeforeCall
                };
                match act {
                    Act::Ask(name, input) | Act::Begin(name, input) => {
                        n += 1;
                        let said = format!("{{ \"raw\" : \"{name}\" }}");
                        let call = ToolCall { id: format!("call-{n}"), name: name.to_owned(), input };
                        let answer =
                            match tools.request_permission(AgentExecutedCall { call, raw, timing }).await {
                                PermissionOutcome::Granted => "given".to_owned(),
                                PermissionOutcome::Denied(why) => why,
                            };
                        answers.lock().unwrap().push(answer);
                    }
                    Act::Tell(n, what) => {
                        tools.report_result(&format!("call-{n}"), ToolOutcome::good(what)).await
                    }
                    Act::CarryOut(n) => {
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
        Ok(SessionStatus { state: SessionState::Idle, backend: "hands".into(), model: None })
    }
}
