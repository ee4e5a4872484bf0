//! The old paths of what is now in `tribune-providers`, `tribune-runtime` and `tribune-cli-agents`. New code names those.

pub use tribune_cli_agents::{CliBackend, Profile, acp, claude_code, profile};
pub use tribune_providers as provider;
pub use tribune_runtime::{
    AROUND_MESSAGE, AROUND_THOUGHT, AgentId, AgentRuntime, CloseReason, ContentBlock, Errand, ErrorKind,
    EventKind, EventStream, Handle, Leave, Lineage, Message, NativeBackend, OBEYED, OwnCall, Reach,
    RehearsalBackend, Role, RuntimeError, RuntimeEvent, Scenes, SessionInput, SessionKey, SessionMode,
    SessionState, SessionStatus, Speaker, StopReason, TERMINAL, Terminal, ToolCall, ToolOutcome, ToolSpec,
    Toolbox, TurnInput, Usage, When, content, error, event, native, rehearsal, runtime, session, terminal,
};

/// CLI agents.
pub mod cli_agent {
    pub use tribune_cli_agents::{
        Berths, Census, CliBackend, Handed, Hatch, IDLE, Process, Served, Servers, Spawned, Spawner,
    };
}
