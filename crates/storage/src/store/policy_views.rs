//! The views of policy, derived from the entries: approvals, grants, labels of data, uses of exceptions, and the freeze
//! switch.

use rusqlite::{Connection, OptionalExtension as _, params};
use tribune_constitution::{DecisionStage, Labels};
use tribune_ledger::Cid;
use tribune_ledger::entry::EntryText;
use tribune_records::approval::grant::Grant;
use tribune_records::approval::record::{ApprovalRecord, ApprovalState, Decided, Requested};
use tribune_records::egress_labels::{EGRESS_LABELS, MCP_SERVER_LABELS};
use tribune_records::ledger_payloads::{EGRESS_ENTITIES, LabelRecord, MCP_ENTITIES, VerdictRecord};

use super::policy_queries;

/// The tables of these views, each with its columns and key order.
pub(super) const TABLES: [(&str, &str, &str); 5] = [
    (
        "approvals",
        "id, idx, cid, session_key, call, request, state, votes, decision, decided_by, decided_at, reason, grant_id, \
         created_at",
        "id",
    ),
    ("grants", "id, body, created_at, revoked_by, revoked_at", "id"),
    ("labels", "resource, trust, private, cid", "resource"),
    ("exception_uses", "idx, id, at", "idx"),
    ("switches", "name, is_on, by, at", "name"),
];

/// The name of the freeze switch, which stops every turn and call.
pub(super) const FROZEN: &str = "frozen";

/// The prefix of the switch of a session whose denials were lifted; the key of the session follows.
pub(super) const LIFTED: &str = "lifted:";

/// An approval, derived from the log.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRow {
    pub requested: Requested,
    /// The request's entry.
    pub entry: Cid,
    pub state: ApprovalState,
    pub votes: Vec<String>,
    pub decision: Option<String>,
    pub decided_by: Option<String>,
    pub decided_at: Option<String>,
    pub reason: Option<String>,
    pub grant: Option<String>,
    pub created_at: String,
}

/// Applies an entry of quality `approval`, which is at `index`.
pub(super) fn apply(connection: &Connection, index: u64, entry: &EntryText) -> rusqlite::Result<()> {
    let Ok(record) = serde_json::from_str(&entry.payload) else { return Ok(()) };
    let view = PolicyView { connection, index, entry };
    match record {
        ApprovalRecord::Requested(requested) => view.requested(&requested),
        ApprovalRecord::Voted { id, by } => view.voted(&id, by),
        ApprovalRecord::Decided(decided) => view.decided(&decided),
        ApprovalRecord::Expired { id } => view.ended(&id, ApprovalState::Expired),
        ApprovalRecord::Withdrawn { id } => view.ended(&id, ApprovalState::Withdrawn),
        ApprovalRecord::Granted(grant) => view.granted(&grant),
        ApprovalRecord::Revoked { id, by } => view.run(
            "UPDATE grants SET revoked_by = ?2, revoked_at = ?3 WHERE id = ?1 AND revoked_at IS NULL",
            params![id, by, view.at()],
        ),
        ApprovalRecord::DenialsLifted { session } => {
            view.switched(&format!("{LIFTED}{session}"), true, &entry.actor)
        }
        ApprovalRecord::Frozen { by } => view.switched(FROZEN, true, &by),
        ApprovalRecord::Resumed { by } => view.switched(FROZEN, false, &by),
    }
}

/// Applies a verdict, which is at `index`. Most change nothing here and are not parsed.
pub(super) fn judged(connection: &Connection, index: u64, entry: &EntryText) -> rusqlite::Result<()> {
    let dispatches = entry.payload.contains("\"stage\":\"dispatch\"");
    let excepts = entry.payload.contains("\"waivedBy\":\"exception.");
    let crosses = entry.entity_id.starts_with(EGRESS_ENTITIES);
    let serves = entry.entity_id.starts_with(MCP_ENTITIES);
    if !dispatches && !excepts && !crosses && !serves {
        return Ok(());
    }
    let Ok(record) = serde_json::from_str::<VerdictRecord>(&entry.payload) else { return Ok(()) };
    let view = PolicyView { connection, index, entry };
    // An offer is not a use.
    let waiver = record.verdict.waived_by.as_deref().filter(|_| record.facts.stage != DecisionStage::Offer);
    if let Some(id) = waiver.and_then(|by| by.strip_prefix("exception.")) {
        let insert = "INSERT INTO exception_uses (idx, id, at) VALUES (?1, ?2, ?3)";
        view.run(insert, params![index, id, view.at()])?;
    }
    if crosses && record.verdict.is_allowed() {
        // A connection is about to be made; what comes back through it has an unknown origin.
        taint_session(connection, &record.facts.session, EGRESS_LABELS)?;
        return view.run(
            "INSERT OR REPLACE INTO open_work (cid, kind, session_key, name) VALUES (?1, 'egress', ?2, ?3)",
            params![entry.cid.to_string(), record.facts.session, record.tool],
        );
    }
    if serves && record.verdict.is_allowed() {
        // A server is about to be started; its own descriptions of its tools reach the agent.
        return taint_session(connection, &record.facts.session, MCP_SERVER_LABELS);
    }
    if record.facts.stage != DecisionStage::Dispatch || !record.verdict.is_allowed() {
        return Ok(());
    }
    // A parked call now runs.
    let Some(call) = entry.parent_cids().first().map(ToString::to_string) else { return Ok(()) };
    view.run("UPDATE open_work SET kind = 'tool_call' WHERE cid = ?1", [call])
}

/// Stores the labels of the data that `entry` reports.
pub(super) fn label(
    connection: &Connection,
    entry: &EntryText,
    wrote: &[LabelRecord],
) -> rusqlite::Result<()> {
    for LabelRecord { resource, labels } in wrote {
        connection
            .prepare_cached(
                "INSERT INTO labels (resource, trust, private, cid) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (resource) DO UPDATE SET trust = ?2, private = ?3, cid = ?4",
            )?
            .execute(params![resource, labels.trust.as_str(), labels.private, entry.cid.to_string()])?;
    }
    Ok(())
}

/// Merges labels into those of a session.
pub(super) fn taint_session(connection: &Connection, key: &str, labels: Labels) -> rusqlite::Result<()> {
    let own = connection
        .prepare_cached("SELECT trust, private FROM sessions WHERE session_key = ?1")?
        .query_row([key], |row| policy_queries::labels(row, 0))
        .optional()?;
    own.map_or(Ok(()), |own| set_session(connection, key, own.meet(labels)))
}

/// Sets a session's labels to those of an entry.
pub(super) fn set_session(connection: &Connection, key: &str, labels: Labels) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE sessions SET trust = ?2, private = ?3 WHERE session_key = ?1")?
        .execute(params![key, labels.trust.as_str(), labels.private])
        .map(drop)
}

struct PolicyView<'a> {
    connection: &'a Connection,
    index: u64,
    entry: &'a EntryText,
}

impl PolicyView<'_> {
    fn run(&self, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute(params).map(drop)
    }

    fn at(&self) -> String {
        self.entry.timestamp.to_string()
    }

    fn requested(&self, requested: &Requested) -> rusqlite::Result<()> {
        let request = serde_json::to_string(requested).unwrap_or_default();
        self.run(
            "INSERT OR IGNORE INTO approvals (id, idx, cid, session_key, call, request, state, votes, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, '[]', ?8)",
            params![
                requested.id,
                self.index,
                self.entry.cid.to_string(),
                requested.session,
                requested.call,
                request,
                ApprovalState::Pending.as_str(),
                self.at(),
            ],
        )?;
        // The call is parked; it does not run.
        self.run("UPDATE open_work SET kind = 'parked' WHERE cid = ?1", [&requested.call])
    }

    fn voted(&self, id: &str, by: String) -> rusqlite::Result<()> {
        let votes: Option<String> = self
            .connection
            .prepare_cached("SELECT votes FROM approvals WHERE id = ?1")?
            .query_row([id], |row| row.get(0))
            .optional()?;
        let mut votes: Vec<String> =
            votes.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
        votes.push(by);
        let votes = serde_json::to_string(&votes).unwrap_or_default();
        self.run("UPDATE approvals SET votes = ?2 WHERE id = ?1", params![id, votes])
    }

    fn decided(&self, decided: &Decided) -> rusqlite::Result<()> {
        let state = if decided.decision.allows() { ApprovalState::Allowed } else { ApprovalState::Denied };
        self.run(
            "UPDATE approvals SET state = ?2, decision = ?3, decided_by = ?4, decided_at = ?5, reason = ?6, grant_id = ?7
             WHERE id = ?1 AND state = 'pending'",
            params![
                decided.id,
                state.as_str(),
                decided.decision.as_str(),
                decided.by,
                self.at(),
                decided.reason,
                decided.grant,
            ],
        )
    }

    fn ended(&self, id: &str, state: ApprovalState) -> rusqlite::Result<()> {
        self.run(
            "UPDATE approvals SET state = ?2, decided_at = ?3 WHERE id = ?1 AND state = 'pending'",
            params![id, state.as_str(), self.at()],
        )
    }

    fn granted(&self, grant: &Grant) -> rusqlite::Result<()> {
        let body = serde_json::to_string(grant).unwrap_or_default();
        self.run(
            "INSERT OR IGNORE INTO grants (id, body, created_at) VALUES (?1, ?2, ?3)",
            params![grant.id, body, self.at()],
        )
    }

    fn switched(&self, name: &str, is_on: bool, by: &str) -> rusqlite::Result<()> {
        self.run(
            "INSERT INTO switches (name, is_on, by, at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE SET is_on = ?2, by = ?3, at = ?4",
            params![name, is_on, by, self.at()],
        )
    }
}
