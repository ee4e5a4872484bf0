//! Conversations with models: the messages that are sent again with the next request, verbatim. They are sealed like all
//! content of a session and shredded with it.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::cipher::ContentKey;
use super::writer::VaultOp;
use super::{SessionVault, Vault};
use crate::store::StoreError;
use crate::wal::ReadPoint;

/// Associated data that binds a sealed message to its table.
const CONTEXT: &[u8] = b"said";

/// The table. `place` only rises; a summary takes the place of the last message that it replaces.
pub(super) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS conversations (
        session INTEGER NOT NULL,
        place   INTEGER NOT NULL,
        turn    TEXT NOT NULL,              -- CID of the turn it belongs to
        body    BLOB NOT NULL,              -- sealed JSON
        PRIMARY KEY (session, place)
    ) STRICT, WITHOUT ROWID;";

/// Sealed messages to append to a conversation.
pub(super) struct ConversationLimits {
    pub(super) session_id: String,
    pub(super) turn: String,
    pub(super) said: Vec<Vec<u8>>,
    /// How many messages at the start of the conversation the first of `said` replaces.
    pub(super) replaces: usize,
}

/// A session's conversation, as of the start of one turn.
#[derive(Debug, Clone)]
pub struct Conversation {
    session_id: String,
    key: ContentKey,
    /// The point up to which the vault was written when the turn began. What is recalled does not depend on anything
    /// later.
    as_of: ReadPoint,
}

/// Approximate bytes that it writes.
pub(super) fn bytes(own: &ConversationLimits) -> u64 {
    own.said.iter().map(Vec::len).sum::<usize>() as u64
}

impl Vault {
    /// The conversation of a session, for a turn that begins now.
    pub fn conversation(&self, session: &SessionVault) -> Conversation {
        let SessionVault { session_id, key, .. } = session;
        Conversation { session_id: session_id.clone(), key: key.clone(), as_of: self.wal.read_point() }
    }

    /// The messages before the turn, each with its turn and its JSON.
    pub fn recall(&self, of: &Conversation) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let sealed = self.read_as_of(of.as_of, |connection| read(connection, &of.session_id))?;
        let open = |(turn, body): (String, Vec<u8>)| {
            of.key.open(&body, CONTEXT).map(|json| (turn, json)).map_err(|error| self.cipher(error))
        };
        sealed.into_iter().map(open).collect()
    }

    /// Appends messages of a turn. They are durable once any later record is.
    pub async fn remember(
        &self,
        of: &Conversation,
        turn: &str,
        messages: &[Vec<u8>],
    ) -> Result<(), StoreError> {
        self.rewrite(of, turn, messages, 0).await
    }

    /// Replaces the first `messages` messages with a summary. It is durable once any later record is.
    pub async fn shorten(
        &self,
        of: &Conversation,
        turn: &str,
        messages: usize,
        summary: Vec<u8>,
    ) -> Result<(), StoreError> {
        self.rewrite(of, turn, &[summary], messages).await
    }

    async fn rewrite(
        &self,
        of: &Conversation,
        turn: &str,
        messages: &[Vec<u8>],
        replaces: usize,
    ) -> Result<(), StoreError> {
        // INVARIANT: only sessions without a running turn are forgotten, so this is still the session's key.
        let seal = |json: &Vec<u8>| of.key.seal(json, CONTEXT).map_err(|error| self.cipher(error));
        let said = messages.iter().map(seal).collect::<Result<_, _>>()?;
        let (session_id, turn) = (of.session_id.clone(), turn.to_owned());
        self.write_lazy(VaultOp::AppendConversation(Box::new(ConversationLimits {
            session_id,
            turn,
            said,
            replaces,
        })))
        .await
    }
}

fn read(connection: &Connection, session_id: &str) -> rusqlite::Result<Vec<(String, Vec<u8>)>> {
    let mut select = connection.prepare_cached(
        "SELECT turn, body FROM sessions JOIN conversations USING (session) WHERE session_id = ?1 ORDER BY place",
    )?;
    select.query_map([session_id], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Applies it in the writer's transaction. Nothing is stored for a session that was forgotten.
pub(super) fn write(connection: &Connection, own: &ConversationLimits) -> rusqlite::Result<()> {
    let session: Option<i64> = connection
        .prepare_cached("SELECT session FROM sessions WHERE session_id = ?1 AND key IS NOT NULL")?
        .query_row([&own.session_id], |row| row.get(0))
        .optional()?;
    let Some(session) = session else { return Ok(()) };
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
        // Another rewrite shortened it before.
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

/// Deletes a conversation.
pub(super) fn forget(connection: &Connection, session: i64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM conversations WHERE session = ?1", [session]).map(drop)
}
