//! Which agents appear on the board when they check in. The board is small and everyone reads it, so it must not be
//! filled by opening sessions: unregistered agents are not mentioned, and the others at most once per interval.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tribune_ledger::Timestamp;
use tribune_records::agents::{is_canary, is_unregistered};
use tribune_runtime::AgentId;

/// The minimum time between two mentions of the same agent.
const MENTION_EVERY: Duration = Duration::from_secs(60 * 60);

/// Whether the agent appears on the board at all.
pub(super) fn is_on_board(agent: &AgentId) -> bool {
    !is_canary(agent) && !is_unregistered(agent.as_str())
}

/// When the check-in of each agent was last mentioned.
#[derive(Debug, Default)]
pub(super) struct CheckIns(Mutex<HashMap<AgentId, Timestamp>>);

impl CheckIns {
    /// Whether the check-in should be mentioned now. If so, it is counted as mentioned.
    pub(super) fn are_news(&self, agent: &AgentId, now: Timestamp) -> bool {
        if !is_on_board(agent) {
            return false;
        }
        let mut mentioned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if mentioned.get(agent).is_some_and(|at| now < at.plus(MENTION_EVERY)) {
            return false;
        }
        mentioned.insert(agent.clone(), now);
        true
    }
}
