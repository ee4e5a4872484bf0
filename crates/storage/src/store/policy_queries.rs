//! Queries on the views of policy: verdicts, approvals, grants, labels, exceptions and the freeze switch.

use rusqlite::types::Type;
use rusqlite::{Row, params};
use tribune_constitution::Trust;
use tribune_constitution::labels::Labels;
use tribune_ledger::EntryQuality;
use tribune_records::approval::grant::Granted;
use tribune_records::approval::record::{ApprovalState, CallRunner};

use super::error::StoreError;
use super::policy_views::{ApprovalRow, FROZEN, LIFTED};
use super::reader::Reader;
use super::rows;
use super::rows::StoredEntry;

const APPROVAL: &str =
    "request, cid, state, votes, decision, decided_by, decided_at, reason, grant_id, created_at";

/// The order of a list of approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalOrder {
    OldestFirst,
    NewestFirst,
}

impl Reader {
    /// Verdicts from position `start` on, in order, at most `limit`.
    pub fn verdicts(&self, start: u64, limit: usize) -> Result<Vec<StoredEntry>, StoreError> {
        let query = format!(
            "SELECT {} FROM ledger WHERE idx >= ?1 AND quality = ?2 ORDER BY idx LIMIT ?3",
            rows::COLUMNS
        );
        let quality = EntryQuality::PolicyVerdict.as_str();
        self.all(&query, params![start, quality, limit as u64], rows::read)
    }

    /// Approvals in the order of their requests; if `after` is given, those after that id.
    pub fn approvals(
        &self,
        state: Option<ApprovalState>,
        order: ApprovalOrder,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ApprovalRow>, StoreError> {
        // With a condition that may be absent, SQLite does not use the index.
        let wanted = if state.is_some() { "state = ?1" } else { "?1 IS NULL" };
        let (behind, first, order) = match order {
            ApprovalOrder::OldestFirst => (">", i64::MIN, "ASC"),
            ApprovalOrder::NewestFirst => ("<", i64::MAX, "DESC"),
        };
        let query = format!(
            "SELECT {APPROVAL} FROM approvals
             WHERE {wanted} AND idx {behind} coalesce((SELECT idx FROM approvals WHERE id = ?2), ?4)
             ORDER BY idx {order} LIMIT ?3"
        );
        self.all(&query, params![state.map(ApprovalState::as_str), after, limit as u64, first], approval)
    }

    /// Pending approvals, oldest first.
    pub fn pending_approvals(&self, limit: usize) -> Result<Vec<ApprovalRow>, StoreError> {
        self.approvals(Some(ApprovalState::Pending), ApprovalOrder::OldestFirst, None, limit)
    }

    /// The entry that gave a resource its labels.
    pub fn label_source(&self, resource: &str) -> Result<Option<String>, StoreError> {
        self.one("SELECT cid FROM labels WHERE resource = ?1", [resource], |row| row.get(0))
    }

    pub fn approval(&self, id: &str) -> Result<Option<ApprovalRow>, StoreError> {
        self.one(&format!("SELECT {APPROVAL} FROM approvals WHERE id = ?1"), [id], approval)
    }

    /// The newest approval of this call.
    pub fn approval_of_call(&self, call: &str) -> Result<Option<ApprovalRow>, StoreError> {
        let query = format!("SELECT {APPROVAL} FROM approvals WHERE call = ?1 ORDER BY idx DESC LIMIT 1");
        self.one(&query, [call], approval)
    }

    /// The newest denials of persons that the owners of their sessions have not lifted since, oldest first.
    pub fn denials(&self, limit: usize) -> Result<Vec<ApprovalRow>, StoreError> {
        let query = format!(
            "SELECT {APPROVAL} FROM approvals
             WHERE state = ?1
             AND decided_at > coalesce((SELECT at FROM switches WHERE name = ?2 || approvals.session_key), '')
             ORDER BY idx DESC LIMIT ?3"
        );
        let state = ApprovalState::Denied.as_str();
        let mut denied = self.all(&query, params![state, LIFTED, limit as u64], approval)?;
        denied.reverse();
        Ok(denied)
    }

    /// The newest approvals of parked calls that the agent executes itself.
    pub fn parked_of_agent(&self, session: &str) -> Result<Vec<ApprovalRow>, StoreError> {
        let query = format!(
            "SELECT {APPROVAL} FROM approvals
             WHERE call IN (SELECT cid FROM open_work WHERE session_key = ?1 AND kind = 'parked')
             ORDER BY idx DESC LIMIT 256"
        );
        let mut parked = self.all(&query, [session], approval)?;
        parked.retain(|row| row.requested.runner == CallRunner::Agent);
        Ok(parked)
    }

    /// Grants that are not revoked, newest first.
    pub fn grants(&self) -> Result<Vec<Granted>, StoreError> {
        self.all(
            "SELECT created_at, body FROM grants WHERE revoked_at IS NULL ORDER BY created_at DESC, id DESC",
            [],
            |row| Ok(Granted { at: row.get(0)?, grant: json(row, 1)? }),
        )
    }

    /// Who froze the daemon and when, if it is frozen.
    pub fn frozen(&self) -> Result<Option<(String, String)>, StoreError> {
        self.one("SELECT by, at FROM switches WHERE name = ?1 AND is_on", [FROZEN], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
    }

    /// The times at which an exception was used since `since`, oldest first, at most `limit`.
    pub fn exception_uses(&self, id: &str, since: &str, limit: u64) -> Result<Vec<String>, StoreError> {
        self.all(
            "SELECT at FROM exception_uses WHERE id = ?1 AND at > ?2 ORDER BY at LIMIT ?3",
            params![id, since, limit],
            |row| row.get(0),
        )
    }

    /// The meet of the labels of every resource below this prefix.
    pub fn labels_below(&self, prefix: &str) -> Result<Option<Labels>, StoreError> {
        // `0` is the character after `/`, so it bounds all names below the prefix.
        let end = format!("{}0", prefix.trim_end_matches('/'));
        let all = self.all(
            "SELECT DISTINCT trust, private FROM labels WHERE resource >= ?1 AND resource < ?2",
            [prefix, &end],
            |row| labels(row, 0),
        )?;
        Ok(all.into_iter().reduce(Labels::meet))
    }

    /// The labels of a resource, if it has any.
    pub fn labels(&self, resource: &str) -> Result<Option<Labels>, StoreError> {
        self.one("SELECT trust, private FROM labels WHERE resource = ?1", [resource], |row| labels(row, 0))
    }
}

/// Reads labels from two columns, the first of which is `column`.
pub(super) fn labels(row: &Row<'_>, column: usize) -> rusqlite::Result<Labels> {
    let word = row.get_ref(column)?.as_str()?;
    // A word that this version does not know counts as the lowest trust.
    let trust = Trust::ALL.into_iter().find(|trust| trust.as_str() == word).unwrap_or(Trust::Untrusted);
    Ok(Labels { trust, private: row.get(column + 1)? })
}

fn approval(row: &Row<'_>) -> rusqlite::Result<ApprovalRow> {
    let unknown =
        |column, what: String| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, what.into());
    let entry = row.get_ref(1)?.as_str()?.parse().map_err(|_| unknown(1, "not a CID".to_owned()))?;
    let state = row.get_ref(2)?.as_str()?;
    Ok(ApprovalRow {
        requested: json(row, 0)?,
        entry,
        state: ApprovalState::parse(state).ok_or_else(|| unknown(2, format!("`{state}` is not a state")))?,
        votes: json(row, 3)?,
        decision: row.get(4)?,
        decided_by: row.get(5)?,
        decided_at: row.get(6)?,
        reason: row.get(7)?,
        grant: row.get(8)?,
        created_at: row.get(9)?,
    })
}

pub(super) fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(row.get_ref(column)?.as_str()?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into()))
}
