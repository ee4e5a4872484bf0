//! How models answered when they were last asked: at the start, when somebody tried them, in a turn. What only asking can
//! tell, such as a key that is refused, is known from here without asking again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tribune_providers::ModelRef;

/// How long whoever looks in the first moments waits for the providers that are being asked. Most answer within it.
const FIRST_MOMENTS: Duration = Duration::from_secs(1);

/// For every model that was asked, what was wrong if anything was. As long as the list of declared models at most, since no
/// other is ever asked.
#[derive(Debug, Clone, Default)]
pub struct ModelHealth {
    last: Arc<Mutex<BTreeMap<ModelRef, Option<String>>>>,
    /// Cancelled when everything that the start asks has answered.
    settled: CancellationToken,
}

impl ModelHealth {
    /// Takes in how a model answered.
    pub fn note(&self, model: &ModelRef, fault: Option<String>) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(model.clone(), fault);
    }

    /// What was wrong when it was last asked; `None` if it was not asked yet.
    pub fn last(&self, model: &ModelRef) -> Option<Option<String>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(model).cloned()
    }

    /// Says that everybody was asked whom the start asks.
    pub fn settle(&self) {
        self.settled.cancel();
    }

    /// Waits for what the start asks, a moment at most.
    pub async fn settled(&self) {
        let _ = tokio::time::timeout(FIRST_MOMENTS, self.settled.cancelled()).await;
    }
}
