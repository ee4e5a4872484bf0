//! Runs turns with CLI agents: programs that run in a sandbox and are spoken to over their standard streams. What does
//! not depend on the protocol is at the top; [`acp`] and [`claude_code`] are the two protocols.
//!
//! This crate decides nothing. Every permission request of an agent goes to the toolbox of its turn, as a tool call in
//! the policy's terms (`normalize`). A call that the agent reports without having asked goes there too; one that the
//! law would not have allowed ends the turn as ungoverned. An agent that keeps silent about what it does is bounded by
//! its sandbox alone.
//!
//! Where to start reading: `backend` runs a turn, with `spawner` for what the host brings and `agent_protocol` for what
//! a protocol brings. `pool` keeps one process for each session, `process_limit` bounds how many run, `connection` is
//! the pair of pipes to one, with `codec` for their lines. `permissions` tracks the permission requests of a turn,
//! `tool_calls` its calls, `call_join` the calls that the host executes for the agent, and `mcp_calls` those of MCP
//! servers' tools, which reach the turn through `mcp_bridge`. `project_instructions` reads what the workspace says to
//! agents, and `denial_notes` what an agent could not be told at once. [`profile`] describes an agent as data.

pub mod acp;
mod agent_protocol;
mod backend;
mod call_join;
pub mod claude_code;
mod codec;
mod connection;
mod denial_notes;
mod escape_prompt;
mod executed_calls;
mod mcp_bridge;
mod mcp_calls;
mod mcp_tool_names;
mod normalize;
mod passthrough;
mod patch_check;
mod paths;
mod permissions;
mod pool;
mod process_limit;
pub mod profile;
mod project_instructions;
mod spawner;
mod tool_calls;
mod truncate;

pub use backend::{CliBackend, IDLE_TIMEOUT};
pub use mcp_bridge::{McpCallChannel, PendingMcpCall, ServerEndpoint, SessionMcpServers};
pub use process_limit::ProcessLimit;
pub use profile::Profile;
pub use spawner::{AgentProcess, ProcessCounter, SpawnedAgent, Spawner};
