//! What the host gives to these backends: a running agent, and a place to remember its conversation in.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::mcp_bridge::Servers;
use crate::profile::Profile;
use tribune_runtime::{Handle, RuntimeError};

/// Starts agents. Each is in a box of its own, and what it can do there is the host's to bound.
#[async_trait]
pub trait Spawner: Send + Sync {
    /// Whether an agent could be started for the session, without starting one.
    fn check(&self, session: &Handle) -> Result<(), RuntimeError>;

    /// Starts the agent of a session.
    async fn spawn(&self, session: &Handle) -> Result<Spawned, RuntimeError>;

    /// Whether the session's agent counts among those that may run at once.
    fn needs_room(&self, _session: &Handle) -> bool {
        true
    }

    /// The edition of the MCP servers that the session has; 0 if it has none. An agent that was started with others is started anew.
    fn servers_of(&self, _session: &Handle) -> u64 {
        0
    }

    /// Keeps the agent's own name for the conversation, so that it can be taken up after a restart.
    fn remember(&self, session: &Handle, conversation: &str);

    /// Forgets that name: the agent does not know it any more.
    fn forget(&self, session: &Handle);

    /// Names that came into the session's workspace, or were changed there, since this was last asked or the agent was first
    /// started, and that programs of this machine obey.
    async fn obeyed(&self, session: &Handle) -> Vec<String>;

    /// Keeps the newest of what the agent said on its standard error.
    fn keep_stderr(&self, session: &Handle, said: &str);
}

/// An agent that runs.
pub struct Spawned {
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    pub process: Box<dyn Process>,
    pub census: Arc<dyn Census>,
    pub profile: Profile,
    /// The workspace, as it is called inside.
    pub workspace: String,
    /// The agent's name for the conversation of this session before, if there was one.
    pub conversation: Option<String>,
    /// The file at the root of the workspace that has words for agents, if there is one. Nobody has opened it.
    pub instructions: Option<String>,
    /// The MCP servers that the house runs for the session, if it has any.
    pub servers: Option<Servers>,
}

impl std::fmt::Debug for Spawned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawned").field("profile", &self.profile.id()).finish_non_exhaustive()
    }
}

/// Who runs in an agent's box.
pub trait Census: Send + Sync {
    /// How many processes run in it that were started since then. Looks at the machine, which takes milliseconds.
    fn started_since(&self, moment: Instant) -> usize;
}

/// The processes of an agent. Dropping this ends all of them.
#[async_trait]
pub trait Process: Send {
    /// Waits until all of them are gone, and says how that came about: "it ended with code 3".
    async fn ended(&mut self) -> String;

    /// Ends all of them, now.
    async fn kill(&mut self);
}
