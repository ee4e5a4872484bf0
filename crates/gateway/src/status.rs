//! What the daemon knows of itself while it runs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_governance::turn::Recovered;
use tribune_ledger::Timestamp;

/// Facts of this run.
#[derive(Debug)]
pub struct Status {
    pub address: SocketAddr,
    pub home: PathBuf,
    pub started_at: Timestamp,
    pub backends: Vec<String>,
    /// The log's name.
    pub log: String,
    /// What the start found unfinished.
    pub recovered: Recovered,
    /// Set when the daemon takes no new work.
    pub draining: CancellationToken,
    pub connections: AtomicUsize,
}

impl Status {
    /// What an agent may know: not where the home is, and not where the port is open.
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
