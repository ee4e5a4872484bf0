//! What the daemon knows of itself while it runs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;
use tribune_ledger::Timestamp;
use tribune_governance::turn::Recovered;



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
    pub(crate) connections: AtomicUsize,
}

impl Status {
    /// Connections that are open now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}
