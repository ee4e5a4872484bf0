//! Facts about the running daemon, for status requests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_governance::turn::Recovered;
use tribune_ledger::Timestamp;

/// Facts about this run of the daemon.
#[derive(Debug)]
pub struct Status {
    pub address: SocketAddr,
    pub home: PathBuf,
    pub started_at: Timestamp,
    pub backends: Vec<String>,
    /// The log's name.
    pub log: String,
    /// Work that the start found unfinished and recovered.
    pub recovered: Recovered,
    /// Cancelled when the daemon accepts no new work.
    pub draining: CancellationToken,
    pub connections: AtomicUsize,
}

impl Status {
    /// The part that agents may see: without the path of the home and the listening address.
    pub fn for_agents(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "startedAt": self.started_at.to_string(),
            "backends": self.backends,
            "connections": self.connections(),
            "draining": self.draining.is_cancelled(),
        })
    }

    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}
