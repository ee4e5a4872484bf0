//! Agents of others: programs that run by themselves in a box and are spoken with over their standard streams. Whatever of that
//! does not depend on the protocol is here; [`crate::acp`] and [`crate::claude_code`] are the two protocols.
//!
//! This decides nothing. What an agent asks leave for is put to its turn's toolbox in the house's words ([`house_words`]). What it
//! does without asking is put there too, when it tells of it; what would not have been allowed ends the turn as ungoverned. An
//! agent that keeps silent about what it does is bounded by its box alone.
//!
//! [`spawner`] is what the host brings; [`tongue`] what a protocol brings; [`pool`] keeps one agent for each session, [`berths`] how many there are; [`link`] is a
//! pair of pipes to one, with [`lines`] below; [`leaves`] the questions of a turn, with [`calls`] its calls, [`commands`] those of them that the house runs and [`served`] those of MCP servers, which
//! [`servers`] hands over; [`instructions`] what the workspace has to say to agents; [`backend`] puts them together.

pub(crate) mod backend;
mod berths;
pub(crate) mod calls;
pub(crate) mod commands;
pub(crate) mod house_words;
mod instructions;
pub(crate) mod leaves;
mod lines;
pub(crate) mod link;
mod patch;
mod places;
pub(crate) mod pool;
pub(crate) mod served;
pub(crate) mod servers;
mod shortened;
mod spawner;
pub(crate) mod tongue;

pub use backend::{CliBackend, IDLE};
pub use berths::Berths;
pub use servers::{Handed, Hatch, Served, Servers};
pub use spawner::{Census, Process, Spawned, Spawner};

/// Bytes of what an agent says that has no event of its own, and is handed on as it came.
const MAX_UPDATE_BYTES: usize = 256 << 10;

/// What has no event of its own, as it came; if it is too long for one, shortened.
pub(crate) fn handed_on(kind: &str, line: &str) -> Option<crate::EventKind> {
    let kind = kind.chars().filter(|c| !c.is_control()).take(64).collect();
    let line = match line.len() <= MAX_UPDATE_BYTES {
        true => line.to_owned(),
        false => shortened::shortened(line, MAX_UPDATE_BYTES)?,
    };
    Some(crate::EventKind::AgentUpdate { kind, line })
}
