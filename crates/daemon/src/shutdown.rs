//! The signals and tasks of the daemon's stop. The order in which services are closed is in [`services`](crate::services).

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time that connections have to close when the daemon stops.
const CONNECTION_DRAIN: Duration = Duration::from_secs(3);

/// What stops the daemon, and the tasks that it stops.
#[derive(Debug)]
pub(crate) struct Shutdown {
    /// Time that turns have to end by themselves.
    pub(crate) drain: Duration,
    /// Cancelled when no new work is accepted.
    pub(crate) draining: CancellationToken,
    /// Cancelled when no connection is accepted.
    pub(crate) accepting: CancellationToken,
    /// Cancelled when connections end.
    pub(crate) stopping: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Shutdown {
    pub(crate) fn new(drain: Duration) -> Self {
        Self {
            drain,
            draining: CancellationToken::new(),
            accepting: CancellationToken::new(),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Closes the port and all connections, and waits a short time for the tasks.
    pub(crate) async fn close_connections(&self) {
        self.accepting.cancel();
        self.stopping.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(CONNECTION_DRAIN, self.tasks.wait()).await;
    }
}
