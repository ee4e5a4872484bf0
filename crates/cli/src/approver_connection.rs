//! As whom to decide, and where the daemon is: for people who are not its operator, and cannot read its home.

use std::path::PathBuf;

use clap::Args;
use tribune_client::Client;
use tribune_host::Home;

use crate::daemon;
use crate::error::CliError;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Door {
    /// Decide as an approver and not as the operator: a file with the token that `tribune approvers add` printed.
    #[arg(long, global = true, value_name = "FILE")]
    token: Option<PathBuf>,
    /// Where the daemon is, such as 127.0.0.1:18789, for whoever cannot read its home; `tribune status` tells the operator.
    /// It goes with --token.
    #[arg(long, global = true, value_name = "HOST:PORT", env = "TRIBUNE_ADDRESS", hide_env_values = true)]
    address: Option<String>,
}

impl Door {
    pub(crate) async fn connect(&self, home: &Home) -> Result<Client, CliError> {
        match (&self.token, &self.address) {
            (Some(token), Some(address)) => daemon::connect_at(address, token).await,
            (Some(token), None) => daemon::connect_with(home, token.clone()).await,
            (None, Some(_)) => {
                let what = "--address and TRIBUNE_ADDRESS go with --token: say who you are, or leave the address out";
                Err(CliError::Input(what.to_owned()))
            }
            (None, None) => daemon::connect(home).await,
        }
    }
}
