//! What the gate knows of a session when it decides: its mandates, its tools, its labels and its folders. Decides nothing.

use std::sync::Arc;

use tribune_constitution::{Labels, Veto};
use tribune_records::agents::PrincipalTier;
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::SessionKey;
use tribune_storage::store::SessionRow;

/// Name of the veto against a tool that a sub-agent was not given.
const NARROWED: &str = "spawn.narrowed";

/// What the gate knows of a session.
#[derive(Debug, Clone)]
pub struct PolicyContext {
    pub key: Arc<SessionKey>,
    /// The class of the principal that opened it.
    pub(crate) tier: PrincipalTier,
    /// Its own mandate, then those of its ancestors.
    pub(crate) mandates: Vec<String>,
    /// The only tools it may use, if its parent restricted them.
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) labels: Labels,
    /// Its workspace folders.
    pub ground: WorkspaceRoots,
}

impl PolicyContext {
    /// The context of a session in the ledger. `None` if its key is invalid.
    pub fn of(row: &SessionRow) -> Option<Self> {
        let key: Arc<SessionKey> = Arc::new(row.key.parse().ok()?);
        Some(Self {
            ground: row.ground(key.agent()),
            tier: row.tier(),
            key,
            mandates: row.mandates().collect(),
            tools: row.inherited.tools.clone(),
            labels: row.labels,
        })
    }

    /// Its workspace folders.
    pub fn ground(&self) -> WorkspaceRoots {
        self.ground.clone()
    }

    /// Its own mandate.
    pub(crate) fn mandate(&self) -> &str {
        self.mandates.first().map_or("", String::as_str)
    }

    /// The veto against a tool that the session was not given when it was started.
    pub(super) fn tool_restriction(&self, tool: &str) -> Option<Veto> {
        let tools = self.tools.as_ref()?;
        let is_given = tools.iter().any(|given| given == tool);
        let reason = "this sub-agent was started with other tools: do without, or leave it to who started it";
        (!is_given).then(|| Veto::new(NARROWED, reason))
    }
}
