//! Calls that others carry out, as the log tells of them.

use std::collections::HashMap;
use std::sync::Arc;

use tribune_constitution::{Decision, Verdict};
use tribune_ledger::commitment::Commitment;
use tribune_ledger::{Cid, EntryQuality};

use super::elsewhere::{AskedFor, Standpoint};
use crate::approval::record::Runner;
use crate::record::{ToolCallRecord, VerdictRecord};
use crate::store::{Reader, SessionRow, StoreError};

/// Messages of a session looked through for calls that were asked for before a restart.
const LOOKED_BACK: usize = 1_000;

/// A call that someone else carries out.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) entry: Cid,
    pub(super) input_hash: Commitment,
    pub(super) tool: String,
    /// How it was judged, and by which entry.
    pub(super) verdict: Arc<Judgement>,
    pub(super) is_over: bool,
}

/// What was said of a call when it was asked for.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) entry: Cid,
    pub(super) decision: Decision,
    pub(super) rules: Vec<String>,
    pub(super) reason: String,
}

impl Judgement {
    pub(super) fn new(entry: Cid, verdict: Verdict) -> Self {
        Self { entry, decision: verdict.decision, rules: verdict.rules, reason: verdict.reason }
    }

    pub(super) fn standpoint(&self) -> Standpoint {
        Standpoint {
            verdict: if self.decision == Decision::Allow { AskedFor::Allowed } else { AskedFor::Refused },
            rules: self.rules.clone(),
            reason: self.reason.clone(),
            approval: None,
            cid: self.entry.to_string(),
        }
    }
}

/// The calls of a session that others carry out, from the log.
pub(super) fn calls_of(reader: &Reader, row: &SessionRow) -> Result<HashMap<String, Known>, StoreError> {
    let mut calls = HashMap::new();
    let mut over = Vec::new();
    for message in reader.messages(row, LOOKED_BACK)? {
        let Ok(cid) = message.id.parse::<Cid>() else { continue };
        let Some(index) = reader.find(&cid)? else { continue };
        let Some(stored) = reader.entry(index)? else { continue };
        match message.role.as_str() {
            "tool_call" => {
                let Ok(record) = serde_json::from_str::<ToolCallRecord>(&stored.entry.payload) else {
                    continue;
                };
                if record.runner == Runner::Caller
                    && let Some(verdict) = verdict_of(reader, (index, &cid))?
                {
                    let (input_hash, tool, verdict) = (record.input_hash, record.tool, Arc::new(verdict));
                    let known = Known { entry: cid, input_hash, tool, verdict, is_over: false };
                    calls.insert(record.call_id, known);
                }
            }
            "tool" => over.extend(stored.entry.parent_cids().first().copied()),
            _ => {}
        }
    }
    for known in calls.values_mut() {
        known.is_over = over.contains(&known.entry);
    }
    Ok(calls)
}

/// The first verdict about the call at this place. It stands behind the call, on the same page.
fn verdict_of(reader: &Reader, (index, call): (u64, &Cid)) -> Result<Option<Judgement>, StoreError> {
    let Some(stored) = reader.entry(index + 1)? else { return Ok(None) };
    let entry = &stored.entry;
    if entry.quality != EntryQuality::PolicyVerdict || entry.parent_cids().first() != Some(call) {
        return Ok(None);
    }
    let record = serde_json::from_str::<VerdictRecord>(&entry.payload).ok();
    Ok(record.map(|record| Judgement::new(entry.cid, record.verdict)))
}
