//! Sessions of programs that an operator runs in a sandbox (`tribune run`).

use tribune_constitution::RUN_MANDATE;
use tribune_records::agents::RUN_BACKEND;
use tribune_runtime::{Handle, SessionInput, SessionKey, SessionMode, SessionTerms};

use super::session_limit::IfFull;
use super::{IfClosed, SessionError, SessionManager};

impl SessionManager {
    /// Opens the session of a run. The run closes it; the idle reaper does not.
    pub(crate) async fn open_run(&self, key: SessionKey) -> Result<Handle, SessionError> {
        let rostered = self.shared.agents.agent(key.agent());
        let mandate = rostered.map_or_else(|| RUN_MANDATE.to_owned(), |agent| agent.mandate);
        let input = SessionInput {
            key,
            terms: SessionTerms::new(RUN_BACKEND, SessionMode::Persistent, mandate),
            opened_by: "operator".to_owned(),
            lineage: None,
        };
        self.open(input, IfClosed::Reopen, IfFull::Refuse).await.map(|session| session.handle().clone())
    }
}
