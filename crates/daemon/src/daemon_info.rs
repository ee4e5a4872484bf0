//! `run/daemon.json`, by which clients find the running daemon. It does not prove that the daemon still runs.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tribune_storage::clock::Clock;
use tribune_storage::files;
use tribune_storage::files::Secrecy;
use tribune_storage::home::Home;

use crate::start_error::StartError;

/// `run/daemon.json`, which lets clients find the running daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    pub pid: u32,
    pub address: SocketAddr,
    pub started_at: String,
    pub version: String,
}

impl DaemonInfo {
    pub fn path(home: &Home) -> PathBuf {
        home.root().join("run").join("daemon.json")
    }

    /// The last written file of this state folder. The daemon may have ended since.
    pub fn read(home: &Home) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::path(home)).ok()?).ok()
    }

    /// Writes the file for this process.
    pub(crate) fn write(home: &Home, address: SocketAddr, clock: &dyn Clock) -> Result<(), StartError> {
        let path = Self::path(home);
        let info = Self {
            pid: std::process::id(),
            address,
            started_at: clock.now().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let json = serde_json::to_vec(&info).unwrap_or_default();
        files::replace(&path, &json, Secrecy::Owner).map_err(|error| StartError::File { path, error })
    }

    /// Removes the file. Only a daemon that crashed leaves it behind.
    pub(crate) fn remove(home: &Home) {
        let _ = std::fs::remove_file(Self::path(home));
    }
}
