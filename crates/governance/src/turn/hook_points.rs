//! The points at which a session calls the hooks of the operator.

use tokio_util::sync::CancellationToken;
use tribune_config::hook_spec::HookPoint;
use tribune_constitution::Trust;
use tribune_ledger::Cid;
use tribune_runtime::{ErrorKind, RuntimeError, ToolOutcome};

use super::Governance;
use super::turn_recorder::{LedgerCall, TurnRecorder};
use crate::gate::PolicyContext;
use crate::gate::hooks::{HookEvent, HookSubject};

impl Governance {
    /// Asks the hooks whether a turn may start, and which trust level its input has.
    pub(super) async fn ask_hooks(
        &self,
        context: &PolicyContext,
        text: &str,
        trust: Trust,
        cancel: &CancellationToken,
    ) -> Result<Trust, RuntimeError> {
        let hooks = &self.policy.gate.hooks;
        let who = HookSubject::of(context);
        let law = self.policy.gate.law.hash().to_string();
        let asking = async {
            if let Some(veto) = hooks.before_agent_start(&who, context.mandate(), &law).await {
                let what = format!("the hook `{}` refuses the turn: {}", veto.by, veto.reason);
                return Err(RuntimeError::new(ErrorKind::Refused, what));
            }
            Ok(hooks.message_received(&who, text, trust).await)
        };
        tokio::select! {
            biased;
            // Without hooks, a turn that is cancelled early starts and ends like any other.
            asked = asking => asked,
            () = cancel.cancelled() => {
                Err(RuntimeError::new(ErrorKind::Cancelled, "the turn was cancelled before it began"))
            }
        }
    }

    /// Notifies the hooks of the result of a call.
    pub(super) fn notify_after_call(
        &self,
        context: &PolicyContext,
        recorded: &LedgerCall,
        outcome: &ToolOutcome,
    ) {
        if !self.policy.gate.hooks.has(HookPoint::AfterToolCall) {
            return;
        }
        let event = HookEvent::AfterToolCall {
            who: &HookSubject::of(context),
            tool_name: &recorded.call.name,
            tool_call_id: &recorded.call.id,
            result: &outcome.content,
            is_error: outcome.is_error,
        };
        self.policy.gate.hooks.tell(HookPoint::AfterToolCall, &event);
    }
}

impl TurnRecorder {
    /// Notifies the hooks that a result is recorded.
    pub(super) fn notify_result_recorded(&self, recorded: &LedgerCall, outcome: &ToolOutcome, entry: Cid) {
        let hooks = &self.governance.policy.gate.hooks;
        if !hooks.has(HookPoint::ToolResultPersist) {
            return;
        }
        let event = HookEvent::ToolResultPersist {
            who: &HookSubject::of(&self.writer.context),
            tool_name: &recorded.call.name,
            tool_call_id: &recorded.call.id,
            is_error: outcome.is_error,
            cid: entry.to_string(),
        };
        hooks.tell(HookPoint::ToolResultPersist, &event);
    }
}
