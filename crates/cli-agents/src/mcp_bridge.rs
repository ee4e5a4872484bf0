//! MCP servers that the host runs for a session, as its agent sees them: their addresses, and the channel through which
//! a call of one of their tools reaches the running turn.
//!
//! The host speaks MCP with the agent and knows nothing of turns; the turn knows nothing of MCP. While no turn runs,
//! every call is refused.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use tribune_runtime::ToolOutcome;

/// Calls that wait for their turn.
const QUEUE: usize = 16;

/// The result of a call while no turn takes it.
const NO_TURN: &str = "no turn is running: nothing is done";

/// The result of a call whose turn ended first.
const OVER: &str = "the turn is over: the result of this call is not used any more";

/// The result of a call when the queue is full.
pub(crate) const TOO_MUCH: &str = "too much is asked at once: nothing is done";

/// The MCP servers of a session, as its agent gets them.
#[derive(Debug, Clone)]
pub struct SessionMcpServers {
    pub all: Vec<ServerEndpoint>,
    /// Their tools, by the names that the host has for them.
    pub tools: Vec<String>,
    pub channel: Arc<McpCallChannel>,
    /// Distinguishes these servers from others that the session had before, or will have. Never 0, which stands for
    /// none.
    pub generation: u64,
}

/// A server that the host runs, as an agent reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEndpoint {
    pub name: String,
    pub url: String,
}

impl ServerEndpoint {
    /// The server in ACP's `mcpServers`.
    pub(crate) fn acp(&self) -> Value {
        json!({ "type": "http", "name": self.name, "url": self.url, "headers": [] })
    }
}

/// Hands calls of the servers' tools to the running turn.
#[derive(Debug, Default)]
pub struct McpCallChannel {
    turn: Mutex<Option<mpsc::Sender<PendingMcpCall>>>,
}

/// A call of a server's tool that waits for its result.
#[derive(Debug)]
pub struct PendingMcpCall {
    /// By the name that the host has for it.
    pub tool: String,
    pub arguments: Value,
    pub result: oneshot::Sender<ToolOutcome>,
}

impl McpCallChannel {
    /// Hands a call to the running turn, by the host's name for the tool, and waits for its result. The turn has the
    /// call judged, and the end of the turn ends the wait.
    pub async fn call(&self, tool: String, arguments: Value) -> ToolOutcome {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (answer, outcome) = oneshot::channel();
        let Some(turn) = turn else { return ToolOutcome::error(NO_TURN) };
        match turn.try_send(PendingMcpCall { tool, arguments, result: answer }) {
            Ok(()) => {
                // A call that waits does not keep the turn's end of the channel open.
                drop(turn);
                outcome.await.unwrap_or_else(|_| ToolOutcome::error(OVER))
            }
            Err(mpsc::error::TrySendError::Full(_)) => ToolOutcome::error(TOO_MUCH),
            Err(mpsc::error::TrySendError::Closed(_)) => ToolOutcome::error(NO_TURN),
        }
    }

    /// Opens the channel for a turn, until the receiver is dropped.
    pub fn open(&self) -> mpsc::Receiver<PendingMcpCall> {
        let (turn, calls) = mpsc::channel(QUEUE);
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(turn);
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_reaches_the_running_turn_only() {
        let channel = Arc::new(McpCallChannel::default());
        let call = |tool: &str| {
            let (channel, tool) = (Arc::clone(&channel), tool.to_owned());
            tokio::spawn(async move { channel.call(tool, json!({})).await })
        };
        assert_eq!(call("before").await.unwrap(), ToolOutcome::error(NO_TURN));
        let mut turn = channel.open();
        let waiting = call("within");
        let pending = turn.recv().await.unwrap();
        assert_eq!(pending.tool, "within");
        pending.result.send(ToolOutcome::good("done")).unwrap();
        assert_eq!(waiting.await.unwrap(), ToolOutcome::good("done"));
        // One call was taken by the turn, and one was not.
        let looked_at = call("looked at");
        let pending = turn.recv().await.unwrap();
        let unseen = call("unseen");
        while turn.is_empty() {
            tokio::task::yield_now().await;
        }
        drop((pending, turn));
        assert_eq!(looked_at.await.unwrap(), ToolOutcome::error(OVER));
        assert_eq!(unseen.await.unwrap(), ToolOutcome::error(OVER));
        assert_eq!(call("after").await.unwrap(), ToolOutcome::error(NO_TURN));
    }

    #[tokio::test]
    async fn l9_waiting_calls_are_bounded() {
        let channel = Arc::new(McpCallChannel::default());
        let turn = channel.open();
        let waiting: Vec<_> = (0..QUEUE)
            .map(|_| {
                let channel = Arc::clone(&channel);
                tokio::spawn(async move { channel.call("x".to_owned(), json!({})).await })
            })
            .collect();
        while turn.len() < QUEUE {
            tokio::task::yield_now().await;
        }
        assert_eq!(channel.call("x".to_owned(), json!({})).await, ToolOutcome::error(TOO_MUCH));
        drop(turn);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), ToolOutcome::error(OVER));
        }
    }
}
