//! The state of the daemon that all interfaces share. What they do with it is in `calls`.

use std::sync::Arc;

use tribune_cli_agents::CliBackend;
use tribune_governance::decider_log::DeciderLog;
use tribune_governance::models::Providers;
use tribune_registry::{Agents, Approvers};
use tribune_sessions::canary::Canaries;
use tribune_sessions::cli_agents::CliAgents;
use tribune_sessions::run::Runs;
use tribune_sessions::session::{SessionError, SessionManager};
use tribune_storage::store::{Readers, Store};
use tribune_tools::mcp::McpServers;

use crate::error::ApiError;
use crate::proxy::Proxy;
use crate::status::Status;

/// State that all interfaces share.
#[derive(Debug)]
pub struct Api {
    pub sessions: SessionManager,
    pub agents: Arc<Agents>,
    pub approvers: Arc<Approvers>,
    /// Records who changes them and the roster.
    pub deciders: Arc<DeciderLog>,
    pub readers: Readers,
    pub store: Arc<Store>,
    pub providers: Arc<Providers>,
    pub status: Arc<Status>,
    pub proxy: Arc<Proxy>,
    pub runs: Arc<Runs>,
    pub canaries: Arc<Canaries>,
    pub cli_agents: Arc<CliAgents>,
    /// The MCP servers of sessions.
    pub mcp: Arc<McpServers>,
    /// The backends of CLI agents, whose sandboxes live between turns.
    pub others: [CliBackend; 2],
}

impl Api {
    /// Refuses new work while the daemon drains. Other requests are still answered.
    pub(crate) fn takes_work(&self) -> Result<(), ApiError> {
        match self.status.draining.is_cancelled() {
            true => Err(SessionError::Draining.into()),
            false => Ok(()),
        }
    }

    /// What is not ready, by name. None of it is secret.
    pub(crate) fn waiting(&self) -> Vec<String> {
        let mut waiting = Vec::new();
        if self.status.draining.is_cancelled() {
            waiting.push("gateway: draining".to_owned());
        }
        if self.sessions.governance().storage.ledger.failure().is_some() {
            waiting.push("ledger: read-only since a disk error".to_owned());
        }
        if self.sessions.vault().failed() {
            waiting.push("vault: read-only since a disk error".to_owned());
        }
        waiting
    }
}
