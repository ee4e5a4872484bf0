//! Runs turns. A backend implements [`AgentRuntime`]; the governance layer sees only that trait.
//!
//! Where to start reading: [`runtime`] for the trait, [`toolbox`] for what a turn may call, [`event`] for what a turn emits,
//! [`rehearsal`] for the simplest backend, [`native`] for Tribune's own loop over a model.
//!
//! What it does not do: judge or record a call (the host's toolbox does), run CLI agents (`tribune-cli-agents`), or keep
//! anything on disk.

pub mod call_id;
pub mod content;
pub mod error;
pub mod event;
pub mod native;
pub mod rehearsal;
pub mod runtime;
pub mod session;
pub mod session_terms;
pub mod terminal;
pub mod tool;
pub mod toolbox;

pub use content::{ContentBlock, Message, Role};
pub use error::{ErrorKind, RuntimeError};
pub use event::{
    AUTORUN_FILES, EventKind, MESSAGE_CHUNK_META, RuntimeEvent, StopReason, TERMINAL_CREATED,
    THOUGHT_CHUNK_META, Usage,
};
pub use native::NativeBackend;
pub use rehearsal::{RehearsalBackend, Scenes};
pub use runtime::{
    AgentRuntime, EventStream, Handle, Lineage, SessionInput, SideEffects, Speaker, TurnInput,
};
pub use session::{AgentId, CloseReason, SessionKey, SessionMode, SessionState, SessionStatus};
pub use session_terms::SessionTerms;
pub use terminal::Terminal;
pub use tool::{ToolCall, ToolOutcome, ToolSpec};
pub use toolbox::{
    AgentExecutedCall, HostExecutedCall, PermissionOutcome, PermissionTiming, ReportedOutcome, Toolbox,
};
