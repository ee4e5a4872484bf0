//! Records the permission requests of a canary and the gate's answers, between the backend and the governed turn. It changes
//! nothing.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tribune_runtime::{
    AgentRuntime, CloseReason, Errand, EventStream, Handle, Leave, OwnCall, Reach, RuntimeError,
    SessionInput, SessionStatus, Terminal, ToolCall, ToolOutcome, ToolSpec, Toolbox, TurnInput, When,
};

use super::scripted_model::{Milestone, Play};

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
pub(super) struct Watched {
    pub(super) inner: Arc<dyn AgentRuntime>,
    pub(super) questions: Arc<Questions>,
    pub(super) play: Arc<Play>,
}

#[async_trait]
impl AgentRuntime for Watched {
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

    fn reach(&self) -> Reach {
        self.inner.reach()
    }

    fn is_instructed(&self) -> bool {
        self.inner.is_instructed()
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
    play: Arc<Play>,
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

    async fn ask_leave(&self, own: OwnCall) -> Leave {
        let (asked, when) = (own.call.clone(), own.when);
        if when == When::Before {
            self.play.reach(Milestone::Asked);
        }
        let outcome = self.inner.ask_leave(own).await;
        let answer = match (&outcome, when) {
            (Leave::Given, _) => Answer::LetGo,
            (Leave::Refused(_), When::Before) => Answer::Refused,
            (Leave::Refused(_), When::Underway) => Answer::TooLate,
        };
        self.questions.add(&asked, answer);
        outcome
    }

    async fn carry_out(&self, call_id: &str) -> ToolOutcome {
        self.inner.carry_out(call_id).await
    }

    async fn follow(&self, errand: Errand, terminal: Arc<Terminal>) -> ToolOutcome {
        let Errand::Call(asked) = &errand else { return self.inner.follow(errand, terminal).await };
        self.play.reach(Milestone::Asked);
        let asked = asked.clone();
        let outcome = self.inner.follow(errand, Arc::clone(&terminal)).await;
        let is_refused = outcome.is_error && !terminal.has_begun();
        self.questions.add(&asked, if is_refused { Answer::Refused } else { Answer::LetGo });
        outcome
    }

    async fn report(&self, call_id: &str, outcome: ToolOutcome) {
        self.inner.report(call_id, outcome).await;
    }
}

#[cfg(test)]
impl Question {
    pub(super) fn new(tool: &str, answer: Answer) -> Self {
        Self { tool: tool.to_owned(), input: String::new(), answer }
    }
}
