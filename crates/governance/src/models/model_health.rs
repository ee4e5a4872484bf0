//! The last known health of each model: from the startup check, a provider check, or a turn. Faults that only a request can
//! reveal, such as a rejected key, are known from here without another request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tribune_providers::ModelRef;

/// How long a reader waits for the startup check to finish. Most providers answer within this time.
const STARTUP_CHECK_WAIT: Duration = Duration::from_secs(1);

/// The last fault, or `None`, of every model that was asked. Bounded by the list of declared models, because no other model is
/// ever asked.
#[derive(Debug, Clone, Default)]
pub struct ModelHealth {
    last: Arc<Mutex<BTreeMap<ModelRef, Option<String>>>>,
    /// Cancelled when the startup check is complete.
    settled: CancellationToken,
}

impl ModelHealth {
    /// Records the result of a request to a model.
    pub fn note(&self, model: &ModelRef, fault: Option<String>) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(model.clone(), fault);
    }

    /// The result of the last request; `None` if the model was not asked yet.
    pub fn last(&self, model: &ModelRef) -> Option<Option<String>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(model).cloned()
    }

    /// Marks the startup check as complete.
    pub fn settle(&self) {
        self.settled.cancel();
    }

    /// Waits until the startup check is complete, for one second at most.
    pub async fn settled(&self) {
        let _ = tokio::time::timeout(STARTUP_CHECK_WAIT, self.settled.cancelled()).await;
    }
}
