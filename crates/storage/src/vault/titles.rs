//! Titles of sessions. A title is sealed like all content of its session and shredded with it. It has a table of its own, so
//! that listing many sessions does not decrypt their content.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::cipher::ContentKey;
use super::writer::VaultOp;
use super::{Vault, find_session};
use crate::store::StoreError;

pub(super) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS titles (
        session INTEGER PRIMARY KEY,
        body    BLOB NOT NULL               -- sealed text
    ) STRICT;";

/// Associated data that binds a sealed title to its table.
const CONTEXT: &[u8] = b"tribune title";

/// A sealed title.
pub(super) struct TitleUpdate {
    pub(super) session_id: String,
    pub(super) body: Vec<u8>,
}

/// The title of a session, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionTitle {
    Title(String),
    /// The session has no title yet.
    No,
    /// The content of the session is shredded.
    Forgotten,
}

impl Vault {
    /// Sets a session's title, unless it has one. It is durable once any later record is.
    pub async fn entitle(&self, session_id: &str, title: &str) -> Result<(), StoreError> {
        let found = self.read(|connection| find_session(connection, session_id, u64::MAX))?;
        let Some((Some(key), ..)) = found else { return Ok(()) };
        let body = key.seal(title.as_bytes(), CONTEXT).map_err(|error| self.cipher(error))?;
        let session_id = session_id.to_owned();
        self.write_lazy(VaultOp::SetTitle(Box::new(TitleUpdate { session_id, body }))).await
    }

    /// The title of a session.
    pub fn named(&self, session_id: &str) -> Result<SessionTitle, StoreError> {
        let Some((key, body)) = self.read(|connection| read(connection, session_id))? else {
            return Ok(SessionTitle::No);
        };
        match (key, body) {
            (None, _) => Ok(SessionTitle::Forgotten),
            (Some(_), None) => Ok(SessionTitle::No),
            (Some(key), Some(body)) => {
                let title = ContentKey::from_bytes(key).open(&body, CONTEXT);
                // A title that was sealed just before its session was forgotten does not open under a later key.
                Ok(title
                    .ok()
                    .and_then(|title| String::from_utf8(title).ok())
                    .map_or(SessionTitle::No, SessionTitle::Title))
            }
        }
    }
}

type Sealed = (Option<[u8; 32]>, Option<Vec<u8>>);

fn read(connection: &Connection, session_id: &str) -> rusqlite::Result<Option<Sealed>> {
    connection
        .prepare_cached(
            "SELECT key, body FROM sessions LEFT JOIN titles USING (session) WHERE session_id = ?1",
        )?
        .query_row([session_id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Applies it in the writer's transaction. Nothing is stored for a session that was forgotten.
pub(super) fn write(connection: &Connection, own: &TitleUpdate) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR IGNORE INTO titles (session, body)
             SELECT session, ?2 FROM sessions WHERE session_id = ?1 AND key IS NOT NULL",
        )?
        .execute(params![own.session_id, own.body])
        .map(drop)
}

pub(super) fn forget(connection: &Connection, session: i64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM titles WHERE session = ?1", [session]).map(drop)
}
