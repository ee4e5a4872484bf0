//! Ledger entries about the MCP servers of sessions. The servers are not started or stopped here.

use std::sync::Arc;
use std::time::Duration;

use tribune_ledger::{Cid, EntryQuality};
use tribune_records::ledger_payloads::McpRecord;
use tribune_runtime::{SessionKey, ToolCall};

use super::out_of_turn::{Denied, OutOfTurn, SideLog};
use crate::gate::Admission;

impl OutOfTurn {
    /// Authorizes the start of a server for a session. Returns the admission when the verdict that allows it is
    /// durable. No person is asked: the person who would decide is the one who provides the server and waits for the
    /// answer.
    pub async fn authorize_mcp_server(
        &self,
        key: &Arc<SessionKey>,
        call: ToolCall,
    ) -> Result<Admission, Denied> {
        self.authorize_without_asking(key, call).await
    }

    /// Authorizes the start of a server whose code changed. A person decides, within `wait`.
    pub async fn authorize_changed_mcp_server(
        &self,
        key: &Arc<SessionKey>,
        call: ToolCall,
        wait: Duration,
    ) -> Result<Admission, Denied> {
        self.authorize(key, None, call, Vec::new(), wait, std::future::pending()).await
    }

    /// Records the state of a server, under the verdict that allowed it.
    pub async fn record_mcp_server(&self, key: &SessionKey, verdict: Cid, record: &McpRecord) {
        let draft = self.side_log_draft(SideLog::Mcp, key, EntryQuality::Delivery, vec![verdict], record);
        if let Err(error) = self.storage.ledger.append(&draft).await {
            tracing::warn!(session = %key, %error, "the state of an MCP server could not be recorded");
        }
    }
}
