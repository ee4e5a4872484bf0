//! The scheduler: when a schedule is due, its session runs a turn with the schedule's text. The text has the labels of the
//! data that it was made from, and never counts as the owner's.
//!
//! A schedule is settled on disk before its turn begins, so each due time starts at most one turn, also across a crash.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tribune_governance::gate;
use tribune_runtime::{ContentBlock, SessionKey, Speaker};
use tribune_tools::{Due, ScheduleFile};

use super::error::SessionError;
use super::{Opener, RequestedTerms, SessionManager, TurnHandle};

/// The interval of the check for due schedules. Their finest step is a minute.
const WAKE_EVERY: Duration = Duration::from_secs(10);

/// Schedules started per check; the others wait for the next check.
const MAX_AT_ONCE: usize = 32;

impl SessionManager {
    /// Starts the turns of due schedules until `stop`.
    pub async fn wake(&self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(WAKE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = stop.cancelled() => return,
            }
            if let Err(error) = self.wake_due().await {
                tracing::warn!(%error, "due schedules could not be read");
            }
        }
    }

    /// Starts the turns that are due now. Returns how many.
    pub async fn wake_due(&self) -> io::Result<usize> {
        let governance = &self.shared.governance;
        if governance.policy.gate.is_frozen() || self.shared.draining.is_cancelled() {
            return Ok(0);
        }
        let file = Arc::clone(&self.shared.schedules);
        let now = governance.storage.clock.now().to_string();
        let taken = tokio::task::spawn_blocking(move || take_due(&file, &now)).await;
        let mut woken = 0;
        for due in taken.map_err(io::Error::other)?? {
            match self.wake_one(&due).await {
                // The turn runs to its end without a listener.
                Ok(_) => woken += 1,
                Err(error) => {
                    tracing::warn!(agent = %due.agent, schedule = due.id, code = error.code(), "a scheduled turn could not be started");
                }
            }
        }
        Ok(woken)
    }

    async fn wake_one(&self, due: &Due) -> Result<TurnHandle, SessionError> {
        let key = match &due.session {
            Some(session) => session.clone(),
            None => SessionKey::direct(&due.agent, "schedule", "local", "main")?,
        };
        match self.run_scheduled(&key, due).await {
            Err(SessionError::NotFound(_) | SessionError::Closed(_)) => {}
            result => return result,
        }
        let pubkey = self.row(&key).await?.and_then(|row| row.terms.pubkey);
        let opener = Opener {
            name: "schedule".to_owned(),
            pubkey,
            is_unregistered: false,
            requested: RequestedTerms::default(),
        };
        self.ensure(key.clone(), opener).await?;
        self.run_scheduled(&key, due).await
    }

    async fn run_scheduled(&self, key: &SessionKey, due: &Due) -> Result<TurnHandle, SessionError> {
        let content = vec![ContentBlock::text(&due.text)];
        let name = gate::schedule(&due.agent, &due.id);
        self.run_stored(key, content, Speaker::Schedule, Some(name)).await
    }
}

/// Removes the due schedules from the file, or sets their next time.
fn take_due(file: &ScheduleFile, now: &str) -> io::Result<Vec<Due>> {
    let now = now.parse().map_err(io::Error::other)?;
    if file.now()?.due(now).is_empty() {
        return Ok(Vec::new());
    }
    file.change(|schedules| {
        let mut due = schedules.due(now);
        due.truncate(MAX_AT_ONCE);
        schedules.settle(&due, now);
        Ok(due)
    })?
}
