//! Agent ids with a meaning for the daemon itself: callers outside the roster, programs that an operator runs, and canaries.

use tribune_runtime::AgentId;

/// The id of anonymous callers, which have proved no key.
pub const ANONYMOUS: &str = "anonymous";

/// The prefix of the id of an unregistered caller, whose proved key is not in the roster.
pub const UNREGISTERED: &str = "stranger-";

/// The credential of a session that was opened with a gate pass, where other sessions have the agent's public key.
pub const GATE_PASS: &str = "pass";

/// The class of a principal. Each class has quotas of its own, so that no class can use up what another one needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrincipalTier {
    Operator,
    /// An approver, or an agent of the roster that acts by itself: with its key or a pass.
    Member,
    /// Any other caller.
    Guest,
}

impl PrincipalTier {
    /// The class of the principal that opened a session. `credential` is the key or pass that it proved.
    pub fn of_session(agent: &str, credential: Option<&str>) -> Self {
        match credential {
            _ if is_unregistered(agent) => Self::Guest,
            Some(_) => Self::Member,
            None => Self::Operator,
        }
    }
}

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
