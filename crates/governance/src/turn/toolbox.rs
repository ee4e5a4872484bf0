//! The tools of one turn, as its backend sees them: a way to ask. Whoever runs the turn answers.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tribune_runtime::{Errand, Leave, OwnCall, Terminal, ToolCall, ToolOutcome, ToolSpec, Toolbox, When};

/// Calls waiting to be looked at; the next one waits in its backend.
pub(super) const CALLS_WAITING: usize = 16;

/// What is told to whoever asks after the turn.
const OVER: &str = "the turn is over: this call was not made";

/// What is told to whoever has something carried out that was not allowed.
const NO_LEAVE: &str = "there is no leave for this call: it was not made";

/// What a backend wants of its turn.
pub(super) enum Wish {
    Call(Asked),
    /// A call that its agent has leave for is to be carried out here.
    CarryOut(String, Waiting),
    /// What came of a call that its agent carried out, and who waits for that to be on record.
    Report(String, ToolOutcome, oneshot::Sender<()>),
}

/// A call, how it comes to be asked about, and where its outcome goes.
pub(super) struct Asked {
    pub(super) call: ToolCall,
    pub(super) answer: Answer,
}

/// The backend that waits for what comes of a call which we carry out.
pub(super) struct Waiting {
    pub(super) answer: oneshot::Sender<ToolOutcome>,
    /// Where it watches the call meanwhile, if that is a command.
    pub(super) terminal: Option<Arc<Terminal>>,
}

impl Waiting {
    fn new(terminal: Option<Arc<Terminal>>) -> (Self, oneshot::Receiver<ToolOutcome>) {
        let (answer, outcome) = oneshot::channel();
        (Self { answer, terminal }, outcome)
    }
}

/// Who carries a call out, and what they wait for.
pub(super) enum Answer {
    /// We do; the backend waits for what came of it.
    Outcome(Waiting),
    /// The agent does; it waits for leave.
    Leave { said: String, when: When, answer: oneshot::Sender<Leave> },
}

impl Answer {
    /// Answers that nothing was done. Nobody may be there to hear it.
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

    async fn ask_leave(&self, OwnCall { call, said, when }: OwnCall) -> Leave {
        let (answer, leave) = oneshot::channel();
        let asked = Asked { call, answer: Answer::Leave { said, when, answer } };
        if self.wishes.send(Wish::Call(asked)).await.is_err() {
            return Leave::Refused(OVER.to_owned());
        }
        leave.await.unwrap_or_else(|_| Leave::Refused(OVER.to_owned()))
    }

    async fn carry_out(&self, call_id: &str) -> ToolOutcome {
        self.make_allowed(call_id.to_owned(), None).await
    }

    async fn follow(&self, errand: Errand, terminal: Arc<Terminal>) -> ToolOutcome {
        match errand {
            Errand::Call(call) => self.make(call, Some(terminal)).await,
            Errand::Allowed(call_id) => self.make_allowed(call_id, Some(terminal)).await,
        }
    }

    async fn report(&self, call_id: &str, outcome: ToolOutcome) {
        let (told, written) = oneshot::channel();
        if self.wishes.send(Wish::Report(call_id.to_owned(), outcome, told)).await.is_ok() {
            // A turn that ended meanwhile has written the call off.
            let _ = written.await;
        }
    }
}
