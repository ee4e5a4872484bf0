//! Who runs a turn. A backend implements [`AgentRuntime`]; whoever governs it sees only that trait.
//!
//! Where to start reading: [`runtime`] for the trait, [`event`] for what a turn is made of, [`rehearsal`] for the
//! simplest backend there is, [`native`] for our own loop, [`cli_agent`] for agents of others, [`provider`] for the way to
//! a model.

pub mod acp;
pub mod claude_code;
pub mod cli_agent;
pub mod content;
pub mod event;
pub mod native;
mod nearest;
mod plain_words;
pub mod profile;
pub mod provider;
pub mod rehearsal;
pub mod runtime;
pub mod session;
pub mod terminal;

pub use cli_agent::CliBackend;
pub use content::{ContentBlock, Message, Role};
pub use event::{
    AROUND_MESSAGE, AROUND_THOUGHT, EventKind, OBEYED, RuntimeEvent, StopReason, TERMINAL, Usage,
};
pub use native::NativeBackend;
pub use profile::Profile;
pub use rehearsal::{RehearsalBackend, Scenes};
pub use runtime::{
    AgentRuntime, Errand, EventStream, Handle, Leave, Lineage, OwnCall, Reach, RuntimeError, SessionInput,
    Speaker, ToolCall, ToolOutcome, ToolSpec, Toolbox, TurnInput, When,
};
pub use session::{AgentId, CloseReason, SessionKey, SessionMode, SessionState, SessionStatus};
pub use terminal::Terminal;
