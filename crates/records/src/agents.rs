//! Agent ids that mean something to the daemon itself: callers outside the roster, what an operator runs, canaries.

use tribune_runtime::AgentId;

/// The id of callers without a proved key.
pub const ANONYMOUS: &str = "anonymous";

/// How the id of a caller begins whose proved key is not in the roster.
pub const UNREGISTERED: &str = "stranger-";

/// The agent of what an operator runs in a sandbox, which takes no turns.
pub const RUN_AGENT: &str = "run";

/// The backend of sessions in which an operator runs something.
pub const RUN_BACKEND: &str = "run";

/// How the ids of the agents of canaries begin.
pub const CANARY_PREFIX: &str = "tribune-canary-";

/// Whether an id is that of a caller outside the roster. The roster refuses such ids.
pub fn is_unregistered(id: &str) -> bool {
    id == ANONYMOUS || id.starts_with(UNREGISTERED)
}

/// Whether the agent of a session is a canary's, which has no mail, no board and no budget.
pub fn is_canary(agent: &AgentId) -> bool {
    agent.as_str().starts_with(CANARY_PREFIX)
}
