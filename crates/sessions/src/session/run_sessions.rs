//! Sessions of programs that an operator runs in a sandbox (`tribune run`).

use tribune_constitution::RUN_MANDATE;
use tribune_records::agents::RUN_BACKEND;
use tribune_runtime::{Handle, SessionInput, SessionKey, SessionMode};

use super::session_limit::IfFull;
use super::{IfClosed, SessionError, SessionManager};

impl SessionManager {
    /// Opens the session of a run. The run closes it; the idle reaper does not.
    pub(crate) async fn open_run(&self, key: SessionKey) -> Result<Handle, SessionError> {
        let rostered = self.shared.agents.agent(key.agent());
        let input = SessionInput {
            key,
            mode: SessionMode::Persistent,
            backend: RUN_BACKEND.to_owned(),
            model: None,
            pubkey: None,
            mandate: rostered.map_or_else(|| RUN_MANDATE.to_owned(), |agent| agent.mandate),
            opened_by: "operator".to_owned(),
            lineage: None,
            workspace: None,
            additional_directories: Vec::new(),
        };
        self.open(input, IfClosed::Reopen, IfFull::Refuse).await.map(|session| session.handle().clone())
    }
}
