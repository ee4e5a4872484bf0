//! Ledger entries of canaries. They contain no text of an agent.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tribune_governance::turn::Governance;
use tribune_ledger::{Draft, EntryQuality};
use tribune_records::ledger_payloads::payload;
use tribune_storage::store::{EntryFilter, StoreError};

use super::evaluate::Outcome;
use super::probe_run::{ProbeRun, ProbeSubject};

/// Why a canary was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Occasion {
    Start,
    FirstUse,
    Timer,
    /// The operator requested it.
    Operator,
}

/// The ledger payload of a finished canary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CanaryRecord {
    event: String,
    backend: String,
    subject: String,
    /// `live`, `not_stopped` or `not_tried`.
    outcome: String,
    /// The action that was not stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    what: Option<String>,
    occasion: Occasion,
    /// The session that has its calls and their verdicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    constitution_hash: String,
    took_ms: u64,
}

/// The ledger payload that sets or clears the mark of a subject. It contains no text of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct MarkRecord {
    /// `marked` or `mark_cleared`.
    event: String,
    backend: String,
    subject: String,
    /// The tool that was executed without permission.
    tool: String,
    /// The session in which that is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// The principal that cleared it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grounds: Option<Grounds>,
}

impl MarkRecord {
    const MARKED: &str = "marked";
    const CLEARED: &str = "mark_cleared";
}

/// Why a mark was cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grounds {
    /// A canary was stopped at the same kind of action.
    Tried,
    /// The operator reviewed it, and a canary was stopped at another kind of action.
    LookedAt,
    /// The operator reviewed it, and the agent cannot be tested: the review alone.
    LookedAtUntried,
}

impl Grounds {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tried => "tried",
            Self::LookedAt => "looked_at",
            Self::LookedAtUntried => "looked_at_untried",
        }
    }
}

/// The ledger entity that has the canaries of a subject.
fn canary_entity(backend: &str, subject: &str) -> String {
    format!("canary:{backend}:{subject}")
}

/// Records the outcome of a canary. If that fails, the daemon logs it, and the outcome applies nevertheless.
pub(super) async fn write(
    governance: &Governance,
    subject: &ProbeSubject,
    trial: &ProbeRun,
    occasion: Occasion,
) {
    let what = match &trial.outcome {
        Outcome::NotStopped { what } => Some(governance.policy.redactor.redact(what).into_owned()),
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
        constitution_hash: governance.policy.gate.law.hash().to_string(),
        took_ms: millis(trial.took),
    };
    note(governance, subject, payload(&record)).await;
}

/// Records the mark of a subject. If that fails, the daemon logs it, and the mark applies nevertheless.
pub(super) async fn marked(
    governance: &Governance,
    subject: &ProbeSubject,
    tool: &str,
    session: Option<String>,
) {
    let record = MarkRecord {
        event: MarkRecord::MARKED.to_owned(),
        backend: subject.backend.clone(),
        subject: subject.name.clone(),
        tool: tool.to_owned(),
        session,
        by: None,
        grounds: None,
    };
    note(governance, subject, payload(&record)).await;
}

/// Records that a mark is cleared.
pub(super) async fn cleared(
    governance: &Governance,
    subject: &ProbeSubject,
    tool: &str,
    by: &str,
    grounds: Grounds,
) -> Result<(), StoreError> {
    let record = MarkRecord {
        event: MarkRecord::CLEARED.to_owned(),
        backend: subject.backend.clone(),
        subject: subject.name.clone(),
        tool: tool.to_owned(),
        session: None,
        by: Some(by.to_owned()),
        grounds: Some(grounds),
    };
    append(governance, subject, payload(&record)).await
}

/// The mark of a subject in the ledger: the tool of the newest mark, if it was not cleared.
pub(super) async fn mark_of(governance: &Governance, subject: &ProbeSubject) -> Option<String> {
    let entity_id = Some(canary_entity(&subject.backend, &subject.name));
    let newest = governance.storage.readers.read(move |reader| {
        let filter = EntryFilter { entity_id, ..EntryFilter::default() };
        reader.tail(&filter, MAX_SCANNED_ENTRIES)
    });
    let newest = newest.await.unwrap_or_else(|error| {
        tracing::warn!(%error, subject = subject.name, "the mark of an agent could not be read from the ledger");
        Vec::new()
    });
    let records = newest.iter().rev();
    let mark = records.filter_map(|stored| serde_json::from_str::<MarkRecord>(&stored.entry.payload).ok());
    mark.take(1).find(|mark| mark.event == MarkRecord::MARKED).map(|mark| mark.tool)
}

/// Entries of a subject that are scanned for its mark: more than an hourly canary leaves in a year.
const MAX_SCANNED_ENTRIES: usize = 10_000;

async fn note(governance: &Governance, subject: &ProbeSubject, payload: Map<String, Value>) {
    if let Err(error) = append(governance, subject, payload).await {
        tracing::warn!(%error, subject = subject.name, "a canary entry could not be recorded in the ledger");
    }
}

async fn append(
    governance: &Governance,
    subject: &ProbeSubject,
    payload: Map<String, Value>,
) -> Result<(), StoreError> {
    let entity = canary_entity(&subject.backend, &subject.name);
    let draft = Draft {
        entity_id: entity.clone(),
        target: entity,
        quality: EntryQuality::Note,
        timestamp: governance.storage.clock.now(),
        source: "canary".to_owned(),
        actor: "house".to_owned(),
        parents: Vec::new(),
        tags: Vec::new(),
        payload,
        attested_by: None,
        envelope: None,
    };
    governance.storage.ledger.append(&draft).await.map(drop)
}

pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
