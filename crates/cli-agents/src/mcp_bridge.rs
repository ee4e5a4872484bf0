//! MCP servers that the house runs for a session, as its agent has them: where it reaches each, and the hatch through which a call of
//! one of their tools comes into the turn that runs.
//!
//! The host speaks MCP with the agent and knows nothing of turns; the turn knows nothing of MCP. While none runs, every call is refused.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use tribune_runtime::ToolOutcome;

/// Calls that wait to be looked at by their turn.
const QUEUE: usize = 16;

/// What is answered to a call that nobody takes.
const NO_TURN: &str = "no turn is running: nothing is done";

/// What is answered to a call whose turn ended before it was over.
const OVER: &str = "the turn is over: nobody waits for this call any more";

/// What is answered where too much waits.
pub(crate) const TOO_MUCH: &str = "too much is asked at once: nothing is done";

/// The servers of a session, as its agent is given them.
#[derive(Debug, Clone)]
pub struct Servers {
    pub all: Vec<Served>,
    /// Their tools, as the house calls them.
    pub tools: Vec<String>,
    pub hatch: Arc<Hatch>,
    /// Tells these servers from others that the session had before, or will have. Never 0, which is none.
    pub edition: u64,
}

/// A server of the house's, as an agent reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    pub name: String,
    pub url: String,
}

impl Served {
    /// As ACP tells an agent of it.
    pub(crate) fn acp(&self) -> Value {
        json!({ "type": "http", "name": self.name, "url": self.url, "headers": [] })
    }
}

/// Where calls of the servers' tools are handed to the turn that runs.
#[derive(Debug, Default)]
pub struct Hatch {
    turn: Mutex<Option<mpsc::Sender<Handed>>>,
}

/// A call of a server's tool, as the agent makes it.
#[derive(Debug)]
pub struct Handed {
    /// As the house calls it.
    pub tool: String,
    pub arguments: Value,
    pub answer: oneshot::Sender<ToolOutcome>,
}

impl Hatch {
    /// Hands a call to the turn that runs, by the house's name for the tool, and waits for what comes of it. It is the turn that has
    /// it judged, and an end of the turn that ends the waiting.
    pub async fn call(&self, tool: String, arguments: Value) -> ToolOutcome {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (answer, outcome) = oneshot::channel();
        let Some(turn) = turn else { return ToolOutcome::error(NO_TURN) };
        match turn.try_send(Handed { tool, arguments, answer }) {
            Ok(()) => {
                // Whoever waits here does not keep the hatch of the turn open.
                drop(turn);
                outcome.await.unwrap_or_else(|_| ToolOutcome::error(OVER))
            }
            Err(mpsc::error::TrySendError::Full(_)) => ToolOutcome::error(TOO_MUCH),
            Err(mpsc::error::TrySendError::Closed(_)) => ToolOutcome::error(NO_TURN),
        }
    }

    /// Opens it for a turn, until what is returned is dropped.
    pub fn open(&self) -> mpsc::Receiver<Handed> {
        let (turn, handed) = mpsc::channel(QUEUE);
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(turn);
        handed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_is_for_the_turn_that_runs() {
        let hatch = Arc::new(Hatch::default());
        let call = |tool: &str| {
            let (hatch, tool) = (Arc::clone(&hatch), tool.to_owned());
            tokio::spawn(async move { hatch.call(tool, json!({})).await })
        };
        assert_eq!(call("before").await.unwrap(), ToolOutcome::error(NO_TURN));
        let mut turn = hatch.open();
        let waiting = call("within");
        let handed = turn.recv().await.unwrap();
        assert_eq!(handed.tool, "within");
        handed.answer.send(ToolOutcome::good("done")).unwrap();
        assert_eq!(waiting.await.unwrap(), ToolOutcome::good("done"));
        // One that was looked at, and one that was not.
        let looked_at = call("looked at");
        let handed = turn.recv().await.unwrap();
        let unseen = call("unseen");
        while turn.is_empty() {
            tokio::task::yield_now().await;
        }
        drop((handed, turn));
        assert_eq!(looked_at.await.unwrap(), ToolOutcome::error(OVER));
        assert_eq!(unseen.await.unwrap(), ToolOutcome::error(OVER));
        assert_eq!(call("after").await.unwrap(), ToolOutcome::error(NO_TURN));
    }

    #[tokio::test]
    async fn l9_what_waits_is_bounded() {
        let hatch = Arc::new(Hatch::default());
        let turn = hatch.open();
        let waiting: Vec<_> = (0..QUEUE)
            .map(|_| {
                let hatch = Arc::clone(&hatch);
                tokio::spawn(async move { hatch.call("x".to_owned(), json!({})).await })
            })
            .collect();
        while turn.len() < QUEUE {
            tokio::task::yield_now().await;
        }
        assert_eq!(hatch.call("x".to_owned(), json!({})).await, ToolOutcome::error(TOO_MUCH));
        drop(turn);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), ToolOutcome::error(OVER));
        }
    }
}
