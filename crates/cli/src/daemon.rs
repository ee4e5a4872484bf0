//! The way to the daemon of a home: whether there is one, and a connection to it.

use std::fs;

use tokio::runtime::Runtime;
use tribune_client::{Client, ClientError};
use tribune_host::Home;
use tribune_host::daemon::Whereabouts;

use crate::error::CliError;

/// What a command that talks to the daemon runs on.
pub(crate) fn runtime() -> Result<Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::System)
}

/// Where the daemon of this home is, if one runs: it said where, and it is the one that holds the home.
pub(crate) fn is_running(home: &Home) -> Option<Whereabouts> {
    let whereabouts = Whereabouts::read(home)?;
    (home.holder() == Some(whereabouts.pid)).then_some(whereabouts)
}

/// A connection to the daemon of this home, as its operator.
pub(crate) async fn connect(home: &Home) -> Result<Client, CliError> {
    let none = || CliError::NoDaemon(home.root().to_owned());
    let whereabouts = is_running(home).ok_or_else(none)?;
    let path = home.root().join("run").join("token");
    let token = fs::read_to_string(&path).map_err(CliError::file(&path))?;
    match Client::connect(&whereabouts.address.to_string(), Some(token.trim())).await {
        Ok(client) => Ok(client),
        // It went away in between.
        Err(ClientError::Unreachable(_)) if is_running(home).is_none() => Err(none()),
        Err(error) => Err(error.into()),
    }
}
