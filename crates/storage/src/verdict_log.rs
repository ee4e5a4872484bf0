//! Reads the verdicts of a log in order, one page at a time, each with the facts that it was made from.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::Value;
use tribune_constitution::{Decision, Verdict};
use tribune_ledger::{Cid, EntryQuality, Timestamp, jcs};
use tribune_records::ledger_payloads::{VerdictRecord, payload};

use crate::store::{EntryFilter, Reader, StoreError, StoredEntry};

/// Verdicts read at once: few enough to hold in memory, enough that the queries cost little.
const PAGE: usize = 512;

/// Verdicts that are searched for denials, and the largest number of denials returned.
const SEARCHED: usize = 500;
const MAX_DENIALS: usize = 5;

/// A verdict as the log has it.
#[derive(Debug, Clone)]
pub struct VerdictOf {
    pub stored: StoredEntry,
    /// `None` if this version cannot read it.
    pub record: Option<VerdictRecord>,
}

impl VerdictOf {
    pub fn new(stored: StoredEntry) -> Self {
        let record = serde_json::from_str(&stored.entry.payload).ok();
        Self { stored, record }
    }

    /// Whether `verdict` gives exactly the same entry, byte by byte.
    pub fn is_exactly(&self, verdict: &Verdict) -> bool {
        let again = self.record.clone().map(|record| VerdictRecord { verdict: verdict.clone(), ..record });
        let canonical = |payload: Value| jcs::to_vec(&payload).ok();
        let again = again.and_then(|record| canonical(Value::Object(payload(&record))));
        let written = serde_json::from_str(&self.stored.entry.payload).ok().and_then(canonical);
        again.is_some() && again == written
    }
}

/// The verdicts of a log, in order.
#[derive(Debug)]
pub struct Verdicts<'a> {
    reader: &'a Reader,
    next: u64,
    page: VecDeque<StoredEntry>,
    is_over: bool,
}

impl<'a> Verdicts<'a> {
    /// The verdicts from position `start` on.
    pub const fn from(reader: &'a Reader, start: u64) -> Self {
        Self { reader, next: start, page: VecDeque::new(), is_over: false }
    }

    fn read_page(&mut self) -> Result<(), StoreError> {
        self.page = self.reader.verdicts(self.next, PAGE)?.into();
        self.is_over = self.page.len() < PAGE;
        self.next = self.page.back().map_or(self.next, |stored| stored.index + 1);
        Ok(())
    }
}

impl Iterator for Verdicts<'_> {
    type Item = Result<VerdictOf, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.is_empty()
            && !self.is_over
            && let Err(error) = self.read_page()
        {
            self.is_over = true;
            return Some(Err(error));
        }
        self.page.pop_front().map(|stored| Ok(VerdictOf::new(stored)))
    }
}

/// A call that the policy denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastDenial {
    /// CID of the verdict.
    pub cid: Cid,
    pub at: Timestamp,
    pub session_key: String,
    pub tool: String,
    pub rules: Vec<String>,
    pub reason: String,
}

/// The last calls that were denied, in one session or in all, newest last.
pub fn last_denials(reader: &Reader, session: Option<&str>) -> Result<Vec<LastDenial>, StoreError> {
    let entity_id = session.map(str::to_owned);
    let filter = EntryFilter { entity_id, quality: Some(EntryQuality::PolicyVerdict) };
    let verdicts = reader.tail(&filter, SEARCHED)?;
    let mut found: Vec<LastDenial> = verdicts.into_iter().filter_map(denial).collect();
    Ok(found.split_off(found.len().saturating_sub(MAX_DENIALS)))
}

fn denial(stored: StoredEntry) -> Option<LastDenial> {
    let VerdictOf { stored: StoredEntry { entry, .. }, record } = VerdictOf::new(stored);
    // Verdicts about the list of tools belong to no call.
    let VerdictRecord { tool, verdict, .. } = record.filter(|record| record.input_hash.is_some())?;
    (verdict.decision == Decision::Deny).then_some(LastDenial {
        cid: entry.cid,
        at: entry.timestamp,
        session_key: entry.entity_id,
        tool,
        rules: verdict.rules,
        reason: verdict.reason,
    })
}
