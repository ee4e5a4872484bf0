//! Joins calls that the host executes for an agent (commands and MCP calls) to what the agent reported of them: a call
//! with permission runs under that permission, one that was only reported is decided as that call. So there is one
//! decision about a call, whichever way the agent speaks of it, and its later report is known to be executed here.
//!
//! It executes nothing: `acp::terminals` and `mcp_calls` do.

use crate::normalize::NormalizedCall;
use crate::permissions::{PermissionRequest, PermissionTracker};
use crate::tool_calls::{AskState, JoinRule, PermissionAsk, UpdateError};
use tribune_runtime::{HostExecutedCall, ToolCall};

/// What the host does about a call that an agent wants executed.
#[derive(Debug, PartialEq)]
pub(crate) enum JoinedCall {
    /// Execute it, as part of the reported call if there is one.
    Execute(HostExecutedCall, Option<CallLink>),
    /// Refuse it with this sentence.
    Refuse(String),
}

/// The reported call that an executed one is part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallLink {
    /// By the agent's own id.
    call: String,
    /// The permission request that executing it makes, if there was none before.
    ask: Option<usize>,
}

impl<Q: PermissionRequest> PermissionTracker<Q> {
    /// Joins a call that the agent wants the host to execute, in this line, to its reports. `new_id` makes an id for a
    /// call that was not reported.
    pub(crate) fn join(
        &mut self,
        rule: JoinRule,
        wanted: &NormalizedCall,
        line: &str,
        new_id: impl FnOnce() -> String,
    ) -> Result<JoinedCall, UpdateError> {
        if let Some((id, call)) = self.calls.take_permission(rule, wanted) {
            let link = CallLink { call, ask: None };
            return Ok(JoinedCall::Execute(HostExecutedCall::Granted(id), Some(link)));
        }
        if let Some(id) = self.calls.reported(rule, wanted, &self.workspace) {
            let number = self.asks;
            self.asks += 1;
            self.calls.add_ask(&id, PermissionAsk::new(number, vec![wanted.clone()], "", line))?;
            if let Some(call) = self.calls.get(&id) {
                let own = call.ids(&id, 1).concat();
                let link = CallLink { call: id, ask: Some(number) };
                return Ok(JoinedCall::Execute(undecided(own, wanted), Some(link)));
            }
        }
        if rule == JoinRule::McpCall {
            // Its answer settles a later report of it, whatever name that report has for it.
            self.executed.add(wanted.clone());
        }
        Ok(match self.calls.ask_state(rule, wanted) {
            Some(AskState::Pending) => JoinedCall::Refuse(format!(
                "permission for this {} is requested and not decided yet: wait for the answer",
                rule.noun()
            )),
            Some(AskState::Refused(why)) => JoinedCall::Refuse(why.clone()),
            Some(AskState::Allowed) | None => JoinedCall::Execute(undecided(new_id(), wanted), None),
        })
    }

    /// The call runs.
    pub(crate) fn call_started(&mut self, link: &CallLink, wanted: &NormalizedCall) {
        let Some(call) = self.calls.get(&link.call) else { return };
        let ask = call.asks.iter_mut().find(|ask| Some(ask.number) == link.ask);
        if let Some(ask) = ask {
            ask.state = AskState::Allowed;
            call.mark_executed_here(wanted.clone());
        }
    }

    /// The call was not executed: if the agent executes it all the same, it has no permission.
    pub(crate) fn call_not_started(&mut self, link: &CallLink, wanted: &NormalizedCall, why: &str) {
        let Some(call) = self.calls.get(&link.call) else { return };
        call.unmark_executed_here(wanted);
        if let Some(ask) = call.asks.iter_mut().find(|ask| Some(ask.number) == link.ask) {
            ask.state = AskState::Refused(why.to_owned());
        }
    }
}

/// A call that is decided when it is executed.
fn undecided(id: String, wanted: &NormalizedCall) -> HostExecutedCall {
    let NormalizedCall { tool: name, input } = wanted.clone();
    HostExecutedCall::Call(ToolCall { id, name, input })
}
