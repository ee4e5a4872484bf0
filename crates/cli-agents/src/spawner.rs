//! What the host provides to these backends: running agents, and a place to keep the ids of their conversations.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::mcp_bridge::SessionMcpServers;
use crate::profile::Profile;
use tribune_runtime::{Handle, RuntimeError};

/// Starts agents. Each runs in a sandbox of its own, which the host configures.
#[async_trait]
pub trait Spawner: Send + Sync {
    /// Whether an agent could be started for the session, without starting one.
    fn check(&self, session: &Handle) -> Result<(), RuntimeError>;

    /// Starts the agent of a session.
    async fn spawn(&self, session: &Handle) -> Result<SpawnedAgent, RuntimeError>;

    /// Whether the session's agent counts toward the limit of running agents.
    fn counts_toward_limit(&self, _session: &Handle) -> bool {
        true
    }

    /// The generation of the session's MCP servers; 0 if it has none. An agent that was started with another generation
    /// is started anew.
    fn mcp_generation(&self, _session: &Handle) -> u64 {
        0
    }

    /// Keeps the agent's own id of the conversation, so that it can be resumed after a restart.
    fn store_conversation_id(&self, session: &Handle, conversation: &str);

    /// Forgets that id: the agent does not know it any more.
    fn forget_conversation_id(&self, session: &Handle);

    /// Autorun files that were added to the session's workspace or changed there since the last call of this, or since
    /// the agent was first started: files that programs of this machine execute or load by name. Those that were added have
    /// another name now. Each is a part of a sentence.
    async fn changed_autorun_files(&self, session: &Handle) -> Vec<String>;

    /// Keeps the end of the agent's standard error.
    fn keep_stderr(&self, session: &Handle, text: &str);
}

/// An agent that was started.
pub struct SpawnedAgent {
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    pub process: Box<dyn AgentProcess>,
    pub process_counter: Arc<dyn ProcessCounter>,
    pub profile: Profile,
    /// The path of the workspace inside the sandbox.
    pub workspace: String,
    /// The agent's own id of the session's earlier conversation, if there was one.
    pub conversation: Option<String>,
    /// The file at the root of the workspace with instructions for agents, if there is one. It was not opened.
    pub instructions: Option<String>,
    /// The MCP servers that the host runs for the session, if it has any.
    pub servers: Option<SessionMcpServers>,
}

impl std::fmt::Debug for SpawnedAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawned").field("profile", &self.profile.id()).finish_non_exhaustive()
    }
}

/// Counts the processes in an agent's sandbox.
pub trait ProcessCounter: Send + Sync {
    /// How many of them were started since `moment`. It reads `/proc`, which takes milliseconds.
    fn started_since(&self, moment: Instant) -> usize;
}

/// The processes of an agent. Dropping this ends all of them.
#[async_trait]
pub trait AgentProcess: Send {
    /// Waits until all of them are gone, and returns how: "it ended with code 3".
    async fn ended(&mut self) -> String;

    /// Ends all of them, now.
    async fn kill(&mut self);
}
