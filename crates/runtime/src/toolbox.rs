//! What a turn may call: the tools of the host, and permission for calls that an agent executes itself.

use std::sync::Arc;

use async_trait::async_trait;

use crate::terminal::Terminal;
use crate::tool::{ToolCall, ToolOutcome, ToolSpec};

/// The tools of a turn. The gate judges each call; the call, and its result if it may run, are written to the ledger. The
/// events for all of that appear in the turn's stream without the backend's help.
#[async_trait]
pub trait Toolbox: Send + Sync {
    /// The tools that the agent may be told of.
    fn tools(&self) -> &[ToolSpec];

    /// Requests one call. A denial is an error outcome that the model can explain.
    async fn call(&self, call: ToolCall) -> ToolOutcome;

    /// Requests permission for a call that the agent behind the backend executes itself. The call is judged, recorded and
    /// perhaps parked like any other; the agent may go on only with permission.
    async fn request_permission(&self, call: AgentExecutedCall) -> PermissionOutcome;

    /// Has the host execute a call that has permission, exactly as it was requested. For agents that ask first and then
    /// want the call executed for them.
    async fn execute_granted(&self, call_id: &str) -> ToolOutcome;

    /// Has the host run a command whose output can be read while it runs, and returns when its outcome is on record. The
    /// command is judged and recorded like any other call; its output counts as learned when it begins.
    async fn run_with_terminal(&self, _call: HostExecutedCall, _terminal: Arc<Terminal>) -> ToolOutcome {
        ToolOutcome::error("no commands are run here for others to follow: this one was not started")
    }

    /// Reports what became of a call that had permission. Reports about other calls are ignored.
    async fn report_result(&self, call_id: &str, outcome: ReportedOutcome);
}

/// What became of a call that had permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportedOutcome {
    /// The agent executed it, or may have.
    Executed(ToolOutcome),
    /// It was not executed, and its permission is given back. The reason, as a sentence.
    NotExecuted(String),
}

/// A call that the host is to execute for an agent: a command in a terminal, or a call of an MCP server's tool.
#[derive(Debug, Clone, PartialEq)]
pub enum HostExecutedCall {
    /// A call that is not decided yet.
    Call(ToolCall),
    /// The call of this id, exactly as it was permitted.
    Granted(String),
}

impl HostExecutedCall {
    /// The id of the call in the ledger.
    pub fn id(&self) -> &str {
        match self {
            Self::Call(call) => &call.id,
            Self::Granted(id) => id,
        }
    }
}

/// A call that an agent executes itself.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentExecutedCall {
    /// In the policy's terms.
    pub call: ToolCall,
    /// In the agent's own words, byte by byte as they came.
    pub raw: String,
    pub timing: PermissionTiming,
}

/// When permission for a call of the agent's own is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionTiming {
    /// Before the call: the agent waits for the answer.
    BeforeCall,
    /// During the call, so that no person can be asked first: a call that needs approval is refused.
    DuringCall,
}

/// The answer to a permission request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionOutcome {
    Granted,
    /// The reason, in words that a model can pass on.
    Denied(String),
}
