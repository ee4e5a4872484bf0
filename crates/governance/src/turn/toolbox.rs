//! The toolbox of one turn, as its backend sees it: every call is a request, which the code that runs the turn answers.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tribune_runtime::{
    AgentExecutedCall, PermissionOutcome, PermissionTiming, Terminal, TerminalCall, ToolCall, ToolOutcome,
    ToolSpec, Toolbox,
};

/// Requests that wait to be handled; the next one waits in its backend.
pub(super) const CALLS_WAITING: usize = 16;

/// The answer to a request after the end of the turn.
const OVER: &str = "the turn is over: this call was not made";

/// The answer to the execution of a call without permission.
const NO_PERMISSION: &str = "there is no permission for this call: it was not made";

/// A request of a backend to its turn.
pub(super) enum BackendRequest {
    Call(ToolRequest),
    /// The daemon executes a call that the agent has permission for.
    ExecuteGranted(String, PendingOutcome),
    /// The result of a call that the agent executed, and the channel that is told when it is recorded.
    Report(String, ToolOutcome, oneshot::Sender<()>),
}

/// A call, and where its outcome goes.
pub(super) struct ToolRequest {
    pub(super) call: ToolCall,
    pub(super) answer: Responder,
}

/// The backend that waits for the result of a call that the daemon executes.
pub(super) struct PendingOutcome {
    pub(super) answer: oneshot::Sender<ToolOutcome>,
    /// The terminal on which it follows the call, if that is a command.
    pub(super) terminal: Option<Arc<Terminal>>,
}

impl PendingOutcome {
    fn new(terminal: Option<Arc<Terminal>>) -> (Self, oneshot::Receiver<ToolOutcome>) {
        let (answer, outcome) = oneshot::channel();
        (Self { answer, terminal }, outcome)
    }
}

/// Who executes a call, and what they wait for.
pub(super) enum Responder {
    /// The daemon executes it; the backend waits for the result.
    Outcome(PendingOutcome),
    /// The agent executes it; it waits for permission.
    Permission { raw: String, when: PermissionTiming, answer: oneshot::Sender<PermissionOutcome> },
}

impl Responder {
    /// Answers that the call was not executed. The receiver may be gone.
    pub(super) fn refuse(self, outcome: ToolOutcome) {
        match self {
            Self::Outcome(waiting) => drop(waiting.answer.send(outcome)),
            Self::Permission { answer, .. } => drop(answer.send(PermissionOutcome::Denied(outcome.content))),
        }
    }
}

pub(super) struct TurnTools {
    pub(super) specs: Vec<ToolSpec>,
    pub(super) requests: mpsc::Sender<BackendRequest>,
}

impl TurnTools {
    async fn make(&self, call: ToolCall, terminal: Option<Arc<Terminal>>) -> ToolOutcome {
        let (waiting, outcome) = PendingOutcome::new(terminal);
        let request = ToolRequest { call, answer: Responder::Outcome(waiting) };
        if self.requests.send(BackendRequest::Call(request)).await.is_err() {
            return ToolOutcome::error(OVER);
        }
        outcome.await.unwrap_or_else(|_| ToolOutcome::error(OVER))
    }

    async fn make_allowed(&self, call_id: String, terminal: Option<Arc<Terminal>>) -> ToolOutcome {
        let (waiting, outcome) = PendingOutcome::new(terminal);
        if self.requests.send(BackendRequest::ExecuteGranted(call_id, waiting)).await.is_err() {
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

    async fn request_permission(
        &self,
        AgentExecutedCall { call, raw, timing }: AgentExecutedCall,
    ) -> PermissionOutcome {
        let (answer, permission) = oneshot::channel();
        let request = ToolRequest { call, answer: Responder::Permission { raw, when: timing, answer } };
        if self.requests.send(BackendRequest::Call(request)).await.is_err() {
            return PermissionOutcome::Denied(OVER.to_owned());
        }
        permission.await.unwrap_or_else(|_| PermissionOutcome::Denied(OVER.to_owned()))
    }

    async fn execute_granted(&self, call_id: &str) -> ToolOutcome {
        self.make_allowed(call_id.to_owned(), None).await
    }

    async fn run_with_terminal(&self, request: TerminalCall, terminal: Arc<Terminal>) -> ToolOutcome {
        match request {
            TerminalCall::Call(call) => self.make(call, Some(terminal)).await,
            TerminalCall::Granted(call_id) => self.make_allowed(call_id, Some(terminal)).await,
        }
    }

    async fn report_result(&self, call_id: &str, outcome: ToolOutcome) {
        let (recorded, is_recorded) = oneshot::channel();
        if self.requests.send(BackendRequest::Report(call_id.to_owned(), outcome, recorded)).await.is_ok() {
            // A turn that ended meanwhile recorded the call as abandoned.
            let _ = is_recorded.await;
        }
    }
}
