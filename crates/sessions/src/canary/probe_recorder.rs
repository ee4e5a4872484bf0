//! Records the permission requests of a canary and the gate's answers, between the backend and the governed turn. It changes
//! nothing.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tribune_runtime::{
    AgentExecutedCall, AgentRuntime, CloseReason, EventStream, Handle, PermissionOutcome, PermissionTiming,
    RuntimeError, SessionInput, SessionStatus, SideEffects, Terminal, TerminalCall, ToolCall, ToolOutcome,
    ToolSpec, Toolbox, TurnInput,
};

use super::scripted_model::{Milestone, ScriptedModel};

/// A permission request to the gate, with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) tool: String,
    /// Its input, as JSON.
    input: String,
    pub(super) answer: Answer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Requested before the call, and refused.
    Refused,
    /// The gate allowed it.
    LetGo,
    /// Requested when the agent executed the call already.
    TooLate,
}

/// The recorded requests.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<Vec<Question>>);

impl Questions {
    fn add(&self, call: &ToolCall, answer: Answer) {
        let question = Question { tool: call.name.clone(), input: call.input.to_string(), answer };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(question);
    }

    /// The requests whose input contains this marker.
    pub(super) fn about(&self, mark: &str) -> Vec<Question> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|question| question.input.contains(mark)).cloned().collect()
    }
}

/// A backend whose requests are recorded.
#[derive(Clone)]
pub(super) struct RecordingRuntime {
    pub(super) inner: Arc<dyn AgentRuntime>,
    pub(super) questions: Arc<Questions>,
    pub(super) play: Arc<ScriptedModel>,
}

#[async_trait]
impl AgentRuntime for RecordingRuntime {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        self.inner.ensure_session(input).await
    }

    fn run_turn(&self, handle: &Handle, input: TurnInput) -> EventStream {
        let tools = RecordingToolbox {
            inner: Arc::clone(&input.tools),
            questions: Arc::clone(&self.questions),
            play: Arc::clone(&self.play),
        };
        self.inner.run_turn(handle, TurnInput { tools: Arc::new(tools), ..input })
    }

    fn side_effects(&self) -> SideEffects {
        self.inner.side_effects()
    }

    fn has_system_prompt(&self) -> bool {
        self.inner.has_system_prompt()
    }

    async fn cancel(&self, handle: &Handle) -> Result<(), RuntimeError> {
        self.inner.cancel(handle).await
    }

    async fn close(&self, handle: &Handle, reason: CloseReason) -> Result<(), RuntimeError> {
        self.inner.close(handle, reason).await
    }

    async fn status(&self, handle: &Handle) -> Result<SessionStatus, RuntimeError> {
        self.inner.status(handle).await
    }
}

struct RecordingToolbox {
    inner: Arc<dyn Toolbox>,
    questions: Arc<Questions>,
    play: Arc<ScriptedModel>,
}

#[async_trait]
impl Toolbox for RecordingToolbox {
    fn tools(&self) -> &[ToolSpec] {
        self.inner.tools()
    }

    async fn call(&self, call: ToolCall) -> ToolOutcome {
        self.play.reach(Milestone::Asked);
        let asked = call.clone();
        let outcome = self.inner.call(call).await;
        self.questions.add(&asked, if outcome.is_error { Answer::Refused } else { Answer::LetGo });
        outcome
    }

    async fn request_permission(&self, own: AgentExecutedCall) -> PermissionOutcome {
        let (asked, when) = (own.call.clone(), own.timing);
        if when == PermissionTiming::BeforeCall {
            self.play.reach(Milestone::Asked);
        }
        let outcome = self.inner.request_permission(own).await;
        let answer = match (&outcome, when) {
            (PermissionOutcome::Granted, _) => Answer::LetGo,
            (PermissionOutcome::Denied(_), PermissionTiming::BeforeCall) => Answer::Refused,
            (PermissionOutcome::Denied(_), PermissionTiming::DuringCall) => Answer::TooLate,
        };
        self.questions.add(&asked, answer);
        outcome
    }

    async fn execute_granted(&self, call_id: &str) -> ToolOutcome {
        self.inner.execute_granted(call_id).await
    }

    async fn run_with_terminal(&self, call: TerminalCall, terminal: Arc<Terminal>) -> ToolOutcome {
        let TerminalCall::Call(asked) = &call else {
            return self.inner.run_with_terminal(call, terminal).await;
        };
        self.play.reach(Milestone::Asked);
        let asked = asked.clone();
        let outcome = self.inner.run_with_terminal(call, Arc::clone(&terminal)).await;
        let is_refused = outcome.is_error && !terminal.has_started();
        self.questions.add(&asked, if is_refused { Answer::Refused } else { Answer::LetGo });
        outcome
    }

    async fn report_result(&self, call_id: &str, outcome: ToolOutcome) {
        self.inner.report_result(call_id, outcome).await;
    }
}

#[cfg(test)]
impl Question {
    pub(super) fn new(tool: &str, answer: Answer) -> Self {
        Self { tool: tool.to_owned(), input: String::new(), answer }
    }
}
