//! How a connection ends.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// The end of a connection: the agent's output first, then the whole connection.
#[derive(Default)]
pub(super) struct ConnectionEnd {
    output_closed: CancellationToken,
    broken: CancellationToken,
    /// The first reason.
    reason: OnceLock<String>,
    /// The agent's process ended before anything else broke the connection.
    has_exited: AtomicBool,
}

impl ConnectionEnd {
    pub(super) fn close_output(&self) {
        self.output_closed.cancel();
    }

    pub(super) fn set(&self, reason: String) {
        let _ = self.reason.set(reason);
        self.broken.cancel();
    }

    pub(super) fn set_exited(&self, how: String) {
        if self.reason.set(how).is_ok() {
            self.has_exited.store(true, Ordering::Relaxed);
        }
        self.broken.cancel();
    }

    pub(super) fn has_exited(&self) -> bool {
        self.has_exited.load(Ordering::Relaxed)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_cancelled()
    }

    pub(super) fn is_output_closed(&self) -> bool {
        self.output_closed.is_cancelled()
    }

    pub(super) async fn broken(&self) {
        self.broken.cancelled().await;
    }

    pub(super) async fn output_closed(&self) {
        self.output_closed.cancelled().await;
    }

    pub(super) fn reason(&self) -> String {
        self.reason.get().cloned().unwrap_or_default()
    }
}
