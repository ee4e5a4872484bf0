//! Ledger entries about the MCP servers of sessions. Starting and ending the servers is not done here.

use std::sync::Arc;

use tribune_ledger::{Cid, EntryQuality};
use tribune_records::ledger_payloads::McpRecord;
use tribune_runtime::{SessionKey, ToolCall};

use super::out_of_turn::{Denied, OutOfTurn, SideLog};
use crate::gate::Admission;

impl OutOfTurn {
    /// Leave to start a server for a session, once the verdict that allows it is durable. Nobody is asked: whoever brings one is the
    /// person who would be, and waits for an answer.
    pub async fn leave_to_serve(&self, key: &Arc<SessionKey>, call: ToolCall) -> Result<Admission, Denied> {
        self.cross_at_once(key, call).await
    }

    /// Writes down what became of a server, under the verdict that allowed it.
    pub async fn note_server(&self, key: &SessionKey, verdict: Cid, record: &McpRecord) {
        let draft = self.draft_beside(SideLog::Mcp, key, (EntryQuality::Delivery, vec![verdict]), record);
        if let Err(error) = self.ledger.append(&draft).await {
            tracing::warn!(session = %key, %error, "what became of an MCP server could not be written down");
        }
    }
}
