//! Queries on the views of sessions: sessions, turns, history, unfinished work and agents.

use rusqlite::types::Type;
use rusqlite::{OptionalExtension as _, Row, params};
use tribune_records::agents::{ANONYMOUS, UNREGISTERED};
use tribune_records::session_opening::InheritedLimits;
use tribune_runtime::{CloseReason, SessionMode, SessionState, SessionTerms};

use super::error::StoreError;
use super::policy_queries;
use super::reader::Reader;
use super::session_views::{Heartbeat, MessageRow, OpenWork, SessionRow, TurnRow};

const SESSION: &str =
    "id, agent_id, session_key, backend, model, mode, state, pubkey, mandate, last_activity, created_at,
                       closed_for, turns, prev_cid, last_turn, last_message, ancestors, tools, trust, private, workspace,
                       further";

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    pub agent_id: Option<String>,
    pub state: Option<SessionState>,
    /// Only keys after this one, in order.
    pub after: Option<String>,
}

/// A session that is not closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSession {
    pub key: String,
    pub agent: String,
    /// The key or pass that its opener proved.
    pub credential: Option<String>,
}

/// Which sessions to list by their last activity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecentSession {
    pub agent_id: Option<String>,
    /// Only sessions in this folder; if it is empty, in agents' own workspaces.
    pub workspace: Option<String>,
    /// Without sessions of this backend.
    pub but_of: String,
    /// Only sessions after the one with this last activity and key.
    pub before: Option<(String, String)>,
}

impl Reader {
    /// The session with this key.
    pub fn session(&self, key: &str) -> Result<Option<SessionRow>, StoreError> {
        self.one(&format!("SELECT {SESSION} FROM sessions WHERE session_key = ?1"), [key], session)
    }

    /// Sessions in the order of their keys, at most `limit`.
    pub fn sessions(&self, filter: &SessionFilter, limit: usize) -> Result<Vec<SessionRow>, StoreError> {
        let query = format!(
            "SELECT {SESSION} FROM sessions
             WHERE (?1 IS NULL OR agent_id = ?1) AND (?2 IS NULL OR state = ?2) AND session_key > ?3
             ORDER BY session_key LIMIT ?4"
        );
        let state = filter.state.map(SessionState::as_str);
        let after = filter.after.as_deref().unwrap_or("");
        self.all(&query, params![filter.agent_id, state, after, limit as u64], session)
    }

    /// Sessions that are open or have turns, the most recently used first.
    pub fn recent_sessions(
        &self,
        recent: &RecentSession,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let query = format!(
            "SELECT {SESSION} FROM sessions
             WHERE (?1 IS NULL OR agent_id = ?1) AND (?2 IS NULL OR coalesce(workspace, '') = ?2)
               AND (turns > 0 OR state <> 'closed') AND backend <> ?3
               AND (?4 IS NULL OR (last_activity, session_key) < (?4, ?5))
             ORDER BY last_activity DESC, session_key DESC LIMIT ?6"
        );
        let (at, key) = recent.before.clone().unzip();
        let params = params![recent.agent_id, recent.workspace, recent.but_of, at, key, limit as u64];
        self.all(&query, params, session)
    }

    /// Open sessions without a turn since `before`, at most `limit`. Sessions of mode `persistent` are left out, unless their
    /// caller is anonymous or unregistered.
    pub fn expired_sessions(&self, before: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        self.all(
            "SELECT session_key FROM sessions
             WHERE (mode <> 'persistent' OR agent_id = ?3 OR agent_id GLOB ?4 || '*')
               AND state IN ('idle', 'cancelled') AND last_activity < ?1 LIMIT ?2",
            params![before, limit as u64, ANONYMOUS, UNREGISTERED],
            |row| row.get(0),
        )
    }

    /// The sessions that are not closed.
    pub fn open_sessions(&self) -> Result<Vec<OpenSession>, StoreError> {
        self.all("SELECT session_key, agent_id, pubkey FROM sessions WHERE state <> 'closed'", [], |row| {
            Ok(OpenSession { key: row.get(0)?, agent: row.get(1)?, credential: row.get(2)? })
        })
    }

    /// The newest turns of a session, oldest first, at most `limit`.
    pub fn turns(&self, session: &SessionRow, limit: usize) -> Result<Vec<TurnRow>, StoreError> {
        let query =
            "SELECT prev_idx, id, seq, prev_cid, input_hash, output_hash, stop_reason, usage, started_at,
                            completed_at
                     FROM turns WHERE idx = ?1";
        self.chain(session.last_turn_index, limit, query, |row| {
            Ok(TurnRow {
                id: row.get(1)?,
                seq: row.get(2)?,
                prev_cid: row.get(3)?,
                input_hash: row.get(4)?,
                output_hash: row.get(5)?,
                stop_reason: row.get(6)?,
                usage: row.get(7)?,
                started_at: row.get(8)?,
                completed_at: row.get(9)?,
            })
        })
    }

    /// The newest messages of a session, oldest first, at most `limit`.
    pub fn messages(&self, session: &SessionRow, limit: usize) -> Result<Vec<MessageRow>, StoreError> {
        let query =
            "SELECT prev_idx, id, turn_id, seq, role, content, ref, created_at FROM history WHERE idx = ?1";
        self.chain(session.last_message_index, limit, query, |row| {
            Ok(MessageRow {
                id: row.get(1)?,
                turn: row.get(2)?,
                seq: row.get(3)?,
                role: row.get(4)?,
                content: row.get(5)?,
                name: row.get(6)?,
                created_at: row.get(7)?,
            })
        })
    }

    /// All unfinished work: entries that another entry must end and has not.
    pub fn open_work(&self) -> Result<Vec<OpenWork>, StoreError> {
        self.all(
            "SELECT cid, kind, session_key, name FROM open_work ORDER BY session_key, kind DESC, cid",
            [],
            |row| {
                Ok(OpenWork {
                    cid: row.get(0)?,
                    kind: row.get(1)?,
                    session_key: row.get(2)?,
                    name: row.get(3)?,
                })
            },
        )
    }

    /// The tools of calls that another harness may have executed for a session and whose results it did not report.
    pub fn unreported_tools(&self, key: &str) -> Result<Vec<String>, StoreError> {
        self.all(
            "SELECT DISTINCT name FROM open_work WHERE session_key = ?1 AND (kind = 'elsewhere' OR (kind = 'parked'
                 AND EXISTS (SELECT 1 FROM approvals WHERE call = open_work.cid AND state = 'allowed')))",
            [key],
            |row| row.get(0),
        )
    }

    /// The unfinished forget requests of a session.
    pub fn unfinished_forgets(&self, key: &str) -> Result<Vec<String>, StoreError> {
        self.all(
            "SELECT cid FROM open_work WHERE session_key = ?1 AND kind = 'forget' ORDER BY cid",
            [key],
            |row| row.get(0),
        )
    }

    /// Every agent that ever had a session.
    pub fn heartbeats(&self) -> Result<Vec<Heartbeat>, StoreError> {
        let query = "SELECT agent_id, min(created_at), max(last_activity), count(*), sum(turns) FROM sessions
                     GROUP BY agent_id ORDER BY agent_id";
        self.all(query, [], |row| {
            Ok(Heartbeat {
                agent_id: row.get(0)?,
                first_seen: row.get(1)?,
                last_seen: row.get(2)?,
                sessions: row.get(3)?,
                turns: row.get(4)?,
            })
        })
    }

    pub(super) fn one<T>(
        &self,
        query: &str,
        params: impl rusqlite::Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        self.connection()
            .prepare_cached(query)
            .and_then(|mut select| select.query_row(params, read).optional())
            .map_err(|error| self.failed(&error))
    }

    pub(super) fn all<T>(
        &self,
        query: &str,
        params: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.connection()
            .prepare_cached(query)
            .and_then(|mut select| select.query_map(params, read)?.collect())
            .map_err(|error| self.failed(&error))
    }

    /// Follows rows back from `newest`; the first column of each is the position of the one before it.
    fn chain<T>(
        &self,
        newest: Option<u64>,
        limit: usize,
        query: &str,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let failed = |error: rusqlite::Error| self.failed(&error);
        let mut select = self.connection().prepare_cached(query).map_err(failed)?;
        let mut found = Vec::new();
        let mut next = newest;
        while let Some(index) = next.filter(|_| found.len() < limit) {
            let row = select
                .query_row([index], |row| Ok((row.get::<_, Option<u64>>(0)?, read(row)?)))
                .optional()
                .map_err(failed)?;
            let Some((previous, row)) = row else { break };
            found.push(row);
            // In an altered database the pointers could form a cycle.
            next = previous.filter(|previous| *previous < index);
        }
        found.reverse();
        Ok(found)
    }
}

fn session(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: row.get(0)?,
        agent_id: row.get(1)?,
        key: row.get(2)?,
        terms: SessionTerms {
            backend: row.get(3)?,
            model: row.get(4)?,
            mode: word(row, 5, SessionMode::parse)?,
            pubkey: row.get(7)?,
            mandate: row.get(8)?,
            workspace: row.get(20)?,
            additional_directories: policy_queries::json(row, 21)?,
        },
        inherited: InheritedLimits {
            ancestors: policy_queries::json(row, 16)?,
            tools: policy_queries::json(row, 17)?,
        },
        state: word(row, 6, SessionState::parse)?,
        last_activity: row.get(9)?,
        created_at: row.get(10)?,
        closed_for: match row.get_ref(11)? {
            rusqlite::types::ValueRef::Null => None,
            _ => Some(word(row, 11, CloseReason::parse)?),
        },
        turns: row.get(12)?,
        last_turn: row.get(13)?,
        last_turn_index: row.get(14)?,
        last_message_index: row.get(15)?,
        labels: policy_queries::labels(row, 18)?,
    })
}

fn word<T>(row: &Row<'_>, column: usize, parse: impl FnOnce(&str) -> Option<T>) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    parse(text).ok_or_else(|| {
        let unknown = format!("`{text}` is not a value this version knows");
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, unknown.into())
    })
}
