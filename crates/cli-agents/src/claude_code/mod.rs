//! Claude Code's own stream-json: `claude -p` with JSON on both streams, one message per line, many turns in one
//! process. The crate root starts, keeps and judges the agents.
//!
//! Besides messages, both sides send each other control requests ([`wire`]). The first of ours ([`handshake`]) installs
//! a hook before each of its tool calls, whatever its own settings say; and it requests permission once more for calls
//! that its settings name. Both are one permission request ([`permission`]). [`turn`] is a turn, with [`stream_dedup`]
//! for text that comes in chunks and again as a whole, and [`tool_kinds`] for the kinds of its tools.

mod handshake;
mod permission;
mod stream_dedup;
mod tool_kinds;
mod turn;
mod wire;

use async_trait::async_trait;
use serde_json::Value;

use crate::agent_protocol::{
    AgentConversation, AgentProtocol, AgentTurn, ConnectedAgent, HandshakeError, HandshakeParams,
};
use crate::codec::{AgentMessage, MessageCodec};
use crate::connection::AgentConnection;
use crate::profile::Protocol;
use tribune_runtime::TurnInput;
use tribune_runtime::content::ContentBlock;

/// The name of this backend.
pub const BACKEND: &str = Protocol::ClaudeStreamJson.backend();

/// The profile of agents of this backend that name none.
pub const PROFILE: &str = "claude-code";

/// Bytes of one line. An image that it read occurs twice in one.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Claude Code's stream-json.
pub(crate) struct ClaudeCode;

impl MessageCodec for ClaudeCode {
    fn protocol(&self) -> Protocol {
        Protocol::ClaudeStreamJson
    }

    fn max_line_bytes(&self) -> usize {
        MAX_LINE_BYTES
    }

    fn parse(&self, line: &str) -> Option<AgentMessage> {
        wire::parse(line)
    }

    fn request(&self, id: u64, method: &str, params: &Value) -> String {
        wire::request(id, method, params)
    }

    fn reject_request(&self, id: &Value, method: &str) -> String {
        permission::refuse(id, method, "no turn is running: nothing is done")
    }

    /// A call that was executed. A call that is only announced is asked about, and refused.
    fn is_work(&self, report: &Value) -> bool {
        turn::results(report).any(|result| result.status() != tool_kinds::ResultStatus::Failed)
    }
}

#[async_trait]
impl AgentProtocol for ClaudeCode {
    async fn handshake(
        &self,
        connection: &AgentConnection,
        params: HandshakeParams<'_>,
    ) -> Result<AgentConversation, HandshakeError> {
        handshake::handshake(self, connection, params).await
    }

    fn begin_turn(
        &self,
        agent: &ConnectedAgent,
        input: &TurnInput,
        prompt: &[ContentBlock],
    ) -> Box<dyn AgentTurn> {
        Box::new(turn::ClaudeTurn::begin(agent, input, prompt))
    }
}
