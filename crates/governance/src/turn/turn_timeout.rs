//! The time limit of a turn.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The time that the turn may still take. It is paused while a call waits for a person.
pub(super) struct TurnTimeout {
    sleep: Pin<Box<Sleep>>,
    left: Duration,
    since: Option<Instant>,
}

impl TurnTimeout {
    pub(super) fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Self { sleep: Box::pin(tokio::time::sleep_until(now + limit)), left: limit, since: Some(now) }
    }

    /// Resumes or pauses the time.
    pub(super) fn run(&mut self, runs: bool) {
        match (self.since, runs) {
            (Some(since), false) => {
                self.left = self.left.saturating_sub(since.elapsed());
                self.since = None;
            }
            (None, true) => {
                let now = Instant::now();
                self.since = Some(now);
                self.sleep.as_mut().reset(now + self.left);
            }
            (Some(_), true) | (None, false) => {}
        }
    }

    pub(super) async fn over(&mut self) {
        match self.since {
            Some(_) => self.sleep.as_mut().await,
            None => std::future::pending().await,
        }
    }
}
