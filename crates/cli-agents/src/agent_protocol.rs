//! The interface of a protocol: the handshake, and a turn.

use std::sync::Arc;

use async_trait::async_trait;
use tribune_runtime::content::ContentBlock;
use tribune_runtime::{ErrorKind, EventKind, RuntimeError, TurnInput};

use crate::codec::MessageCodec;
use crate::connection::AgentConnection;
use crate::denial_notes::DenialNotes;
use crate::mcp_bridge::{ServerEndpoint, SessionMcpServers};
use crate::profile::Profile;

/// A protocol that agents speak over their standard streams.
#[async_trait]
pub(crate) trait AgentProtocol: MessageCodec {
    /// Performs the handshake with an agent that was just started.
    async fn handshake(
        &self,
        connection: &AgentConnection,
        params: HandshakeParams<'_>,
    ) -> Result<AgentConversation, HandshakeError>;

    /// Begins a turn by sending `prompt`.
    fn begin_turn(
        &self,
        agent: &ConnectedAgent,
        input: &TurnInput,
        prompt: &[ContentBlock],
    ) -> Box<dyn AgentTurn>;
}

/// An agent after its handshake.
#[derive(Clone)]
pub(crate) struct ConnectedAgent {
    pub(crate) connection: AgentConnection,
    pub(crate) profile: Arc<Profile>,
    pub(crate) workspace: Arc<str>,
    pub(crate) conversation: Arc<AgentConversation>,
    /// The MCP servers that the host runs for it.
    pub(crate) servers: Option<SessionMcpServers>,
    /// Reasons of denials that its next prompt begins with.
    pub(crate) denials: DenialNotes,
}

impl ConnectedAgent {
    /// The MCP servers that it was told of.
    pub(crate) fn offered_servers(&self) -> Option<&SessionMcpServers> {
        self.servers.as_ref().filter(|_| self.conversation.servers == McpSupport::Offered)
    }
}

/// The parameters of a handshake.
pub(crate) struct HandshakeParams<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) workspace: &'a str,
    /// The agent's own id of the session's earlier conversation.
    pub(crate) resumable: Option<&'a str>,
    /// MCP servers that the host runs for it.
    pub(crate) servers: &'a [ServerEndpoint],
}

/// The reason for which an agent that was started cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HandshakeError {
    /// It was started to resume a conversation that it does not have, and has to be started again without it.
    CannotResume,
    Failed(RuntimeError),
}

/// A running turn.
#[async_trait]
pub(crate) trait AgentTurn: Send {
    /// Waits for the next step. It is not called again after the last one.
    async fn next(&mut self) -> TurnStep;
}

/// A step of a turn.
#[derive(Debug)]
pub(crate) enum TurnStep {
    Events(Vec<EventKind>),
    /// The agent's own id of the conversation.
    ConversationId(String),
    /// The agent ended the turn, and can be used for the next.
    Ended(Vec<EventKind>, Result<(), RuntimeError>),
    /// The agent executed a call without permission.
    Ungoverned {
        id: String,
        tool: String,
        what: String,
    },
    /// The agent cannot be used any more.
    Failed(RuntimeError),
}

impl TurnStep {
    #[expect(clippy::unnecessary_wraps, reason = "one of several that may say nothing")]
    pub(crate) fn event(kind: EventKind) -> Option<Self> {
        Some(Self::Events(vec![kind]))
    }
}

/// The agent's side of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentConversation {
    /// The agent's own id of it; `None` if the agent tells it with its first turn.
    pub(crate) id: Option<String>,
    pub(crate) began: ResumeState,
    pub(crate) capabilities: PromptCapabilities,
    /// Whether the agent has the session's MCP servers.
    pub(crate) servers: McpSupport,
}

/// Whether an agent has the session's MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum McpSupport {
    /// It was told of all of them.
    Offered,
    /// It supports none that are reached over HTTP.
    Unsupported,
}

/// How the conversation began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResumeState {
    /// There was none before.
    New,
    /// The agent resumed the earlier one.
    Resumed,
    /// There was one before, and the agent does not have it.
    Lost,
}

/// The kinds of content that an agent accepts in a prompt beside text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PromptCapabilities {
    pub(crate) image: bool,
    pub(crate) audio: bool,
    pub(crate) resource: bool,
}

impl PromptCapabilities {
    /// Refuses content of a kind that the agent does not accept.
    pub(crate) fn check(self, content: &[ContentBlock]) -> Result<(), RuntimeError> {
        for block in content {
            let (what, is_taken) = match block {
                ContentBlock::Text { .. } => continue,
                ContentBlock::Image { .. } => ("images", self.image),
                ContentBlock::Audio { .. } => ("audio", self.audio),
                ContentBlock::Resource { .. } => ("attachments", self.resource),
            };
            if !is_taken {
                return Err(RuntimeError::new(
                    ErrorKind::Unsupported,
                    format!("this agent takes no {what}: say it in text"),
                ));
            }
        }
        Ok(())
    }
}
