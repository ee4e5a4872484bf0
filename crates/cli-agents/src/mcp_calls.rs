//! Executes the calls of MCP servers' tools that an agent makes during a turn. `call_join` says under which permission; a
//! later report of such a call is either of an execution here or has no permission.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;

use crate::call_join::{CallLink, JoinedCall};
use crate::mcp_bridge::{PendingMcpCall, SessionMcpServers, TOO_MUCH};
use crate::normalize::NormalizedCall;
use crate::permissions::{PermissionRequest, PermissionTracker};
use crate::tool_calls::{JoinRule, UpdateError};
use tribune_runtime::call_id::host_call_id;
use tribune_runtime::{HostExecutedCall, ToolOutcome, Toolbox};

/// Calls of servers' tools that the host executes for an agent at once. Each may wait for a person.
const MAX_AT_ONCE: usize = 16;

/// Executes the MCP calls of one turn.
pub(crate) struct McpCallRunner {
    tools: Arc<dyn Toolbox>,
    /// `None` where the session has no servers, and when the turn takes no more calls.
    pending: Option<mpsc::Receiver<PendingMcpCall>>,
    underway: FuturesUnordered<BoxFuture<'static, FinishedCall>>,
    /// Calls so far that have no other id.
    called: usize,
}

/// A finished call.
pub(crate) struct FinishedCall {
    pending: PendingMcpCall,
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
        let pending = servers.map(|servers| servers.channel.open());
        Self { tools, pending, underway: FuturesUnordered::new(), called: 0 }
    }

    /// Waits for the next event; for ever if there can be none.
    pub(crate) async fn next(&mut self) -> McpCallEvent {
        let Self { pending, underway, .. } = self;
        let pending = async {
            match pending {
                Some(pending) => pending.recv().await,
                None => None,
            }
        };
        tokio::select! {
            biased;
            // The outcome of a call is known before the next call is looked at.
            Some(came) = underway.next() => McpCallEvent::Finished(came),
            Some(pending) = pending => McpCallEvent::Called(pending),
            else => std::future::pending().await,
        }
    }

    /// Takes no more calls and waits for none: their callers are told so.
    pub(crate) fn end(&mut self) {
        self.pending = None;
        self.underway.clear();
    }

    /// Handles an event.
    pub(crate) fn take<Q: PermissionRequest>(
        &mut self,
        event: McpCallEvent,
        permissions: &mut PermissionTracker<Q>,
    ) -> Result<(), UpdateError> {
        match event {
            McpCallEvent::Called(pending) => self.make(pending, permissions),
            McpCallEvent::Finished(FinishedCall { pending, outcome, link }) => {
                if let Some(link) = link {
                    let PendingMcpCall { tool, arguments, .. } = &pending;
                    permissions.call_started(
                        &link,
                        &NormalizedCall { tool: tool.clone(), input: arguments.clone() },
                    );
                }
                // The caller may be gone.
                let _ = pending.result.send(outcome);
                Ok(())
            }
        }
    }

    /// Executes a call: under the permission for exactly that call, or as a call that is decided now.
    fn make<Q: PermissionRequest>(
        &mut self,
        pending: PendingMcpCall,
        permissions: &mut PermissionTracker<Q>,
    ) -> Result<(), UpdateError> {
        let refuse = |pending: PendingMcpCall, why: &str| {
            let _ = pending.result.send(ToolOutcome::error(why));
            Ok(())
        };
        let wanted = NormalizedCall { tool: pending.tool.clone(), input: pending.arguments.clone() };
        if self.underway.len() >= MAX_AT_ONCE {
            permissions.executed.add(wanted);
            return refuse(pending, TOO_MUCH);
        }
        let called = &mut self.called;
        let new_id = || {
            *called += 1;
            host_call_id(&format!("served-{called}"))
        };
        let (call, link) = match permissions.join(JoinRule::McpCall, &wanted, "", new_id)? {
            JoinedCall::Execute(call, link) => (call, link),
            JoinedCall::Refuse(why) => return refuse(pending, &why),
        };
        let tools = Arc::clone(&self.tools);
        self.underway.push(Box::pin(async move {
            let outcome = match call {
                HostExecutedCall::Call(call) => tools.call(call).await,
                HostExecutedCall::Granted(id) => tools.execute_granted(&id).await,
            };
            FinishedCall { pending, outcome, link }
        }));
        Ok(())
    }
}
