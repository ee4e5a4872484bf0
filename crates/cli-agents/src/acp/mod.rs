//! The Agent Client Protocol: JSON-RPC, one message per line. The crate root starts, keeps and judges the agents.
//!
//! [`wire`] is JSON-RPC; [`handshake`] the handshake; [`turn`] a turn, with [`permission_options`] for the answers to
//! permission requests and [`passthrough_meta`] for metadata beside text. Of the client's methods, files and terminals
//! are offered where the profile says so: both are calls of the host's tools; [`terminal_request`] checks what a
//! terminal is to run, [`terminals`] holds those of a turn.

mod handshake;
mod passthrough_meta;
mod permission_options;
mod terminal_request;
mod terminals;
mod turn;
mod wire;

use async_trait::async_trait;
use serde_json::Value;

use crate::agent_protocol::{
    AgentConversation, AgentProtocol, AgentTurn, ConnectedAgent, HandshakeError, HandshakeParams,
};
use crate::codec::{AgentMessage, CallPhase, MessageCodec};
use crate::connection::AgentConnection;
use crate::profile::Protocol;
use tribune_runtime::TurnInput;
use tribune_runtime::content::ContentBlock;

/// The name of this backend.
pub const BACKEND: &str = Protocol::Acp.backend();

/// Bytes of one line. The longest text line seen from a real agent has 12 kB; images need more.
const MAX_LINE_BYTES: usize = 4 << 20;

/// The method of a permission request.
const ASK: &str = "session/request_permission";

/// The Agent Client Protocol.
pub(crate) struct Acp;

impl MessageCodec for Acp {
    fn protocol(&self) -> Protocol {
        Protocol::Acp
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
        match method {
            ASK => wire::response(id, &permission_options::cancelled()),
            _ => wire::error(id, wire::INTERNAL, "no turn is running: nothing is done"),
        }
    }

    /// A call that begins. A late report of an earlier call is harmless.
    fn is_work(&self, notification: &Value) -> bool {
        let update = &notification["update"];
        match update["sessionUpdate"].as_str() {
            Some("tool_call") => update["kind"] != "think",
            Some("tool_call_update") => update["status"] == "in_progress",
            _ => false,
        }
    }

    fn call<'a>(&self, notification: &'a Value) -> Option<(&'a str, CallPhase)> {
        let update = match notification.get("toolCall") {
            Some(asked) => return Some((asked["toolCallId"].as_str()?, CallPhase::Active)),
            None => &notification["update"],
        };
        let is_call = update["sessionUpdate"].as_str().is_some_and(|kind| kind.starts_with("tool_call"));
        let phase = match update["status"].as_str() {
            None | Some("pending") => CallPhase::Pending,
            Some(_) => CallPhase::Active,
        };
        Some((update["toolCallId"].as_str().filter(|_| is_call)?, phase))
    }
}

#[async_trait]
impl AgentProtocol for Acp {
    async fn handshake(
        &self,
        connection: &AgentConnection,
        params: HandshakeParams<'_>,
    ) -> Result<AgentConversation, HandshakeError> {
        handshake::handshake(connection, params).await.map_err(HandshakeError::Failed)
    }

    fn begin_turn(
        &self,
        agent: &ConnectedAgent,
        input: &TurnInput,
        prompt: &[ContentBlock],
    ) -> Box<dyn AgentTurn> {
        Box::new(turn::AcpTurn::begin(agent, input, prompt))
    }
}
