//! Waking: when the time of a schedule has come, its session has a turn with the schedule's text. The words count no more
//! than what they were made from, and never as the owner's.
//!
//! A schedule is settled on disk before its turn begins, so one time wakes at most once, whatever happens in between.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tribune_governance::gate;
use tribune_runtime::{ContentBlock, SessionKey, Speaker};
use tribune_tools::{Due, ScheduleFile};

use super::error::SessionError;
use super::{Opener, SessionManager, TurnHandle};

/// How often schedules are looked at. Their finest step is a minute.
const WAKE_EVERY: Duration = Duration::from_secs(10);

/// Schedules that wake at once; the next ones wait for the next look.
const MAX_AT_ONCE: usize = 32;

impl SessionManager {
    /// Wakes whoever wants to be woken, until `stop`.
    pub async fn wake(&self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(WAKE_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = stop.cancelled() => return,
            }
            if let Err(error) = self.wake_due().await {
                tracing::warn!(%error, "schedules could not be looked at");
            }
        }
    }

    /// Begins the turns whose time has come now. Returns how many.
    pub async fn wake_due(&self) -> io::Result<usize> {
        let governance = &self.shared.governance;
        if governance.gate.is_frozen() || self.shared.draining.is_cancelled() {
            return Ok(0);
        }
        let file = Arc::clone(&self.shared.schedules);
        let now = governance.clock.now().to_string();
        let taken = tokio::task::spawn_blocking(move || take_due(&file, &now)).await;
        let mut woken = 0;
        for due in taken.map_err(io::Error::other)?? {
            match self.wake_one(&due).await {
                // The turn runs to its end, whoever listens.
                Ok(_) => woken += 1,
                Err(error) => {
                    tracing::warn!(agent = %due.agent, schedule = due.id, code = error.code(), "a schedule woke nobody");
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
        match self.tell(&key, due).await {
            Err(SessionError::NotFound(_) | SessionError::Closed(_)) => {}
            told => return told,
        }
        let pubkey = self.row(&key).await?.and_then(|row| row.pubkey);
        let opener = Opener {
            name: "schedule".to_owned(),
            pubkey,
            is_unregistered: false,
            model: None,
            workspace: None,
            further: None,
        };
        self.ensure(key.clone(), None, opener).await?;
        self.tell(&key, due).await
    }

    async fn tell(&self, key: &SessionKey, due: &Due) -> Result<TurnHandle, SessionError> {
        let content = vec![ContentBlock::text(&due.text)];
        let name = gate::schedule(&due.agent, &due.id);
        self.run_stored(key, content, Speaker::Schedule, Some(name)).await
    }
}

/// Takes what is due out of the file, or gives it its next time.
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
