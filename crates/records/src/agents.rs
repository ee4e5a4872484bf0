//! Agent ids with a meaning for the daemon itself: callers outside the roster, programs that an operator runs, and canaries.

use tribune_runtime::AgentId;

/// The id of anonymous callers, which have proved no key.
pub const ANONYMOUS: &str = "anonymous";

/// The prefix of the id of an unregistered caller, whose proved key is not in the roster.
pub const UNREGISTERED: &str = "stranger-";

/// The agent of a program that an operator runs in a sandbox. It takes no turns.
pub const RUN_AGENT: &str = "run";

/// The backend of sessions in which an operator runs a program.
pub const RUN_BACKEND: &str = "run";

/// The prefix of the ids of canary agents.
pub const CANARY_PREFIX: &str = "tribune-canary-";

/// Whether an id is that of an anonymous or unregistered caller. The roster refuses such ids.
pub fn is_unregistered(id: &str) -> bool {
    id == ANONYMOUS || id.starts_with(UNREGISTERED)
}

/// Whether an agent is a canary. Canaries have no mailbox, no board and no budget.
pub fn is_canary(agent: &AgentId) -> bool {
    agent.as_str().starts_with(CANARY_PREFIX)
}
