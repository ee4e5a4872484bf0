//! Joins calls of MCP servers' tools to what the agent reported of them. The host executes such a call, whichever way
//! the agent speaks of it: a call with permission runs under that permission, one that was only reported is decided as
//! that call, and a later report of it is either of an execution here or has no permission.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;

use crate::call_join::{CallLink, EarlierReport};
use crate::mcp_bridge::{PendingMcpCall, SessionMcpServers, TOO_MUCH};
use crate::normalize::NormalizedCall;
use crate::permissions::{PermissionRequest, PermissionTracker};
use crate::tool_calls::{JoinRule, UpdateError};
use tribune_runtime::{TerminalCall, ToolCall, ToolOutcome, Toolbox};

/// Calls of servers' tools that the host executes for an agent at once. Each may wait for a person.
const MAX_AT_ONCE: usize = 16;

/// Executes the MCP calls of one turn.
pub(crate) struct McpCallRunner {
    tools: Arc<dyn Toolbox>,
    /// `None` where the session has no servers, and when the turn takes no more calls.
    handed: Option<mpsc::Receiver<PendingMcpCall>>,
    underway: FuturesUnordered<BoxFuture<'static, FinishedCall>>,
    /// Calls so far that have no other id.
    called: usize,
}

/// A finished call.
pub(crate) struct FinishedCall {
    handed: PendingMcpCall,
    outcome: ToolOutcome,
    link: Option<CallLink>,
}

/// What happens to MCP calls.
pub(crate) enum McpCallEvent {
    Called(PendingMcpCall),
    Finished(FinishedCall),
}

impl McpCallRunner {
    pub(crate) fn new(tools: Arc<dyn Toolbox>, servers: Option<&SessionMcpServers>) -> Self {
        let handed = servers.map(|servers| servers.channel.open());
        Self { tools, handed, underway: FuturesUnordered::new(), called: 0 }
    }

    /// Waits for the next event; for ever if there can be none.
    pub(crate) async fn next(&mut self) -> McpCallEvent {
        let Self { handed, underway, .. } = self;
        let handed = async {
            match handed {
                Some(handed) => handed.recv().await,
                None => None,
            }
        };
        tokio::select! {
            biased;
            // The outcome of a call is known before the next call is looked at.
            Some(came) = underway.next() => McpCallEvent::Finished(came),
            Some(handed) = handed => McpCallEvent::Called(handed),
            else => std::future::pending().await,
        }
    }

    /// Takes no more calls and waits for none: their callers are told so.
    pub(crate) fn end(&mut self) {
        self.handed = None;
        self.underway.clear();
    }

    /// Handles an event.
    pub(crate) fn take<Q: PermissionRequest>(
        &mut self,
        news: McpCallEvent,
        permissions: &mut PermissionTracker<Q>,
    ) -> Result<(), UpdateError> {
        match news {
            McpCallEvent::Called(handed) => self.make(handed, permissions),
            McpCallEvent::Finished(FinishedCall { handed, outcome, link }) => {
                if let Some(link) = link {
                    let PendingMcpCall { tool, arguments, .. } = &handed;
                    permissions.call_started(
                        &link,
                        &NormalizedCall { tool: tool.clone(), input: arguments.clone() },
                    );
                }
                // The caller may be gone.
                let _ = handed.result.send(outcome);
                Ok(())
            }
        }
    }

    /// Executes a call: under the permission for exactly that call, or as a call that is decided now.
    fn make<Q: PermissionRequest>(
        &mut self,
        handed: PendingMcpCall,
        permissions: &mut PermissionTracker<Q>,
    ) -> Result<(), UpdateError> {
        let refuse = |handed: PendingMcpCall, why: &str| {
            let _ = handed.result.send(ToolOutcome::error(why));
            Ok(())
        };
        let wanted = NormalizedCall { tool: handed.tool.clone(), input: handed.arguments.clone() };
        let NormalizedCall { tool: name, input } = wanted.clone();
        if self.underway.len() >= MAX_AT_ONCE {
            permissions.executed.add(wanted);
            return refuse(handed, TOO_MUCH);
        }
        let (errand, link) = match permissions.join(JoinRule::McpCall, &wanted, "")? {
            EarlierReport::Permitted(own, link) => (TerminalCall::Granted(own), Some(link)),
            EarlierReport::Reported(id, link) => {
                (TerminalCall::Call(ToolCall { id, name, input }), Some(link))
            }
            // It was answered here, whatever name the agent's report has for it.
            EarlierReport::Pending => {
                permissions.executed.add(wanted);
                return refuse(
                    handed,
                    "permission for this call is requested and not decided yet: wait for the answer",
                );
            }
            EarlierReport::Refused(why) => {
                permissions.executed.add(wanted);
                return refuse(handed, &why);
            }
            EarlierReport::Nothing => {
                permissions.executed.add(wanted);
                self.called += 1;
                (TerminalCall::Call(ToolCall { id: format!("served-{}", self.called), name, input }), None)
            }
        };
        let tools = Arc::clone(&self.tools);
        self.underway.push(Box::pin(async move {
            let outcome = match errand {
                TerminalCall::Call(call) => tools.call(call).await,
                TerminalCall::Granted(own) => tools.execute_granted(&own).await,
            };
            FinishedCall { handed, outcome, link }
        }));
        Ok(())
    }
}
