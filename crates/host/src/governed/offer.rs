//! Which tools a turn is told about.

use tribune_agents::{RuntimeError, ToolSpec};
use tribune_constitution::{Mandate, Stage};
use tribune_ledger::Cid;

use super::desk::Desk;
use super::failed;
use crate::approval::action::Files;
use crate::gate::Inquiry;
use crate::tools::HostTools;

/// Step four: each tool of the mandate passes the gate; those that could be called are offered.
pub(super) fn offer(desk: &mut Desk, mandate: &Mandate, turn: Cid) -> Result<Vec<ToolSpec>, RuntimeError> {
    let mut specs = HostTools::specs();
    specs.retain(|spec| mandate.allows(&spec.name));
    let standing = desk.journal.standing.clone();
    let mut offered = Vec::with_capacity(specs.len());
    for spec in specs {
        let inquiry = Inquiry {
            standing: &standing,
            tool: &spec.name,
            stage: Stage::Offer,
            input: None,
            asked: None,
            runs: &Files::default,
            owner_words: &[],
            vetoes: Vec::new(),
            approval: None,
        };
        let judgement = desk.governance.gate.judge(inquiry).map_err(failed)?;
        let (verdict, _) = desk.verdict(judgement, None, vec![turn])?;
        if verdict.is_offered() {
            offered.push(spec);
        }
    }
    Ok(offered)
}
