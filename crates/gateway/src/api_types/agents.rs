//! Agents and their tests.

use serde::{Deserialize, Serialize};
use tribune_storage::store::Heartbeat;
use utoipa::ToSchema;

/// An agent of the roster, or an unregistered one that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct AgentInfo {
    pub(crate) agent_id: String,
    pub(crate) name: Option<String>,
    /// Absent for an unregistered agent.
    pub(crate) backend: Option<String>,
    /// The profile that a CLI agent runs with.
    pub(crate) profile: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) mandate: String,
    /// `ask`, `approve-all`, `approve-reads` or `deny-all`; absent if the roster does not set it.
    pub(crate) mode: Option<String>,
    /// The tools that the mandate allows.
    pub(crate) tools: Vec<String>,
    pub(crate) standing: bool,
    pub(crate) pubkey: Option<String>,
    /// The agents whose messages it gets; `*` stands for all agents of the roster.
    pub(crate) accepts_from: Vec<String>,
    pub(crate) rostered: bool,
    pub(crate) last_seen: Option<String>,
    pub(crate) sessions: u64,
    pub(crate) turns: u64,
}

impl AgentInfo {
    pub(crate) fn seen(mut self, heartbeat: &Heartbeat) -> Self {
        self.last_seen = Some(heartbeat.last_seen.clone());
        self.sessions = heartbeat.sessions;
        self.turns = heartbeat.turns;
        self
    }
}

/// All agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct AgentList {
    pub(crate) agents: Vec<AgentInfo>,
}

/// `agent.show`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentRef {
    pub(crate) agent_id: String,
}

/// `agent.test`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentTest {
    pub(crate) agent_id: String,
    /// The operator has reviewed an action that an agent of this backend or profile executed without permission. If the canary
    /// passes now, its agents run again, even if no probe covers that action. If no canary can be run and `canary.untried`
    /// names the backend or profile, this flag alone is enough.
    #[serde(default)]
    pub(crate) clear_mark: bool,
}

/// `agent.add`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentAdd {
    /// Lowercase letters, digits, `-` and `_`.
    pub(crate) agent_id: String,
    /// A display name.
    pub(crate) name: Option<String>,
    /// Without it: the profile's backend if a profile is given, `native` if a model is given, else `rehearsal`.
    pub(crate) backend: Option<String>,
    /// The profile that a CLI agent runs with, for the backends `acp` and `claude_code`.
    #[serde(default)]
    pub(crate) profile: Option<String>,
    /// `provider:model`, for the backends `native`, `acp` and `claude_code`.
    pub(crate) model: Option<String>,
    /// Without it: `default`.
    pub(crate) mandate: Option<String>,
    /// How calls within its mandate are approved: `ask`, `approve-all`, `approve-reads` or `deny-all`.
    #[serde(default)]
    pub(crate) mode: Option<String>,
    /// Whether its session is opened before the daemon accepts connections, from the next start on.
    #[serde(default)]
    pub(crate) standing: bool,
    /// `ed25519:` and 64 hex digits.
    pub(crate) pubkey: Option<String>,
    /// The agents whose messages it gets: their ids, or `*` for all agents of the roster. Without it: none.
    #[serde(default)]
    pub(crate) accepts_from: Vec<String>,
}

/// `agent.test`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct AgentTested {
    pub(crate) agent_id: String,
    /// `live`, `not_stopped` or `not_tried`.
    pub(crate) outcome: String,
    /// The action that was not stopped, or why it was not tried.
    pub(crate) detail: Option<String>,
    /// An action that an agent of this backend or profile executed without permission, until it is cleared.
    pub(crate) mark: Option<String>,
    /// Why this call cleared such a mark: `tried`, `looked_at`, or `looked_at_untried` if no canary confirms it.
    pub(crate) cleared: Option<String>,
    /// Whether its agents run although the canary could not be tried: `canary.untried` names it, or `canary.every` is off.
    pub(crate) excepted: bool,
    pub(crate) steps: Vec<TestStep>,
    pub(crate) took_ms: u64,
    /// The session that holds its calls and their verdicts.
    pub(crate) session_key: Option<String>,
}

/// A step of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct TestStep {
    pub(crate) step: String,
    pub(crate) ok: bool,
    pub(crate) took_ms: u64,
    pub(crate) detail: Option<String>,
}
