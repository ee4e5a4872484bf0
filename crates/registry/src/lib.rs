//! Registry: the plain files that agents share, each of which a person can open in an editor, and the profiles of CLI agents.
//!
//! [`roster`] lists the agents, [`mailbox`] holds the messages between them, [`board`] the notes that all of them see. This
//! crate only reads and writes the files; whether an agent may send, and how far a mailbox message is trusted, is decided by
//! the law. All functions block on the disk; call them from a blocking thread in async code.

mod agents;
mod approvers;
pub mod board;
mod locked_jsonl;
pub mod mailbox;
pub mod profiles;
pub mod roster;

use tribune_cli_agents::{acp, claude_code};
use tribune_providers::ModelRef;
use tribune_redact::Redactor;
use tribune_runtime::{native, rehearsal};
use tribune_storage::home::Home;

use crate::profiles::Profiles;

pub use agents::Agents;
pub use approvers::{Approvers, ApproversError, NewApprover};
pub use board::{Board, BoardError};
pub use mailbox::{Mailbox, MailboxError, MailboxMessage, Sent};
pub use roster::{DEFAULT_ROSTER, Roster, RosterAgent, RosterError};

/// The agent of a new state folder.
pub const MAIN_AGENT: &str = "main";

/// The backend of agents that name none.
pub const DEFAULT_BACKEND: &str = rehearsal::BACKEND;

/// The built-in backends.
pub const BACKENDS: [&str; 4] = [rehearsal::BACKEND, native::BACKEND, acp::BACKEND, claude_code::BACKEND];

/// The backends that run CLI agents, each with a profile.
pub const CLI_BACKENDS: [&str; 2] = [acp::BACKEND, claude_code::BACKEND];

/// The hash of a line that entries about it have.
fn fingerprint(line: &[u8]) -> String {
    blake3::hash(line).to_hex()[..32].to_owned()
}

/// Whether agents of a backend use a configured model.
pub fn asks_a_model(backend: &str) -> bool {
    backend == native::BACKEND || CLI_BACKENDS.contains(&backend)
}

/// The backend and profile of an agent that is added. A model or a profile alone implies the backend; a combination in which
/// one of them would be ignored is an error. Reads the profiles of the state folder.
pub fn backend_for(
    home: &Home,
    backend: Option<String>,
    profile: Option<String>,
    model: Option<&str>,
) -> Result<(String, Option<String>), String> {
    let (backend, profile) = match (backend, profile) {
        (Some(backend), None) if backend == claude_code::BACKEND => {
            (Some(backend), Some(claude_code::PROFILE.to_owned()))
        }
        (Some(backend), None) if backend == acp::BACKEND => {
            return Err(format!(
                "the backend `{backend}` needs a profile: add --profile, as in `--profile claude`"
            ));
        }
        (Some(backend), Some(_)) if !CLI_BACKENDS.contains(&backend.as_str()) => {
            return Err(format!(
                "the backend `{backend}` has no profiles: leave out the backend, because the profile determines it"
            ));
        }
        (backend, Some(id)) => {
            let profiles = Profiles::load(home).map_err(|error| error.to_string())?;
            let protocol = profiles.find(&id)?.protocol();
            if let Some(backend) = backend.filter(|backend| backend != protocol.backend()) {
                return Err(format!(
                    "the profile `{id}` speaks {} and is not for the backend `{backend}`: leave the backend out, or name `{}`",
                    protocol.title(),
                    protocol.backend()
                ));
            }
            (Some(protocol.backend().to_owned()), Some(id))
        }
        (backend, None) => (backend, None),
    };
    Ok((thinking_backend(backend, model)?, profile))
}

/// Checks that the model fits the backend; a model alone implies the native backend.
fn thinking_backend(backend: Option<String>, model: Option<&str>) -> Result<String, String> {
    let Some(model) = model else { return Ok(backend.unwrap_or_else(|| DEFAULT_BACKEND.to_owned())) };
    if Redactor::new().contains_secret(model) {
        let what =
            "the model looks like an API key: write provider:model, and put the key into the environment";
        return Err(what.to_owned());
    }
    let backend = backend.unwrap_or_else(|| native::BACKEND.to_owned());
    if backend == rehearsal::BACKEND {
        return Err(format!(
            "the backend `{backend}` uses no model: leave out the model, or name the backend `{}`",
            native::BACKEND
        ));
    }
    if asks_a_model(&backend) {
        model.parse::<ModelRef>().map_err(|error| error.to_string())?;
    }
    Ok(backend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_implies_its_backend() {
        let home = Home::at("/nonexistent");
        let chosen = |backend: Option<&str>, profile: Option<&str>| {
            let [backend, profile] = [backend, profile].map(|name| name.map(str::to_owned));
            backend_for(&home, backend, profile, None)
        };
        let is = |backend: &str, profile: Option<&str>| Ok((backend.to_owned(), profile.map(str::to_owned)));
        assert_eq!(chosen(None, None), is("rehearsal", None));
        assert_eq!(chosen(None, Some("codex")), is("acp", Some("codex")));
        assert_eq!(chosen(None, Some("claude-code")), is("claude_code", Some("claude-code")));
        assert_eq!(chosen(Some("claude_code"), None), is("claude_code", Some("claude-code")));
        assert_eq!(chosen(Some("acp"), Some("claude")), is("acp", Some("claude")));
        for (backend, profile, why) in [
            (Some("acp"), None, "the backend `acp` needs a profile"),
            (Some("native"), Some("claude"), "the backend `native` has no profiles"),
            (Some("acp"), Some("claude-code"), "the profile `claude-code` speaks stream-json"),
            (Some("claude_code"), Some("codex"), "the profile `codex` speaks ACP"),
            (None, Some("cluade"), "did you mean `claude`?"),
        ] {
            let refused = chosen(backend, profile).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
