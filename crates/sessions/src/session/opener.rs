//! The principal that opens a session, the terms that it requests, and the terms that result.
//!
//! The roster decides backend, model and mandate; a caller can replace some terms; the others stay as they are stored.
//! Nothing here reads the store or opens a session.

use tribune_constitution::DEFAULT_MANDATE;
use tribune_records::workspace_roots;
use tribune_registry::{CLI_BACKENDS, DEFAULT_BACKEND, RosterAgent};
use tribune_runtime::{SessionMode, SessionTerms, native};

/// The principal that opens a session, and the terms that it requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opener {
    /// Name in the ledger.
    pub name: String,
    /// The public key, if the principal proved one.
    pub pubkey: Option<String>,
    /// Not in the roster: the session gets the default mandate.
    pub is_unregistered: bool,
    pub requested: RequestedTerms,
}

/// The terms that the opener of a session requests. `None` keeps the present one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedTerms {
    pub mode: Option<SessionMode>,
    /// The model of the session, in place of the agent's own.
    pub model: Option<String>,
    pub workspace: Option<String>,
    /// The new list of additional directories, replaced as a whole.
    pub additional_directories: Option<Vec<String>>,
}

/// The terms of the roster for an agent. An unregistered agent gets the default backend and mandate.
pub(super) fn agent_terms(agent: Option<RosterAgent>, is_unregistered: bool) -> Option<SessionTerms> {
    let mode = SessionMode::default();
    match agent {
        Some(agent) => {
            Some(SessionTerms { model: agent.model, ..SessionTerms::new(agent.backend, mode, agent.mandate) })
        }
        None => is_unregistered.then(|| SessionTerms::new(DEFAULT_BACKEND, mode, DEFAULT_MANDATE)),
    }
}

/// The additional directories that a backend supports: none for CLI agents, whose sandboxes mount one workspace.
pub(super) fn supported_directories(backend: &str, additional_directories: Vec<String>) -> Vec<String> {
    if CLI_BACKENDS.contains(&backend) { Vec::new() } else { additional_directories }
}

impl RequestedTerms {
    /// Whether the stored terms of the session are needed to resolve it.
    pub(super) fn needs_stored(&self) -> bool {
        self.mode.is_none() || self.workspace.is_none() || self.additional_directories.is_none()
    }

    /// The terms of a session: `terms` of its agent, those that a session keeps as `stored`, and the requested ones.
    pub(super) fn resolve(self, mut terms: SessionTerms, stored: Option<SessionTerms>) -> SessionTerms {
        if let Some(stored) = stored {
            terms.mode = stored.mode;
            terms.workspace = stored.workspace;
            terms.additional_directories = stored.additional_directories;
        }
        if let Some(model) = self.model {
            terms.backend = native::BACKEND.to_owned();
            terms.model = Some(model);
        }
        terms.mode = self.mode.unwrap_or(terms.mode);
        terms.workspace = self.workspace.or(terms.workspace);
        let directories = self.additional_directories.unwrap_or(terms.additional_directories);
        terms.additional_directories = supported_directories(&terms.backend, directories);
        if let Some(workspace) = &terms.workspace {
            // A new workspace takes precedence over stored directories that overlap it.
            terms
                .additional_directories
                .retain(|folder| !workspace_roots::is_nested(folder.as_ref(), workspace.as_ref()));
        }
        terms
    }
}
