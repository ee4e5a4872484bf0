//! The tools of one turn, as its backend sees them: a way to ask. Whoever runs the turn answers.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tribune_runtime::{
    AgentExecutedCall, PermissionOutcome, PermissionTiming, Terminal, TerminalCall, ToolCall, ToolOutcome,
    ToolSpec, Toolbox,
};

/// Calls waiting to be looked at; the next one waits in its backend.
pub(super) const CALLS_WAITING: usize = 16;

/// What is told to whoever asks after the turn.
const OVER: &str = "the turn is over: this call was not made";

/// What is told to whoever has something carried out that was not allowed.
const NO_LEAVE: &str = "there is no leave for this call: it was not made";

/// What a backend wants of its turn.
pub(super) enum BackendRequest {
    Call(ToolRequest),
    /// A call that its agent has leave for is to be carried out here.
    CarryOut(String, PendingOutcome),
    /// What came of a call that its agent carried out, and who waits for that to be on record.
    Report(String, ToolOutcome, oneshot::Sender<()>),
}

/// A call, how it comes to be asked about, and where its outcome goes.
pub(super) struct ToolRequest {
    pub(super) call: ToolCall,
    pub(super) answer: Responder,
}

/// The backend that waits for what comes of a call which we carry out.
pub(super) struct PendingOutcome {
    pub(super) answer: oneshot::Sender<ToolOutcome>,
    /// Where it watches the call meanwhile, if that is a command.
    pub(super) terminal: Option<Arc<Terminal>>,
}

impl PendingOutcome {
    fn new(terminal: Option<Arc<Terminal>>) -> (Self, oneshot::Receiver<ToolOutcome>) {
        let (answer, outcome) = oneshot::channel();
        (Self { answer, terminal }, outcome)
    }
}

/// Who carries a call out, and what they wait for.
pub(super) enum Responder {
    /// We do; the backend waits for what came of it.
    Outcome(PendingOutcome),
    /// The agent does; it waits for leave.
    Leave { said: String, when: PermissionTiming, answer: oneshot::Sender<PermissionOutcome> },
}

impl Responder {
    /// Answers that nothing was done. Nobody may be there to hear it.
    pub(super) fn refuse(self, outcome: ToolOutcome) {
        match self {
            Self::Outcome(waiting) => drop(waiting.answer.send(outcome)),
            Self::Leave { answer, .. } => drop(answer.send(PermissionOutcome::Denied(outcome.content))),
        }
    }
}

pub(super) struct TurnTools {
    pub(super) specs: Vec<ToolSpec>,
    pub(super) wishes: mpsc::Sender<BackendRequest>,
}

impl TurnTools {
    async fn make(&self, call: ToolCall, terminal: Option<Arc<Terminal>>) -> ToolOutcome {
        let (waiting, outcome) = PendingOutcome::new(terminal);
        let asked = ToolRequest { call, answer: Responder::Outcome(waiting) };
        if self.wishes.send(BackendRequest::Call(asked)).await.is_err() {
            return ToolOutcome::error(OVER);
        }
        outcome.await.unwrap_or_else(|_| ToolOutcome::error(OVER))
    }

    async fn make_allowed(&self, call_id: String, terminal: Option<Arc<Terminal>>) -> ToolOutcome {
        let (waiting, outcome) = PendingOutcome::new(terminal);
        if self.wishes.send(BackendRequest::CarryOut(call_id, waiting)).await.is_err() {
            return ToolOutcome::error(OVER);
        }
        outcome.await.unwrap_or_else(|_| ToolOutcome::error(NO_LEAVE))
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

    async fn request_permission(
        &self,
        AgentExecutedCall { call, raw, timing }: AgentExecutedCall,
    ) -> PermissionOutcome {
        let (answer, leave) = oneshot::channel();
        let asked = ToolRequest { call, answer: Responder::Leave { said: raw, when: timing, answer } };
        if self.wishes.send(BackendRequest::Call(asked)).await.is_err() {
            return PermissionOutcome::Denied(OVER.to_owned());
        }
        leave.await.unwrap_or_else(|_| PermissionOutcome::Denied(OVER.to_owned()))
    }

    async fn execute_granted(&self, call_id: &str) -> ToolOutcome {
        self.make_allowed(call_id.to_owned(), None).await
    }

    async fn run_with_terminal(&self, errand: TerminalCall, terminal: Arc<Terminal>) -> ToolOutcome {
        match errand {
            TerminalCall::Call(call) => self.make(call, Some(terminal)).await,
            TerminalCall::Granted(call_id) => self.make_allowed(call_id, Some(terminal)).await,
        }
    }

    async fn report_result(&self, call_id: &str, outcome: ToolOutcome) {
        let (told, written) = oneshot::channel();
        if self.wishes.send(BackendRequest::Report(call_id.to_owned(), outcome, told)).await.is_ok() {
            // A turn that ended meanwhile has written the call off.
            let _ = written.await;
        }
    }
}
