//! Connecting as an approver: the token, and the daemon's address for people who cannot read the operator's home.

use std::path::PathBuf;

use clap::Args;
use tribune_client::RpcClient;
use tribune_storage::home::Home;

use crate::daemon;
use crate::error::CliError;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ApproverConnection {
    /// Decide as an approver instead of the operator: a file with the token that `tribune approvers add` printed.
    #[arg(long, global = true, value_name = "FILE")]
    token: Option<PathBuf>,
    /// The daemon's address, such as 127.0.0.1:18789, if you cannot read its home; `tribune status` shows it to the
    /// operator. Requires --token. The token is sent only after the daemon has proved that it knows it and listens there.
    #[arg(long, global = true, value_name = "HOST:PORT", env = "TRIBUNE_ADDRESS", hide_env_values = true)]
    address: Option<String>,
}

impl ApproverConnection {
    pub(crate) async fn connect(&self, home: &Home) -> Result<RpcClient, CliError> {
        match (&self.token, &self.address) {
            (Some(token), Some(address)) => daemon::connect_at(address, token).await,
            (Some(token), None) => daemon::connect_with(home, token.clone()).await,
            (None, Some(_)) => {
                let what = "--address and TRIBUNE_ADDRESS require --token: give your token, or leave the address out";
                Err(CliError::Input(what.to_owned()))
            }
            (None, None) => daemon::connect(home).await,
        }
    }
}
