//! Ends what runs outside of turns when everything is stopped: forwarded requests to models, and connections out of sandboxes.
//!
//! The freeze on record is [`super::freeze`]; this only reaches what was allowed before it.

use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// Hands out tokens that the next stop cancels.
#[derive(Debug, Default)]
pub struct StopSignal(Mutex<CancellationToken>);

impl StopSignal {
    /// A token that the next stop cancels. Take it before asking whether the gate is frozen: then a stop in between is not
    /// missed.
    pub fn token(&self) -> CancellationToken {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Cancels every token that was handed out so far.
    pub fn stop(&self) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *current).cancel();
    }
}
