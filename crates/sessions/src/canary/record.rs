//! What the log tells of canaries. No word of an agent's is in it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tribune_governance::turn::Governance;
use tribune_ledger::{Draft, EntryQuality};
use tribune_records::ledger_payloads::payload;
use tribune_storage::store::{EntryFilter, StoreError};

use super::evaluate::Outcome;
use super::probe_run::{ProbeRun, ProbeSubject};

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

/// What stands against a subject from its agents' own turns, and that it does no more. No word of an agent's is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRecord {
    /// `marked` or `mark_cleared`.
    pub event: String,
    pub backend: String,
    pub subject: String,
    /// What was carried out without leave.
    pub tool: String,
    /// Where that is on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Who had it cleared, and on which grounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grounds: Option<Grounds>,
}

impl MarkRecord {
    const MARKED: &str = "marked";
    const CLEARED: &str = "mark_cleared";
}

/// Why a mark was cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grounds {
    /// A canary held the agent at what it had done.
    Tried,
    /// Somebody says that it was looked at, and a canary held the agent at something else.
    LookedAt,
    /// Somebody says that it was looked at, and nobody can try the agent: their word alone.
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

/// Where the canaries of a subject are written down.
pub fn canary_entity(backend: &str, subject: &str) -> String {
    format!("canary:{backend}:{subject}")
}

/// Writes down what a canary came to. One that cannot be written is told by the daemon's log, and counts all the same.
pub(super) async fn write(
    governance: &Governance,
    subject: &ProbeSubject,
    trial: &ProbeRun,
    occasion: Occasion,
) {
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
    note(governance, subject, payload(&record)).await;
}

/// Writes down what stands against a subject. If that fails, it is told by the daemon's log, and stands all the same.
pub(super) async fn marked(
    governance: &Governance,
    subject: &ProbeSubject,
    (tool, session): (&str, Option<String>),
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

/// Writes down that it does no more.
pub(super) async fn cleared(
    governance: &Governance,
    subject: &ProbeSubject,
    tool: &str,
    (by, grounds): (&str, Grounds),
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

/// What stands against a subject by the log: the tool of the newest mark that nobody cleared.
pub(super) async fn mark_of(governance: &Governance, subject: &ProbeSubject) -> Option<String> {
    let entity_id = Some(canary_entity(&subject.backend, &subject.name));
    let newest = governance.readers.read(move |reader| {
        let filter = EntryFilter { entity_id, ..EntryFilter::default() };
        reader.tail(&filter, MAX_LOOKED_BACK)
    });
    let newest = newest.await.unwrap_or_else(|error| {
        tracing::warn!(%error, subject = subject.name, "what the log has against an agent could not be read");
        Vec::new()
    });
    let records = newest.iter().rev();
    let mark = records.filter_map(|stored| serde_json::from_str::<MarkRecord>(&stored.entry.payload).ok());
    mark.take(1).find(|mark| mark.event == MarkRecord::MARKED).map(|mark| mark.tool)
}

/// Entries of a subject that are looked back through: more than a canary every hour leaves in a year.
const MAX_LOOKED_BACK: usize = 10_000;

async fn note(governance: &Governance, subject: &ProbeSubject, payload: Map<String, Value>) {
    if let Err(error) = append(governance, subject, payload).await {
        tracing::warn!(%error, subject = subject.name, "what a canary came to could not be written down");
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
        timestamp: governance.clock.now(),
        source: "canary".to_owned(),
        actor: "house".to_owned(),
        parents: Vec::new(),
        tags: Vec::new(),
        payload,
        attested_by: None,
        envelope: None,
    };
    governance.ledger.append(&draft).await.map(drop)
}

pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
