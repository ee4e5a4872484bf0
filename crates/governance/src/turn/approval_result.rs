//! The result of a call that a person was asked about.

use tribune_ledger::{Cid, EntryQuality};
use tribune_records::ledger_payloads::{CallOutcome, ToolResultRecord};
use tribune_storage::store::{EntryFilter, Reader, StoreError};

/// Entries of a session that are searched.
const MAX_ENTRIES_SEARCHED: usize = 2_000;

/// The result of the call that `request` is about, in one word: `ran`, `failed`, `denied`, `cancelled`, `killed`,
/// `timed_out` or `interrupted`. None if it is not known yet, or too far back.
pub fn approval_result(
    reader: &Reader,
    session: &str,
    call: &str,
    request: &Cid,
) -> Result<Option<&'static str>, StoreError> {
    let (Ok(call), Some(asked)) = (call.parse::<Cid>(), reader.find(request)?) else { return Ok(None) };
    let quality = Some(EntryQuality::ToolResult);
    let filter = EntryFilter { entity_id: Some(session.to_owned()), quality };
    let results = reader.tail(&filter, MAX_ENTRIES_SEARCHED)?;
    let result = results
        .iter()
        .find(|stored| stored.index > asked && stored.entry.parent_cids().first() == Some(&call));
    let record =
        result.and_then(|stored| serde_json::from_str::<ToolResultRecord>(&stored.entry.payload).ok());
    Ok(record.map(|record| match record.outcome {
        CallOutcome::Ran if record.is_error => "failed",
        CallOutcome::Ran => "ran",
        CallOutcome::Denied => "denied",
        CallOutcome::Cancelled => "cancelled",
        CallOutcome::Killed => "killed",
        CallOutcome::TimedOut => "timed_out",
        CallOutcome::Interrupted => "interrupted",
    }))
}
