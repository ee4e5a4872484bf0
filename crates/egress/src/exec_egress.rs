//! The way out of a command that an agent runs (`exec`): there for as long as the command runs, where all mandates of its session
//! have `egress`, and nowhere else.

use tribune_config::egress_rules::EgressRule;
use tribune_constitution::EGRESS;
use tribune_governance::gate::{CallEnd, PolicyContext};
use tribune_records::exec::EXEC;
use tribune_records::outcome::{Access, Resource};
use tribune_runtime::SessionKey;
use tribune_storage::store::StoreError;

use super::{AllowedEgress, BrokerError, SessionSocketService, SessionSockets};

/// A command's way out. It is closed when this is dropped, with every connection.
#[derive(Debug)]
pub struct EgressLease {
    pub sockets: SessionSockets,
    /// Whom the command runs as, if that is not the daemon's own user.
    pub user: Option<u32>,
    /// What is listed for its agent.
    pub places: Vec<EgressRule>,
}

/// Why a command has no way out that it should have.
#[derive(Debug, thiserror::Error)]
pub enum NoWayOut {
    #[error(transparent)]
    Sockets(#[from] BrokerError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SessionSocketService {
    /// Opens the way out of a session's next command; none if the session may not have one.
    pub async fn open_for_command(&self, session: &SessionKey) -> Result<Option<EgressLease>, NoWayOut> {
        let egress = &self.0.egress;
        let (gate, name) = (&egress.out_of_turn.gate, session.to_string());
        let row = egress.out_of_turn.readers.read(move |reader| reader.session(&name)).await?;
        let Some(row) = row.filter(|row| gate.allows_tool(row, EGRESS)) else { return Ok(None) };
        let Some(standing) = PolicyContext::of(&row) else { return Ok(None) };
        // Whatever its folders hold may be in what the command sends. When its result says so, it was sent.
        let read: Vec<Access> = Resource::all_of(&standing.ground).map(Access::Read).collect();
        let carried = gate.moved(&standing, Some(EXEC), (&read, CallEnd::Well))?.session;
        let outlets = AllowedEgress { carries: Some(carried), ..AllowedEgress::default() };
        let sockets = self.open_with(session, outlets)?;
        let user = rustix::process::geteuid().is_root().then(tribune_sandbox::fresh_user);
        if let Some(user) = user {
            sockets.give_to(user, user)?;
        }
        let places = egress.places.agents.get(session.agent()).cloned().unwrap_or_default();
        Ok(Some(EgressLease { sockets, user, places }))
    }
}
