//! The tools that a turn offers to its backend.

use std::sync::Arc;

use tribune_constitution::{DecisionStage, MCP, Mandate};
use tribune_ledger::Cid;
use tribune_records::approval::action::Files;
use tribune_runtime::{RuntimeError, ToolSpec};

use super::turn_recorder::TurnRecorder;
use crate::gate::AuthorizationRequest;

/// Step 4: each tool of the mandate passes the gate; those that could be called are offered.
pub(super) fn offer(
    recorder: &mut TurnRecorder,
    mandate: &Mandate,
    turn: Cid,
) -> Result<Vec<ToolSpec>, RuntimeError> {
    let mut offered = Vec::new();
    let tools = Arc::clone(&recorder.governance.tools);
    for spec in tools.specs().iter().filter(|spec| mandate.allows(&spec.name)) {
        if is_offered(recorder, &spec.name, turn)? {
            offered.push(spec.clone());
        }
    }
    // All tools of MCP servers count as one tool in the law, until they are called.
    let of_servers = tools.dynamic_specs(&recorder.handle.key);
    if !of_servers.is_empty() && mandate.allows(MCP) && is_offered(recorder, MCP, turn)? {
        offered.extend(of_servers);
    }
    Ok(offered)
}

fn is_offered(recorder: &mut TurnRecorder, tool: &str, turn: Cid) -> Result<bool, RuntimeError> {
    let context = recorder.writer.context.clone();
    let request = AuthorizationRequest {
        context: &context,
        tool,
        stage: DecisionStage::Offer,
        call_id: "",
        input: None,
        original_input: None,
        runs: &|| Some(Files::default()),
        owner_words: None,
        vetoes: Vec::new(),
        approval: None,
    };
    let authorization = recorder.governance.policy.gate.judge(request)?;
    let (verdict, _) = recorder.verdict(authorization, None, vec![turn])?;
    Ok(verdict.is_offered())
}
