//! Joins calls that the host executes for an agent (commands and MCP calls) to what the agent reported of them: a call
//! with permission runs under that permission, one that was only reported is decided as that call. So there is one
//! decision about a call, whichever way the agent speaks of it, and its later report is known to be executed here.

use crate::normalize::NormalizedCall;
use crate::permissions::{PermissionRequest, PermissionTracker};
use crate::tool_calls::{AskState, JoinRule, PermissionAsk, UpdateError};

/// What the agent said earlier about a call that the host is to execute.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EarlierReport {
    /// It has permission, under this id in the ledger.
    Permitted(String, CallLink),
    /// It was reported without a permission request. This is its id for the ledger.
    Reported(String, CallLink),
    /// The permission request is not decided yet.
    Pending,
    Refused(String),
    Nothing,
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
    /// The agent wants a call executed by the host, in this line.
    pub(crate) fn join(
        &mut self,
        rule: JoinRule,
        wanted: &NormalizedCall,
        line: &str,
    ) -> Result<EarlierReport, UpdateError> {
        if let Some((own, call)) = self.calls.take_permission(rule, wanted) {
            return Ok(EarlierReport::Permitted(own, CallLink { call, ask: None }));
        }
        if let Some(id) = self.calls.reported(rule, wanted, &self.workspace) {
            let number = self.asks;
            self.asks += 1;
            self.calls.asked(&id, PermissionAsk::new(number, vec![wanted.clone()], "", line))?;
            let Some(call) = self.calls.get(&id) else { return Ok(EarlierReport::Nothing) };
            let own = call.ids(&id, 1).concat();
            return Ok(EarlierReport::Reported(own, CallLink { call: id, ask: Some(number) }));
        }
        Ok(match self.calls.ask_state(rule, wanted) {
            Some(AskState::Pending) => EarlierReport::Pending,
            Some(AskState::Refused(why)) => EarlierReport::Refused(why.clone()),
            Some(AskState::Allowed) | None => EarlierReport::Nothing,
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
