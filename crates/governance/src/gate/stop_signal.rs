//! Cancels work outside of turns when everything is stopped: proxied model requests and connections out of sandboxes.
//!
//! The recorded freeze is in [`super::freeze`]; this signal only reaches work that was allowed before it.

use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// Issues tokens that the next stop cancels.
#[derive(Debug, Default)]
pub struct StopSignal(Mutex<CancellationToken>);

impl StopSignal {
    /// A token that the next stop cancels. Take it before checking whether the gate is frozen, so that a stop in between is
    /// not missed.
    pub fn token(&self) -> CancellationToken {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Cancels every token issued so far.
    pub fn stop(&self) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *current).cancel();
    }
}
