//! Usage counts of exceptions within their periods. The counts are derived from the ledger, so a restart loses none.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tribune_constitution::settings::Exception;
use tribune_constitution::{Constitution, DecisionStage, Facts, Verdict};
use tribune_ledger::Timestamp;
use tribune_storage::store::{Readers, StoreError};

/// Uses of each exception, oldest first.
#[derive(Debug, Default)]
pub(super) struct ExceptionQuota(Mutex<HashMap<String, VecDeque<String>>>);

impl ExceptionQuota {
    /// Decides with the current counts, and counts the exception that the verdict relies on. Holds the lock meanwhile, so that
    /// two calls never share the last use. A verdict counts even if writing it fails.
    pub(super) fn decide(
        &self,
        law: &Constitution,
        mut facts: Facts,
        readers: &Readers,
        now: Timestamp,
    ) -> Result<(Facts, Verdict), StoreError> {
        let exceptions: Vec<&Exception> = law.settings().exceptions_for(&facts.tool).collect();
        if exceptions.is_empty() {
            let verdict = law.decide(&facts);
            return Ok((facts, verdict));
        }
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        facts.exception_uses = counts(&mut uses, &exceptions, readers, now)?;
        let verdict = law.decide(&facts);
        // Listing a tool does not use an exception.
        let waiver = verdict.waived_by.as_deref().filter(|_| facts.stage != DecisionStage::Offer);
        if let Some(id) = waiver.and_then(|by| by.strip_prefix("exception.")) {
            uses.entry(id.to_owned()).or_default().push_back(now.to_string());
        }
        Ok((facts, verdict))
    }
}

/// Number of uses of each exception within its period.
fn counts(
    uses: &mut HashMap<String, VecDeque<String>>,
    exceptions: &[&Exception],
    readers: &Readers,
    now: Timestamp,
) -> Result<BTreeMap<String, u64>, StoreError> {
    let mut counts = BTreeMap::new();
    for exception in exceptions {
        let since = now.minus(Duration::from_secs(exception.limit.per_seconds)).to_string();
        if !uses.contains_key(&exception.id) {
            let limit = exception.limit.count.saturating_add(1);
            let known = readers.now(|reader| reader.exception_uses(&exception.id, &since, limit))?;
            uses.insert(exception.id.clone(), known.into());
        }
        let known = uses.entry(exception.id.clone()).or_default();
        while known.front().is_some_and(|at| *at <= since) {
            known.pop_front();
        }
        counts.insert(exception.id.clone(), known.len() as u64);
    }
    Ok(counts)
}
