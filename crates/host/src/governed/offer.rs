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
    let standing = desk.journal.standing.clone();
    let mut offered = Vec::new();
    for spec in HostTools::specs().iter().filter(|spec| mandate.allows(&spec.name)) {
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
            offered.push(spec.clone());
        }
    }
    Ok(offered)
}
