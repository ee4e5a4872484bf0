//! The services that run turns and agents, and the order in which they are closed. It starts none of them.

use std::sync::Arc;

use tribune_cli_agents::CliBackend;
use tribune_egress::SessionSocketService;
use tribune_sessions::canary::Canaries;
use tribune_sessions::session::SessionManager;
use tribune_tools::mcp::McpServers;

/// The services that the daemon closes when it stops.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) sessions: SessionManager,
    pub(crate) canaries: Arc<Canaries>,
    pub(crate) cli_backends: [CliBackend; 2],
    pub(crate) mcp: Arc<McpServers>,
    pub(crate) socket_service: SessionSocketService,
}

impl Services {
    /// Closes what still runs after all turns have ended.
    pub(crate) async fn close(&self) {
        self.canaries.close().await;
        // Before the sockets are closed, because an agent that is asked to end may still have data to save.
        for backend in &self.cli_backends {
            backend.shutdown().await;
        }
        self.mcp.close().await;
        self.socket_service.close().await;
    }
}
