//! The tools of one turn, as its backend sees them: a way to ask. Whoever runs the turn answers.

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tribune_agents::{ToolCall, ToolOutcome, ToolSpec, Toolbox};

/// Calls waiting to be looked at; the next one waits in its backend.
pub(super) const CALLS_WAITING: usize = 16;

/// A call and where its outcome goes.
pub(super) struct Asked {
    pub(super) call: ToolCall,
    pub(super) answer: oneshot::Sender<ToolOutcome>,
}

pub(super) struct TurnTools {
    pub(super) specs: Vec<ToolSpec>,
    pub(super) asked: mpsc::Sender<Asked>,
}

#[async_trait]
impl Toolbox for TurnTools {
    fn tools(&self) -> &[ToolSpec] {
        &self.specs
    }

    async fn call(&self, call: ToolCall) -> ToolOutcome {
        let (answer, outcome) = oneshot::channel();
        let over = || ToolOutcome::error("the turn is over: this call was not made");
        if self.asked.send(Asked { call, answer }).await.is_err() {
            return over();
        }
        outcome.await.unwrap_or_else(|_| over())
    }
}
