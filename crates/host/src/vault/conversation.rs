//! Conversations with models, word for word: what is sent again with the next request. Sealed like everything else in the
//! vault, and shredded with it.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::cipher::ContentKey;
use super::writer::Work;
use super::{Vault, find_session};
use crate::store::StoreError;

/// Binds a sealed message to its table.
const CONTEXT: &[u8] = b"said";

/// The table. `place` only rises; a summary stands where the last message that it replaces stood.
pub(super) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS conversations (
        session INTEGER NOT NULL,
        place   INTEGER NOT NULL,
        turn    TEXT NOT NULL,              -- CID of the turn it belongs to
        body    BLOB NOT NULL,              -- sealed JSON
        PRIMARY KEY (session, place)
    ) STRICT, WITHOUT ROWID;";

/// Messages to be added to a conversation, sealed.
pub(super) struct Remembering {
    pub(super) session_id: String,
    pub(super) turn: String,
    pub(super) said: Vec<Vec<u8>>,
    /// How many messages of the beginning the first of `said` replaces.
    pub(super) replaces: usize,
}

/// What it writes, about.
pub(super) fn bytes(own: &Remembering) -> u64 {
    own.said.iter().map(Vec::len).sum::<usize>() as u64
}

impl Vault {
    /// The conversation of a session: for each message its turn and its JSON.
    pub fn recall(&self, session_id: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let Some((Some(key), ..)) = self.read(|connection| find_session(connection, session_id, u64::MAX))?
        else {
            return Ok(Vec::new());
        };
        let sealed = self.read(|connection| read(connection, session_id))?;
        let open = |(turn, body): (String, Vec<u8>)| {
            key.open(&body, CONTEXT).map(|json| (turn, json)).map_err(|error| self.cipher(error))
        };
        sealed.into_iter().map(open).collect()
    }

    /// Adds messages of a turn. They are durable when anything is that is written after them.
    pub async fn remember(&self, session_id: &str, turn: &str, said: &[Vec<u8>]) -> Result<(), StoreError> {
        self.rewrite(session_id, turn, said, 0).await
    }

    /// Puts one message in place of the first `messages`, likewise.
    pub async fn shorten(
        &self,
        session_id: &str,
        turn: &str,
        messages: usize,
        summary: Vec<u8>,
    ) -> Result<(), StoreError> {
        self.rewrite(session_id, turn, &[summary], messages).await
    }

    async fn rewrite(
        &self,
        session_id: &str,
        turn: &str,
        said: &[Vec<u8>],
        replaces: usize,
    ) -> Result<(), StoreError> {
        let found = self.read(|connection| find_session(connection, session_id, u64::MAX))?;
        // INVARIANT: the turn's first page stored the key; without one the session was forgotten meanwhile.
        let Some((Some(key), ..)) = found else { return Ok(()) };
        let seal = |json: &Vec<u8>| ContentKey::seal(&key, json, CONTEXT).map_err(|error| self.cipher(error));
        let said = said.iter().map(seal).collect::<Result<_, _>>()?;
        let (session_id, turn) = (session_id.to_owned(), turn.to_owned());
        self.write_along(Work::Remember(Box::new(Remembering { session_id, turn, said, replaces }))).await
    }
}

fn read(connection: &Connection, session_id: &str) -> rusqlite::Result<Vec<(String, Vec<u8>)>> {
    let mut select = connection.prepare_cached(
        "SELECT turn, body FROM sessions JOIN conversations USING (session) WHERE session_id = ?1 ORDER BY place",
    )?;
    select.query_map([session_id], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Carries it out, in the writer's transaction.
pub(super) fn write(connection: &Connection, session: i64, own: &Remembering) -> rusqlite::Result<()> {
    let mut place: i64 = connection
        .prepare_cached("SELECT coalesce(max(place), 0) FROM conversations WHERE session = ?1")?
        .query_row([session], |row| row.get(0))?;
    if own.replaces > 0 {
        let last: Option<i64> = connection
            .prepare_cached(
                "SELECT place FROM conversations WHERE session = ?1 ORDER BY place LIMIT 1 OFFSET ?2",
            )?
            .query_row(params![session, own.replaces as u64 - 1], |row| row.get(0))
            .optional()?;
        // Something else shortened it before.
        let Some(last) = last else { return Ok(()) };
        connection
            .prepare_cached("DELETE FROM conversations WHERE session = ?1 AND place <= ?2")?
            .execute(params![session, last])?;
        place = last - 1;
    }
    let mut insert = connection
        .prepare_cached("INSERT INTO conversations (session, place, turn, body) VALUES (?1, ?2, ?3, ?4)")?;
    for body in &own.said {
        place += 1;
        insert.execute(params![session, place, own.turn, body])?;
    }
    Ok(())
}

/// The session's id.
pub(super) fn session_of(own: &Remembering) -> &str {
    &own.session_id
}

/// Deletes a conversation.
pub(super) fn forget(connection: &Connection, session: i64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM conversations WHERE session = ?1", [session]).map(drop)
}
