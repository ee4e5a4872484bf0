//! The way to the daemon of a home: whether there is one, and a connection to it.

use std::fs;

use serde_json::Value;
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
    let token = fs::read_to_string(&path).map_err(|error| CliError::NoToken { path, error })?;
    match Client::connect(&whereabouts.address.to_string(), Some(token.trim())).await {
        Ok(client) => Ok(client),
        Err(ClientError::Unreachable(_)) => Err(match is_running(home) {
            Some(Whereabouts { pid, address, .. }) => CliError::Silent { pid, address },
            // It went away in between.
            None => none(),
        }),
        Err(error) => Err(error.into()),
    }
}

/// Asks the daemon of this home one thing.
pub(crate) fn ask(home: &Home, method: &str, params: &Value) -> Result<Value, CliError> {
    runtime()?.block_on(async {
        let mut client = connect(home).await?;
        let answer = client.call(method, params).await?;
        client.close().await;
        Ok(answer)
    })
}
