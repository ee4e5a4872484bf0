//! Network access for a command that an agent runs (`exec`). The command gets it for as long as it runs, and only if every
//! mandate of its session includes `egress`.

use tribune_config::egress_rules::EgressRule;
use tribune_constitution::EGRESS;
use tribune_governance::gate::{CallEnd, PolicyContext};
use tribune_records::exec::EXEC;
use tribune_records::outcome::{Access, Resource};
use tribune_runtime::SessionKey;
use tribune_storage::store::StoreError;

use super::{AllowedEgress, SessionSocketError, SessionSocketService, SessionSockets};

/// The network access of one command. Dropping it closes the sockets and every connection.
#[derive(Debug)]
pub struct EgressLease {
    pub sockets: SessionSockets,
    /// The user that the command runs as, if that is not the daemon's own user.
    pub user: Option<u32>,
    /// The allowlist of the command's agent.
    pub allowlist: Vec<EgressRule>,
}

/// Why the network access of a command could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum EgressLeaseError {
    #[error(transparent)]
    Sockets(#[from] SessionSocketError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SessionSocketService {
    /// Opens the network access of a session's next command. Returns `None` if the session has no `egress`.
    pub async fn open_for_command(
        &self,
        session: &SessionKey,
    ) -> Result<Option<EgressLease>, EgressLeaseError> {
        let egress = &self.0.egress;
        let (gate, name) = (&egress.out_of_turn.gate, session.to_string());
        let row = egress.out_of_turn.storage.readers.read(move |reader| reader.session(&name)).await?;
        let Some(row) = row.filter(|row| gate.allows_tool(row, EGRESS)) else { return Ok(None) };
        let Some(standing) = PolicyContext::of(&row) else { return Ok(None) };
        // The command can send anything that its workspace roots hold, so their labels apply from the start. The labels of the
        // result would come too late: by then the data has been sent.
        let read: Vec<Access> = Resource::all_of(&standing.ground).map(Access::Read).collect();
        let carried = gate.propagate_labels(&standing, Some(EXEC), &read, CallEnd::Well)?.session;
        let allowed = AllowedEgress { carries: Some(carried), ..AllowedEgress::default() };
        let sockets = self.open_with(session, allowed)?;
        let user = rustix::process::geteuid().is_root().then(tribune_sandbox::fresh_user);
        if let Some(user) = user {
            sockets.give_to(user, user)?;
        }
        let allowlist = egress.rules.agents.get(session.agent()).cloned().unwrap_or_default();
        Ok(Some(EgressLease { sockets, user, allowlist }))
    }
}
