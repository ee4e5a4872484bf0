//! The toolbox of one turn, as its backend sees it: every call is a request, which the code that runs the turn answers.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tribune_runtime::{Errand, Leave, OwnCall, Terminal, ToolCall, ToolOutcome, ToolSpec, Toolbox, When};

/// Requests that wait to be handled; the next one waits in its backend.
pub(super) const CALLS_WAITING: usize = 16;

/// The answer to a request after the end of the turn.
const OVER: &str = "the turn is over: this call was not made";

/// The answer to the execution of a call without permission.
const NO_PERMISSION: &str = "there is no permission for this call: it was not made";

/// A request of a backend to its turn.
pub(super) enum Wish {
    Call(Asked),
    /// The daemon executes a call that the agent has permission for.
    CarryOut(String, Waiting),
    /// The result of a call that the agent executed, and the channel that is told when it is recorded.
    Report(String, ToolOutcome, oneshot::Sender<()>),
}

/// A call, and where its outcome goes.
pub(super) struct Asked {
    pub(super) call: ToolCall,
    pub(super) answer: Answer,
}

/// The backend that waits for the result of a call that the daemon executes.
pub(super) struct Waiting {
    pub(super) answer: oneshot::Sender<ToolOutcome>,
    /// The terminal on which it follows the call, if that is a command.
    pub(super) terminal: Option<Arc<Terminal>>,
}

impl Waiting {
    fn new(terminal: Option<Arc<Terminal>>) -> (Self, oneshot::Receiver<ToolOutcome>) {
        let (answer, outcome) = oneshot::channel();
        (Self { answer, terminal }, outcome)
    }
}

/// Who executes a call, and what they wait for.
pub(super) enum Answer {
    /// The daemon executes it; the backend waits for the result.
    Outcome(Waiting),
    /// The agent executes it; it waits for permission.
    Leave { said: String, when: When, answer: oneshot::Sender<Leave> },
}

impl Answer {
    /// Answers that the call was not executed. The receiver may be gone.
    pub(super) fn refuse(self, outcome: ToolOutcome) {
        match self {
            Self::Outcome(waiting) => drop(waiting.answer.send(outcome)),
            Self::Leave { answer, .. } => drop(answer.send(Leave::Refused(outcome.content))),
        }
    }
}

pub(super) struct TurnTools {
    pub(super) specs: Vec<ToolSpec>,
    pub(super) wishes: mpsc::Sender<Wish>,
}

impl TurnTools {
    async fn make(&self, call: ToolCall, terminal: Option<Arc<Terminal>>) -> ToolOutcome {
        let (waiting, outcome) = Waiting::new(terminal);
        let asked = Asked { call, answer: Answer::Outcome(waiting) };
        if self.wishes.send(Wish::Call(asked)).await.is_err() {
            return ToolOutcome::error(OVER);
        }
        outcome.await.unwrap_or_else(|_| ToolOutcome::error(OVER))
    }

    async fn make_allowed(&self, call_id: String, terminal: Option<Arc<Terminal>>) -> ToolOutcome {
        let (waiting, outcome) = Waiting::new(terminal);
        if self.wishes.send(Wish::CarryOut(call_id, waiting)).await.is_err() {
            return ToolOutcome::error(OVER);
        }
        outcome.await.unwrap_or_else(|_| ToolOutcome::error(NO_PERMISSION))
    }
}

#[async_trait]
impl Toolbox for TurnTools {
    fn tools(&self) -> &[ToolSpec] {
        &self.specs
    }

    async fn call(&self, call: ToolCall) -> ToolOutcome {
        self.make(call, None).await
    }

    async fn ask_leave(&self, OwnCall { call, said, when }: OwnCall) -> Leave {
        let (answer, permission) = oneshot::channel();
        let asked = Asked { call, answer: Answer::Leave { said, when, answer } };
        if self.wishes.send(Wish::Call(asked)).await.is_err() {
            return Leave::Refused(OVER.to_owned());
        }
        permission.await.unwrap_or_else(|_| Leave::Refused(OVER.to_owned()))
    }

    async fn carry_out(&self, call_id: &str) -> ToolOutcome {
        self.make_allowed(call_id.to_owned(), None).await
    }

    async fn follow(&self, request: Errand, terminal: Arc<Terminal>) -> ToolOutcome {
        match request {
            Errand::Call(call) => self.make(call, Some(terminal)).await,
            Errand::Allowed(call_id) => self.make_allowed(call_id, Some(terminal)).await,
        }
    }

    async fn report(&self, call_id: &str, outcome: ToolOutcome) {
        let (recorded, is_recorded) = oneshot::channel();
        if self.wishes.send(Wish::Report(call_id.to_owned(), outcome, recorded)).await.is_ok() {
            // A turn that ended meanwhile recorded the call as abandoned.
            let _ = is_recorded.await;
        }
    }
}
