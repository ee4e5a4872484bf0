//! Finding the daemon of a home and connecting to it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::runtime::Runtime;
use tribune_client::{ClientError, RpcClient};
use tribune_daemon::daemon::DaemonInfo;
use tribune_storage::home::{Home, HomeError};

use crate::error::CliError;

/// The runtime for a command that talks to the daemon.
pub(crate) fn runtime() -> Result<Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::System)
}

/// The address file of this home's daemon, if the process that wrote it still holds the home.
pub(crate) fn is_running(home: &Home) -> Option<DaemonInfo> {
    let whereabouts = DaemonInfo::read(home)?;
    (home.holder() == Some(whereabouts.pid)).then_some(whereabouts)
}

/// Connects to the daemon of this home as its operator.
pub(crate) async fn connect(home: &Home) -> Result<RpcClient, CliError> {
    connect_with(home, home.root().join("run").join("token")).await
}

/// Connects with the token in this file.
pub(crate) async fn connect_with(home: &Home, path: PathBuf) -> Result<RpcClient, CliError> {
    let none = || none(home);
    let whereabouts = is_running(home).ok_or_else(|| match is_unreadable(home) {
        true => CliError::Input(format!(
            "you may not read {}: give the daemon's address with --address, and your token with --token",
            home.root().display()
        )),
        false => none(),
    })?;
    let own = home.root().join("run").join("token");
    let token = match path == own {
        true => fs::read_to_string(&path).map_err(|error| CliError::NoToken { path, error })?,
        false => token_in(&path)?,
    };
    match RpcClient::connect(&whereabouts.address.to_string(), Some(token.trim())).await {
        Ok(client) => Ok(client),
        Err(ClientError::Unreachable(_)) => Err(match is_running(home) {
            Some(DaemonInfo { pid, address, .. }) => CliError::Silent { pid, address },
            // The daemon stopped in between.
            None => none(),
        }),
        Err(error) => Err(error.into()),
    }
}

/// The error for a home without a daemon.
pub(crate) fn none(home: &Home) -> CliError {
    let path = home.root().to_owned();
    match fs::metadata(&path) {
        Ok(found) if !found.is_dir() => HomeError::IsAFile(path).into(),
        Ok(_) | Err(_) => CliError::NoDaemon(path),
    }
}

/// The operator's token.
pub(crate) fn token(home: &Home) -> Result<String, CliError> {
    let path = home.root().join("run").join("token");
    let token = fs::read_to_string(&path).map_err(|error| CliError::NoToken { path, error })?;
    Ok(token.trim().to_owned())
}

/// Connects to an address with the token in this file. The daemon's home need not be readable, so nothing else tells that the
/// daemon listens there: it proves that it knows the token before the token is sent.
pub(crate) async fn connect_at(address: &str, path: &Path) -> Result<RpcClient, CliError> {
    let address: SocketAddr = address.parse().map_err(|_| {
        CliError::Input(format!("`{address}` is not an address: write one such as 127.0.0.1:18789"))
    })?;
    let token = token_in(path)?;
    Ok(RpcClient::connect_proven(address, token.trim()).await?)
}

/// Reads an approver's token from a file.
fn token_in(path: &Path) -> Result<String, CliError> {
    fs::read_to_string(path).map_err(|error| {
        CliError::Input(format!(
            "the token file `{}` cannot be read ({error}): --token takes a file that holds an approver's token",
            path.display()
        ))
    })
}

/// Whether this user may not look into the home.
fn is_unreadable(home: &Home) -> bool {
    let looked = fs::metadata(home.root().join("run"));
    looked.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Sends one request to the daemon of this home.
pub(crate) fn ask(home: &Home, method: &str, params: &Value) -> Result<Value, CliError> {
    runtime()?.block_on(async {
        let mut client = connect(home).await?;
        let answer = client.call(method, params).await?;
        client.close().await;
        Ok(answer)
    })
}
