//! Closes idle sessions.

use std::time::Duration;

use tribune_runtime::{CloseReason, SessionKey};

use super::SessionManager;
use super::error::SessionError;
use super::lifecycle::Closing;

/// The interval of the check for idle sessions, and how many one check closes.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
const SWEEP_AT_ONCE: usize = 1_000;

impl SessionManager {
    /// Closes `domain` sessions that had no turn for their time to live. Repeats until the daemon stops.
    pub async fn sweep(&self) {
        let mut tick = tokio::time::interval(SWEEP_EVERY.min(self.shared.limits.ttl));
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.shared.draining.cancelled() => return,
            }
            if let Err(error) = self.sweep_once().await {
                tracing::warn!(%error, "idle sessions could not be closed");
            }
        }
    }

    /// Closes the sessions that have expired by now. Returns how many.
    pub async fn sweep_once(&self) -> Result<usize, SessionError> {
        let now = self.shared.governance.storage.clock.now();
        let since = now.minus(self.shared.limits.ttl).to_string();
        let (readers, before) = (&self.shared.governance.storage.readers, since.clone());
        let expired = readers.read(move |reader| reader.expired_sessions(&before, SWEEP_AT_ONCE)).await?;
        let mut closed = 0;
        for key in expired {
            let Ok(key) = key.parse::<SessionKey>() else { continue };
            if self.loaded(&key).is_some_and(|session| session.is_running()) {
                continue;
            }
            let closing = Closing { reason: CloseReason::Evicted, unused_since: Some(since.clone()) };
            match self.close_as(&key, closing).await {
                Ok(()) => closed += 1,
                Err(SessionError::Closed(_) | SessionError::InUse(_) | SessionError::Draining) => {}
                // A session that cannot be closed does not stop the others.
                Err(error) => {
                    tracing::warn!(session = %key, %error, "an idle session could not be closed")
                }
            }
        }
        Ok(closed)
    }
}
