//! The way out of a command that an agent runs (`exec`): there for as long as the command runs, where all mandates of its session
//! have `egress`, and nowhere else.

use tribune_config::egress_rules::Place;
use tribune_constitution::EGRESS;
use tribune_governance::gate::{Ended, Standing};
use tribune_records::exec::EXEC;
use tribune_records::outcome::{Resource, Touched};
use tribune_runtime::SessionKey;
use tribune_storage::store::StoreError;

use super::{BrokerError, Brokers, Outlets, SessionSockets};

/// A command's way out. It is closed when this is dropped, with every connection.
#[derive(Debug)]
pub struct WayOut {
    pub sockets: SessionSockets,
    /// Whom the command runs as, if that is not the daemon's own user.
    pub user: Option<u32>,
    /// What is listed for its agent.
    pub places: Vec<Place>,
}

/// Why a command has no way out that it should have.
#[derive(Debug, thiserror::Error)]
pub enum NoWayOut {
    #[error(transparent)]
    Sockets(#[from] BrokerError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Brokers {
    /// Opens the way out of a session's next command; none if the session may not have one.
    pub async fn open_for_command(&self, session: &SessionKey) -> Result<Option<WayOut>, NoWayOut> {
        let egress = &self.0.egress;
        let (gate, name) = (&egress.out_of_turn.gate, session.to_string());
        let row = egress.out_of_turn.readers.read(move |reader| reader.session(&name)).await?;
        let Some(row) = row.filter(|row| gate.gives(row, EGRESS)) else { return Ok(None) };
        let Some(standing) = Standing::of(&row) else { return Ok(None) };
        // Whatever its folders hold may be in what the command sends. When its result says so, it was sent.
        let read: Vec<Touched> = Resource::all_of(&standing.ground).map(Touched::Read).collect();
        let carried = gate.moved(&standing, Some(EXEC), (&read, Ended::Well))?.session;
        let outlets = Outlets { carries: Some(carried), ..Outlets::default() };
        let sockets = self.open_with(session, outlets)?;
        let user = rustix::process::geteuid().is_root().then(tribune_sandbox::fresh_user);
        if let Some(user) = user {
            sockets.give_to(user, user)?;
        }
        let places = egress.places.agents.get(session.agent()).cloned().unwrap_or_default();
        Ok(Some(WayOut { sockets, user, places }))
    }
}
