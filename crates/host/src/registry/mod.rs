//! The three plain files that agents meet in, each of which a person can open in an editor.
//!
//! [`roster`] says who there is, [`mailbox`] holds what they write to each other, [`board`] what everyone may see. The
//! files are read and written here and judged elsewhere: whether an agent may send, or what a letter's word is worth, is
//! for the law to say. Everything in here blocks on the disk; from async code, call it on a blocking thread.

mod agents;
mod approvers;
pub mod board;
mod lines;
pub mod mailbox;
pub mod roster;

use tribune_agents::provider::ModelRef;
use tribune_agents::{native, rehearsal};
use tribune_redact::Redactor;

pub use agents::Agents;
pub use approvers::{Approvers, ApproversError};
pub use board::{Board, BoardError};
pub use mailbox::{Letter, Mailbox, MailboxError, Sent};
pub use roster::{ANONYMOUS, DEFAULT_ROSTER, Roster, RosterAgent, RosterError, STRANGER};

/// The agent that a fresh home has.
pub const MAIN_AGENT: &str = "main";

/// Runs agents that nobody gave another backend.
pub const DEFAULT_BACKEND: &str = rehearsal::BACKEND;

/// What can run turns without anything being brought along.
pub const BACKENDS: [&str; 2] = [rehearsal::BACKEND, native::BACKEND];

/// What runs the turns of an agent that is added. A model is for the backend that talks to models, so naming one is enough; a
/// name that would be ignored is refused with a sentence.
pub fn backend_for(backend: Option<String>, model: Option<&str>) -> Result<String, String> {
    let Some(model) = model else { return Ok(backend.unwrap_or_else(|| DEFAULT_BACKEND.to_owned())) };
    if Redactor::new().finds(model) {
        let what = "the model looks like a key: write provider:model, and put the key into the environment";
        return Err(what.to_owned());
    }
    let backend = backend.unwrap_or_else(|| native::BACKEND.to_owned());
    if backend == rehearsal::BACKEND {
        return Err(format!(
            "the backend `{backend}` has no model behind it: leave out the model, or name the backend `{}`",
            native::BACKEND
        ));
    }
    if backend == native::BACKEND {
        model.parse::<ModelRef>().map_err(|error| error.to_string())?;
    }
    Ok(backend)
}
