//! What the log tells of canaries. No word of an agent's is in it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tribune_ledger::{Draft, EntryQuality};

use super::judge::Outcome;
use super::trial::{Subject, Trial};
use crate::governed::Governance;
use crate::record::payload;

/// Why a canary was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    Start,
    FirstUse,
    Timer,
    /// Somebody asked for it.
    Operator,
}

/// A canary that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanaryRecord {
    pub event: String,
    pub backend: String,
    pub subject: String,
    /// `live`, `not_stopped` or `not_tried`.
    pub outcome: String,
    /// What was not stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    pub occasion: Occasion,
    /// Where its calls and their verdicts are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub constitution_hash: String,
    pub took_ms: u64,
}

/// Where the canaries of a subject are written down.
pub fn canary_entity(backend: &str, subject: &str) -> String {
    format!("canary:{backend}:{subject}")
}

/// Writes down what a canary came to. One that cannot be written is told by the daemon's log, and counts all the same.
pub(super) async fn write(governance: &Governance, subject: &Subject, trial: &Trial, occasion: Occasion) {
    let what = match &trial.outcome {
        Outcome::NotStopped { what } => Some(governance.redactor.redact(what).into_owned()),
        Outcome::Live | Outcome::NotTried { .. } => None,
    };
    let record = CanaryRecord {
        event: "canary".to_owned(),
        backend: subject.backend.clone(),
        subject: subject.name.clone(),
        outcome: trial.outcome.as_str().to_owned(),
        what,
        occasion,
        session: trial.session.clone(),
        constitution_hash: governance.gate.law.hash().to_string(),
        took_ms: millis(trial.took),
    };
    let entity = canary_entity(&subject.backend, &subject.name);
    let draft = Draft {
        entity_id: entity.clone(),
        target: entity,
        quality: EntryQuality::Note,
        timestamp: governance.clock.now(),
        source: "canary".to_owned(),
        actor: "house".to_owned(),
        parents: Vec::new(),
        tags: Vec::new(),
        payload: payload(&record),
        attested_by: None,
        envelope: None,
    };
    if let Err(error) = governance.ledger.append(&draft).await {
        tracing::warn!(%error, subject = subject.name, "what a canary came to could not be written down");
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
