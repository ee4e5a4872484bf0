//! Where a session's work meets the operator's hooks.

use tokio_util::sync::CancellationToken;
use tribune_config::hook_spec::HookPoint;
use tribune_constitution::Trust;
use tribune_ledger::Cid;
use tribune_runtime::{RuntimeError, ToolOutcome};

use super::Governance;
use super::turn_recorder::{Recorded, TurnRecorder};
use crate::gate::PolicyContext;
use crate::gate::hooks::{HookEvent, HookSubject};

impl Governance {
    /// Asks the hooks whether a turn may begin, and how far its words are to be believed.
    pub(super) async fn ask_hooks(
        &self,
        standing: &PolicyContext,
        (text, trust): (&str, Trust),
        cancel: &CancellationToken,
    ) -> Result<Trust, RuntimeError> {
        let hooks = &self.gate.hooks;
        let who = HookSubject::of(standing);
        let law = self.gate.law.hash().to_string();
        let asking = async {
            if let Some(veto) = hooks.before_agent_start(&who, standing.mandate(), &law).await {
                let what = format!("the hook `{}` refuses the turn: {}", veto.by, veto.reason);
                return Err(RuntimeError::new("refused", what));
            }
            Ok(hooks.message_received(&who, text, trust).await)
        };
        tokio::select! {
            biased;
            // Where nobody has to be asked, a turn that is cancelled early begins and ends like any other.
            asked = asking => asked,
            () = cancel.cancelled() => {
                Err(RuntimeError::new("cancelled", "the turn was cancelled before it began"))
            }
        }
    }

    /// Tells the hooks what came of a call that ran.
    pub(super) fn tell_done(&self, standing: &PolicyContext, recorded: &Recorded, outcome: &ToolOutcome) {
        if !self.gate.hooks.has(HookPoint::AfterToolCall) {
            return;
        }
        let event = HookEvent::AfterToolCall {
            who: &HookSubject::of(standing),
            tool_name: &recorded.call.name,
            tool_call_id: &recorded.call.id,
            result: &outcome.content,
            is_error: outcome.is_error,
        };
        self.gate.hooks.tell(HookPoint::AfterToolCall, &event);
    }
}

impl TurnRecorder {
    /// Tells the hooks that a result is on record.
    pub(super) fn tell_persisted(&self, recorded: &Recorded, outcome: &ToolOutcome, entry: Cid) {
        let hooks = &self.governance.gate.hooks;
        if !hooks.has(HookPoint::ToolResultPersist) {
            return;
        }
        let event = HookEvent::ToolResultPersist {
            who: &HookSubject::of(&self.journal.standing),
            tool_name: &recorded.call.name,
            tool_call_id: &recorded.call.id,
            is_error: outcome.is_error,
            cid: entry.to_string(),
        };
        hooks.tell(HookPoint::ToolResultPersist, &event);
    }
}
