//! Who gets onto the board by coming and going. The board is small and everyone reads it, so nobody can fill it by opening
//! sessions: strangers are not mentioned, and others once in a while.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tribune_ledger::Timestamp;
use tribune_records::agents::{is_canary, is_unregistered};
use tribune_runtime::AgentId;

/// Between two mentions that an agent checked in.
const MENTION_EVERY: Duration = Duration::from_secs(60 * 60);

/// Whether the board is the agent's business at all.
pub(super) fn is_on_board(agent: &AgentId) -> bool {
    !is_canary(agent) && !is_unregistered(agent.as_str())
}

/// When each agent's checking in was last mentioned.
#[derive(Debug, Default)]
pub struct CheckIns(Mutex<HashMap<AgentId, Timestamp>>);

impl CheckIns {
    /// Whether it is to be mentioned now. If so, that counts as done.
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
