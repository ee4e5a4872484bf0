//! The views of sessions, turns, history and unfinished work, derived from the entries.
//!
//! Rows of a session are chained by their position in the log, as its entries are, so that appending never touches an
//! index in random order. An entry whose payload has another format changes nothing here.

use rusqlite::{Connection, OptionalExtension as _, params};
use serde::de::DeserializeOwned;
use tribune_constitution::Labels;
use tribune_ledger::EntryQuality;
use tribune_ledger::commitment::Commitment;
use tribune_ledger::entry::EntryText;
use tribune_records::agents::PrincipalTier;
use tribune_records::approval::record::CallRunner;
use tribune_records::ledger_payloads::{
    EGRESS_ENTITIES, EgressRecord, Lifecycle, MailboxRecord, ProxyRecord, ToolCallRecord, ToolResultRecord,
    Turn, TurnPhase, WORKSPACE_ENTITIES, WorkspaceRecord,
};
use tribune_records::session_opening::{InheritedLimits, SessionOpeningRecord};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::{AgentId, CloseReason, Role, SessionState, SessionTerms, StopReason};

use super::{policy_views, spend_views};

/// The tables of these views, each with its columns and key order.
pub(super) const TABLES: [(&str, &str, &str); 4] = [
    (
        "sessions",
        "id, agent_id, session_key, backend, model, mode, state, pubkey, mandate, last_activity, created_at, closed_for, \
         turns, last_turn, prev_cid, messages, last_message, ancestors, tools, trust, private, workspace, further",
        "session_key",
    ),
    (
        "turns",
        "idx, id, session_id, seq, prev_idx, prev_cid, input_hash, output_hash, stop_reason, usage, started_at, \
         completed_at, proof",
        "idx",
    ),
    ("history", "idx, id, session_id, turn_id, seq, prev_idx, role, content, ref, created_at", "idx"),
    ("open_work", "cid, kind, session_key, name", "cid"),
];

/// Applies the next entry, which is at `index`.
pub(super) fn apply(connection: &Connection, index: u64, entry: &EntryText) -> rusqlite::Result<()> {
    let view = SessionView { connection, index, entry };
    match entry.quality {
        EntryQuality::SessionLifecycle => view.read(SessionView::lifecycle),
        EntryQuality::Turn => view.read(SessionView::turn),
        EntryQuality::ToolCall => view.read(SessionView::tool_call),
        EntryQuality::ToolResult => view.read(SessionView::tool_result),
        EntryQuality::MailboxInject => view.read(SessionView::mailbox),
        EntryQuality::PolicyVerdict => policy_views::judged(connection, index, entry),
        EntryQuality::Approval => policy_views::apply(connection, index, entry),
        EntryQuality::Delivery if entry.entity_id.starts_with(EGRESS_ENTITIES) => {
            view.read(SessionView::egressed)
        }
        EntryQuality::Delivery if entry.entity_id.starts_with(WORKSPACE_ENTITIES) => {
            view.read(SessionView::landed)
        }
        EntryQuality::Delivery => view.read(SessionView::proxied),
        EntryQuality::Change => spend_views::apply(connection, entry),
        EntryQuality::KeyChange | EntryQuality::Note => Ok(()),
    }
}

struct SessionView<'a> {
    connection: &'a Connection,
    index: u64,
    entry: &'a EntryText,
}

/// What a completed turn stores of its output.
struct TurnOutput {
    hash: String,
    usage: String,
}

/// The columns of a session that its next row depends on.
struct SessionHead {
    id: String,
    turns: u64,
    last_turn: Option<u64>,
    prev_cid: Option<String>,
    messages: u64,
    last_message: Option<u64>,
}

impl SessionView<'_> {
    fn read<T: DeserializeOwned>(
        &self,
        take: impl FnOnce(&Self, T) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        serde_json::from_str(&self.entry.payload).map_or(Ok(()), |record| take(self, record))
    }

    fn run(&self, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute(params).map(drop)
    }

    fn at(&self) -> String {
        self.entry.timestamp.to_string()
    }

    fn lifecycle(&self, record: Lifecycle) -> rusqlite::Result<()> {
        let key = &self.entry.entity_id;
        match record {
            Lifecycle::Opened(opening) => self.opened(&opening),
            Lifecycle::Reopened(opening) => self.reopened(&opening),
            Lifecycle::Closed { reason } => self.run(
                "UPDATE sessions SET state = ?2, closed_for = ?3, last_activity = ?4 WHERE session_key = ?1",
                params![key, SessionState::Closed.as_str(), reason.as_str(), self.at()],
            ),
            Lifecycle::Forgetting { .. } => self.open_work("forget", ""),
            Lifecycle::Forgotten { .. } => {
                // The content is shredded, and with it the labels that it brought in.
                policy_views::set_session(self.connection, key, Labels::FRESH)?;
                self.work_done()
            }
        }
    }

    fn opened(&self, opening: &SessionOpeningRecord) -> rusqlite::Result<()> {
        let SessionOpeningRecord { terms, inherited, .. } = opening;
        self.run(
            "INSERT OR IGNORE INTO sessions (id, agent_id, session_key, backend, model, mode, state, pubkey, mandate,
                                             last_activity, created_at, turns, messages, ancestors, tools, trust, private,
                                             workspace, further)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, 0, 0, ?11, ?12, ?13, ?14, ?15, ?16)",
            params![
                opening.session_id,
                opening.agent_id,
                self.entry.entity_id,
                terms.backend,
                terms.model,
                terms.mode.as_str(),
                SessionState::Idle.as_str(),
                terms.pubkey,
                terms.mandate,
                self.at(),
                serde_json::to_string(&inherited.ancestors).unwrap_or_default(),
                serde_json::to_string(&inherited.tools).unwrap_or_default(),
                opening.labels.trust.as_str(),
                opening.labels.private,
                terms.workspace,
                serde_json::to_string(&terms.additional_directories).unwrap_or_default(),
            ],
        )
    }

    fn reopened(&self, opening: &SessionOpeningRecord) -> rusqlite::Result<()> {
        let terms = &opening.terms;
        self.run(
            "UPDATE sessions SET state = ?2, backend = ?3, model = ?4, mode = ?5, pubkey = ?6, mandate = ?7,
                                 last_activity = ?8, closed_for = NULL, workspace = ?9, further = ?10
             WHERE session_key = ?1",
            params![
                self.entry.entity_id,
                SessionState::Idle.as_str(),
                terms.backend,
                terms.model,
                terms.mode.as_str(),
                terms.pubkey,
                terms.mandate,
                self.at(),
                terms.workspace,
                serde_json::to_string(&terms.additional_directories).unwrap_or_default(),
            ],
        )
    }

    fn turn(&self, record: Turn) -> rusqlite::Result<()> {
        let Some(session) = self.session()? else { return Ok(()) };
        policy_views::taint_session(self.connection, &self.entry.entity_id, record.labels)?;
        match record.phase {
            TurnPhase::Started => self.turn_started(&session, &record),
            TurnPhase::Completed { outputs_hash, stop_reason, usage } => {
                let usage = serde_json::to_string(&usage).unwrap_or_default();
                let output = TurnOutput { hash: outputs_hash.to_string(), usage };
                self.turn_ended(&session, stop_reason, Some(&output))?;
                self.message(&session, Role::Assistant.as_str(), &outputs_hash, None)
            }
            TurnPhase::Interrupted => self.turn_ended(&session, StopReason::Interrupted, None),
        }
    }

    fn turn_started(&self, session: &SessionHead, record: &Turn) -> rusqlite::Result<()> {
        let cid = self.entry.cid.to_string();
        self.run(
            "INSERT INTO turns (idx, id, session_id, seq, prev_idx, prev_cid, input_hash, started_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                self.index,
                cid,
                session.id,
                session.turns,
                session.last_turn,
                session.prev_cid,
                record.inputs_hash.to_string(),
                self.at(),
            ],
        )?;
        self.run(
            "UPDATE sessions SET state = ?2, last_activity = ?3, turns = turns + 1, last_turn = ?4, prev_cid = ?5
             WHERE session_key = ?1",
            params![self.entry.entity_id, SessionState::Running.as_str(), self.at(), self.index, cid],
        )?;
        self.open_work("turn", "")?;
        self.message_of(session, Some(&cid), Role::User.as_str(), &record.inputs_hash, None)
    }

    fn turn_ended(
        &self,
        session: &SessionHead,
        stop_reason: StopReason,
        output: Option<&TurnOutput>,
    ) -> rusqlite::Result<()> {
        self.run(
            "UPDATE turns SET output_hash = ?2, usage = ?3, stop_reason = ?4, completed_at = ?5 WHERE idx = ?1",
            params![
                session.last_turn,
                output.map(|output| &output.hash),
                output.map(|output| &output.usage),
                stop_reason.as_str(),
                self.at(),
            ],
        )?;
        let state = match stop_reason {
            StopReason::Cancelled => SessionState::Cancelled,
            _ => SessionState::Idle,
        };
        self.run(
            "UPDATE sessions SET state = ?2, last_activity = ?3 WHERE session_key = ?1",
            params![self.entry.entity_id, state.as_str(), self.at()],
        )?;
        self.work_done()
    }

    fn tool_call(&self, record: ToolCallRecord) -> rusqlite::Result<()> {
        let Some(session) = self.session()? else { return Ok(()) };
        let kind = match record.runner {
            CallRunner::Host | CallRunner::Agent => "tool_call",
            CallRunner::Caller => "elsewhere",
        };
        self.open_work(kind, &record.tool)?;
        self.message(&session, "tool_call", &record.input_hash, Some(&record.tool))
    }

    fn tool_result(&self, record: ToolResultRecord) -> rusqlite::Result<()> {
        let Some(session) = self.session()? else { return Ok(()) };
        policy_views::taint_session(self.connection, &self.entry.entity_id, record.labels)?;
        policy_views::label(self.connection, self.entry, &record.wrote)?;
        self.work_done()?;
        match &record.output_hash {
            Some(output) => self.message(&session, Role::Tool.as_str(), output, Some(&record.tool)),
            None => Ok(()),
        }
    }

    fn mailbox(&self, record: MailboxRecord) -> rusqlite::Result<()> {
        let Some(session) = self.session()? else { return Ok(()) };
        policy_views::taint_session(self.connection, &self.entry.entity_id, record.labels)?;
        self.message(&session, Role::Mailbox.as_str(), &record.content_hash, Some(&record.letter))
    }

    fn proxied(&self, record: ProxyRecord) -> rusqlite::Result<()> {
        match record {
            ProxyRecord::Asked { provider, .. } => self.open_work("proxy", &provider),
            ProxyRecord::Ended { .. } => self.work_done(),
            ProxyRecord::Refused { .. } => Ok(()),
        }
    }

    /// Changes of a sandbox get its labels in the folder that they land in.
    fn landed(&self, record: WorkspaceRecord) -> rusqlite::Result<()> {
        match record {
            WorkspaceRecord::Labelled { wrote } => policy_views::label(self.connection, self.entry, &wrote),
            WorkspaceRecord::Landed { .. }
            | WorkspaceRecord::LandingFailed { .. }
            | WorkspaceRecord::LandingInterrupted { .. }
            | WorkspaceRecord::Discarded { .. } => Ok(()),
        }
    }

    fn egressed(&self, record: EgressRecord) -> rusqlite::Result<()> {
        match record {
            EgressRecord::Refused { .. } => Ok(()),
            EgressRecord::Ended { .. } => self.work_done(),
        }
    }

    /// Records work that another entry must end.
    fn open_work(&self, kind: &str, name: &str) -> rusqlite::Result<()> {
        self.run(
            "INSERT OR REPLACE INTO open_work (cid, kind, session_key, name) VALUES (?1, ?2, ?3, ?4)",
            params![self.entry.cid.to_string(), kind, self.entry.entity_id, name],
        )
    }

    /// Ends the work of the entry's first parent.
    fn work_done(&self) -> rusqlite::Result<()> {
        let Some(begun) = self.entry.parent_cids().first().map(ToString::to_string) else { return Ok(()) };
        self.run("DELETE FROM open_work WHERE cid = ?1", [begun])
    }

    /// Adds a row of history in the session's newest turn.
    fn message(
        &self,
        session: &SessionHead,
        role: &str,
        content: &Commitment,
        name: Option<&str>,
    ) -> rusqlite::Result<()> {
        self.message_of(session, session.prev_cid.as_deref(), role, content, name)
    }

    fn message_of(
        &self,
        session: &SessionHead,
        turn: Option<&str>,
        role: &str,
        content: &Commitment,
        name: Option<&str>,
    ) -> rusqlite::Result<()> {
        self.run(
            "INSERT INTO history (idx, id, session_id, turn_id, seq, prev_idx, role, content, ref, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                self.index,
                self.entry.cid.to_string(),
                session.id,
                turn,
                session.messages,
                session.last_message,
                role,
                content.to_string(),
                name,
                self.at(),
            ],
        )?;
        self.run(
            "UPDATE sessions SET messages = messages + 1, last_message = ?2 WHERE session_key = ?1",
            params![self.entry.entity_id, self.index],
        )
    }

    fn session(&self) -> rusqlite::Result<Option<SessionHead>> {
        let mut select = self.connection.prepare_cached(
            "SELECT id, turns, last_turn, prev_cid, messages, last_message FROM sessions WHERE session_key = ?1",
        )?;
        let row = select.query_row([&self.entry.entity_id], |row| {
            Ok(SessionHead {
                id: row.get(0)?,
                turns: row.get(1)?,
                last_turn: row.get(2)?,
                prev_cid: row.get(3)?,
                messages: row.get(4)?,
                last_message: row.get(5)?,
            })
        });
        row.optional()
    }
}

/// A session, derived from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub id: String,
    pub agent_id: String,
    pub key: String,
    pub terms: SessionTerms,
    pub inherited: InheritedLimits,
    pub state: SessionState,
    /// The labels of everything that the session has read.
    pub labels: Labels,
    pub last_activity: String,
    pub created_at: String,
    pub closed_for: Option<CloseReason>,
    pub turns: u64,
    /// CID of its newest turn.
    pub last_turn: Option<String>,
    pub(super) last_turn_index: Option<u64>,
    pub(super) last_message_index: Option<u64>,
}

impl SessionRow {
    /// Its workspace roots, as a session of this agent.
    pub fn ground(&self, agent: &AgentId) -> WorkspaceRoots {
        WorkspaceRoots::of_terms(agent.clone(), &self.terms)
    }

    /// The class of the principal that opened it.
    pub fn tier(&self) -> PrincipalTier {
        PrincipalTier::of_session(&self.agent_id, self.terms.pubkey.as_deref())
    }

    /// Its own mandate, then those of its parent agents.
    pub fn mandates(&self) -> impl Iterator<Item = String> {
        self.inherited.mandates(&self.terms.mandate)
    }
}

/// A turn, derived from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRow {
    /// CID of the entry that began it.
    pub id: String,
    pub seq: u64,
    pub prev_cid: Option<String>,
    pub input_hash: String,
    pub output_hash: Option<String>,
    pub stop_reason: Option<String>,
    /// JSON.
    pub usage: Option<String>,
    pub started_at: String,
    pub completed_at: Option<String>,
}

/// A message, derived from the log: its role, and the commitment under which the vault has its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    pub id: String,
    pub turn: Option<String>,
    pub seq: u64,
    pub role: String,
    pub content: String,
    /// The tool, or the mailbox message.
    pub name: Option<String>,
    pub created_at: String,
}

/// Unfinished work: an entry that another entry must end and has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenWork {
    pub cid: String,
    pub kind: String,
    pub session_key: String,
    pub name: String,
}

/// The activity of an agent, derived from its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    pub agent_id: String,
    pub first_seen: String,
    pub last_seen: String,
    pub sessions: u64,
    pub turns: u64,
}
